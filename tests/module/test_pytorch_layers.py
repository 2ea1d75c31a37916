"""Layers under PyTorch's names beside PyTorch, and MegEngine's dilation and polygons beside their definitions."""

import numpy as np
import pytest

from tengen import Parameter, Tensor, amp, autodiff, linalg, optimizer, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.base.errors import ArgumentError, DeviceError, ShapeError, UsageWarning
from tengen.optimizer import SGD

R = np.random.default_rng(1)
X, Y = R.normal(size=(4, 6)).astype("f4"), R.normal(size=(4, 6)).astype("f4")
LINES, IMAGES, VOLUMES = (R.normal(size=s).astype("f4") for s in ((2, 6, 5), (2, 6, 4, 6), (1, 2, 4, 4, 4)))
COLUMNS = R.normal(size=(2, 12, 15)).astype("f4")
CALLS = [  # the text that builds the layer, and what it is called with
    *((f"{kind}Pad{n}d({args})", (x,))
      for kind, more in (("Zero", ""), ("Constant", ", 2.0"), ("Reflection", ""), ("Replication", ""), ("Circular", ""))
      for n, x, some in ((1, LINES, "(1, 2)"), (2, IMAGES, "(1, 2, 3, 0)"), (3, VOLUMES, "(1, 2, 3, 0, 1, 1)"))
      for args in (some + more, "1" + more)),
    ("Hardtanh(-0.5, 0.25)", (X,)), ("CELU(0.5)", (X,)), ("Threshold(0.1, 2.0)", (X,)), ("Hardshrink()", (X,)), ("Softshrink(0.25)", (X,)),
    ("Tanhshrink()", (X,)), ("Softsign()", (X,)), ("Softmin(dim=1)", (X,)), ("Softmax2d()", (IMAGES,)), ("Unflatten(1, (2, -1))", (X,)),
    ("Unfold((2, 3), padding=1)", (IMAGES,)), ("Fold((4, 6), (2, 2))", (COLUMNS,)),
    ("PixelUnshuffle(2)", (IMAGES,)), ("ChannelShuffle(3)", (IMAGES,)),
    ("UpsamplingNearest2d(scale_factor=2)", (IMAGES,)), ("UpsamplingBilinear2d(scale_factor=2)", (IMAGES,)), ("InstanceNorm1d(6)", (LINES,)),
    ("InstanceNorm2d(6, affine=True)", (IMAGES,)), ("InstanceNorm3d(2)", (VOLUMES,)), ("CosineSimilarity(dim=0)", (X, Y)),
    ("PairwiseDistance(p=1, keepdim=True)", (X, Y)), ("Hardtanh(inplace=True)", (X,)),
]  # fmt: skip


def test_layers_beside_pytorch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for text, operands in CALLS:
        got = eval(f"M.{text}")(*map(Tensor, operands)).numpy()
        want = eval(f"nn.{text}", {"nn": torch.nn})(*(torch.tensor(a) for a in operands)).detach().numpy()
        assert got.shape == want.shape, text
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5, err_msg=text)


def test_layers_with_parameters_beside_pytorch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ours, theirs = M.Bilinear(6, 6, 3), torch.nn.Bilinear(6, 6, 3)
    for p, q in ((ours.weight, theirs.weight), (ours.bias, theirs.bias)):
        assert p.shape == tuple(q.shape) and 0.1 < np.abs(p.numpy()).max() <= 6**-0.5
        p._reset(Tensor(q.detach().numpy()))
    want = theirs(torch.tensor(X), torch.tensor(Y)).detach().numpy()
    np.testing.assert_allclose(ours(Tensor(X), Tensor(Y)).numpy(), want, rtol=1e-4, atol=1e-5)
    table, i, o = R.normal(size=(5, 3)).astype("f4"), np.array([4, 1, 0, 1]), np.array([0, 3])
    for mode in ("sum", "mean", "max"):
        bag, other = M.EmbeddingBag(5, 3, mode), torch.nn.EmbeddingBag(5, 3, mode=mode)
        bag.weight._reset(Tensor(table))
        other.weight.data = torch.tensor(table)
        got = bag(Tensor(i), Tensor(o)).numpy()
        np.testing.assert_allclose(got, other(torch.tensor(i), torch.tensor(o)).detach().numpy(), rtol=1e-6, err_msg=mode)


def test_a_padding_row_gets_no_gradient():
    net = M.Embedding(4, 2, padding_idx=1)
    assert net.weight[1].tolist() == [0.0, 0.0] and net.weight[0].numpy().any()
    gm = autodiff.GradManager().attach(net.parameters())
    with gm:
        gm.backward(net(Tensor([[1, 0], [1, 3]])).sum())
    assert net.weight.grad.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    with pytest.raises(ValueError, match="none of the 4 rows"):
        M.Embedding(4, 2, padding_idx=4)


def test_lists_and_dicts_of_parameters():
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.some, self.named = M.ParameterList([F.ones(2), Parameter([3.0])]), M.ParameterDict({"a": F.zeros(1)})

        def forward(self, x):
            return sum((x * p.sum() for p in self.some), x) + self.named["a"]

    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["named.a", "some.0", "some.1"] and net(Tensor(1.0)).tolist() == [6.0]
    net.some[1] = Tensor([1.0])
    net.named["b"] = F.ones(3)
    assert len(net.some) == 2 and net.some[-1].tolist() == [1.0] and [*net.named] == ["a", "b"] and "b" in net.named and len(net.named) == 2
    assert [k for k, _ in net.named.items()] == list(net.named.keys()) and len(net.named.values()) == 2 and isinstance(net.some[1], Parameter)
    for bad, error in (
        (lambda: net.some[2], IndexError), (lambda: net.named["c"], KeyError), (lambda: net.named.__setitem__("train", F.ones(1)), KeyError),
        (lambda: net.named.__setitem__("a.b", F.ones(1)), KeyError),
    ):  # fmt: skip
        with pytest.raises(error):
            bad()
    assert len(list(net.parameters())) == 4


def test_utils():
    net = M.Sequential(M.Linear(3, 2), M.Linear(2, 1))
    vec = M.utils.parameters_to_vector(net.parameters())
    M.utils.vector_to_parameters(vec * 2, net.parameters())
    assert M.utils.parameters_to_vector(net.parameters()).tolist() == (vec * 2).tolist() and vec.shape == (11,)
    with pytest.raises(ShapeError, match=r"\(11,\) is expected"):
        M.utils.vector_to_parameters(vec[:5], net.parameters())
    rows = [Tensor([[1.0], [2.0]]), Tensor([[3.0]])]
    assert M.utils.rnn.pad_sequence(rows, padding_value=9.0).tolist() == [[[1.0], [3.0]], [[2.0], [9.0]]]
    assert M.utils.rnn.pad_sequence(rows, batch_first=True, padding_side="left")[1].tolist() == [[0.0], [3.0]]
    back = M.utils.rnn.unpad_sequence(M.utils.rnn.pad_sequence(rows), [2, 1])
    assert [r.tolist() for r in back] == [r.tolist() for r in rows] and M.utils.clip_grad_norm_ and M.utils.weight_norm
    with pytest.raises(ShapeError, match="first extent"):
        M.utils.rnn.pad_sequence([F.ones((2, 1)), F.ones((2, 2))])


def test_a_transformer_learns_to_copy():
    """An encoder and a decoder, with PyTorch's masks; the decoder sees nothing of what comes later."""
    net = M.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
    src, tgt = (Tensor(R.normal(size=(2, n, 8)).astype("f4")) for n in (3, 4))
    mask = net.generate_square_subsequent_mask(4)
    out = net(src, tgt, tgt_mask=mask)
    later = Tensor(tgt.numpy().copy())
    later[:, 3] = 5.0
    assert net(src, later, tgt_mask=mask)[:, :3].numpy().tobytes() == out[:, :3].numpy().tobytes() and out.shape == (2, 4, 8)
    gm, opt = autodiff.GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1)

    @trace
    def step():
        with gm:
            loss = ((net(src, tgt, tgt_mask=mask) - tgt) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    losses = [step().item() for _ in range(8)]
    assert losses[-1] < losses[0]


def dilated(x, kernel, value):
    kh, kw = kernel.shape
    padded = np.pad(x, ((0, 0), (0, 0), (kh // 2, kh), (kw // 2, kw)), constant_values=value)
    h, w = x.shape[2:]
    return np.max([padded[:, :, i : i + h, j : j + w] for i in range(kh) for j in range(kw) if kernel[i, j]], 0)


def test_dilation():
    for kernel in (np.ones((3, 3)), np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]]), np.array([[1, 0], [1, 1]]), np.ones((1, 4))):
        for x in (IMAGES, R.integers(0, 99, IMAGES.shape)):
            k = kernel.astype(x.dtype)
            assert np.array_equal(M.Dilation()(Tensor(x), Tensor(k)).numpy(), dilated(x, k, 0))
    twice = M.Dilation(2, border_value=-9.0)(Tensor(IMAGES), F.ones((3, 3))).numpy()
    assert np.array_equal(twice, dilated(dilated(IMAGES, np.ones((3, 3)), -9), np.ones((3, 3)), -9))
    wrapped = M.Dilation(border_type="BORDER_WRAP")(Tensor(IMAGES), F.ones((3, 1))).numpy()
    assert np.array_equal(wrapped, np.max([np.roll(IMAGES, s, 2) for s in (-1, 0, 1)], 0))
    cv2 = pytest.importorskip("cv2", reason="opencv is not installed")
    want = cv2.dilate(IMAGES[0, 0], np.ones((3, 3), np.uint8), borderType=cv2.BORDER_REPLICATE)
    assert np.array_equal(M.Dilation(border_type="BORDER_REPLICATE")(Tensor(IMAGES[:1, :1]), F.ones((3, 3))).numpy()[0, 0], want)


POLYGONS = [[(1, 1), (9, 2), (7, 9), (2, 8)], [(2, 2), (10, 10), (10, 2), (2, 10)], [(-3, 4), (6, -2), (14, 7)], [(4, 4)], [(1, 6), (9, 6)]]


@pytest.mark.parametrize("points", POLYGONS)
def test_polygons(points):
    """Beside the even-odd rule and the line's definition, pixel by pixel; and beside OpenCV, but for pixels at the outline."""
    h, w = 11, 12
    want = np.zeros((h, w), bool)
    edges = list(zip([points[-1], *points[:-1]], points))
    for y in range(h):
        for x in range(w):
            crossings = [x0 + (y - y0) * (x1 - x0) / (y1 - y0) for (x0, y0), (x1, y1) in edges if min(y0, y1) <= y < max(y0, y1)]
            want[y, x] = sum(x > c for c in crossings) % 2
    outline = np.zeros((h, w), bool)
    for (x0, y0), (x1, y1) in edges:
        n = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(n + 1):
            x, y = int(np.floor(x0 + i * (x1 - x0) / n + 0.5)), int(np.floor(y0 + i * (y1 - y0) / n + 0.5))
            if 0 <= x < w and 0 <= y < h:
                outline[y, x] = True
    for dtype in ("float32", "int32"):
        out = M.FillPoly()(F.zeros((2, 2, h, w), dtype), [Tensor(points)], Tensor([3, 5], dtype)).numpy()
        assert out.dtype == dtype and np.array_equal(out[0], out[1]) and np.array_equal(out[0, 1] == 5, out[0, 0] == 3)
        assert np.array_equal(out[0, 0] == 3, want | outline)
    cv2 = pytest.importorskip("cv2", reason="opencv is not installed")
    theirs = cv2.fillPoly(np.zeros((h, w), np.uint8), [np.array(points, np.int32)], 1).astype(bool)
    near = cv2.dilate(outline.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)
    assert np.array_equal(theirs[~near], (want | outline)[~near])


def test_several_polygons_and_mistakes():
    img = F.zeros((1, 1, 6, 6))
    out = M.FillPoly()(img, [Tensor([[0, 0], [1, 0], [1, 1], [0, 1]]), Tensor([[4, 4], [5, 4], [5, 5], [4, 5]])], Tensor([1.0]))
    assert out.sum().item() == 8 and M.FillPoly()(img, [], Tensor([1.0])) is img
    for call, words in (
        (lambda: M.FillPoly()(img, [Tensor([[0, 0]])], Tensor([1.0, 2.0])), r"color has shape \(2,\)"),
        (lambda: M.FillPoly()(img, [Tensor([0, 0])], Tensor([1.0])), r"\(K, 2\)"), (lambda: M.Dilation()(img, F.ones(3)), "a matrix"),
        (lambda: M.FillPoly()(img[0], [], Tensor([1.0])), "images"), (lambda: M.ZeroPad2d((1, 2)), "4 of them"),
        (lambda: M.InstanceNorm2d(3, track_running_stats=True), "running statistics"), (lambda: M.EmbeddingBag(3, 2, "min"), "mode='min'"),
        (lambda: M.Softmax2d()(F.ones((2, 2))), "images"), (lambda: M.ReflectionPad3d(1)(F.ones((2, 2))), "axes of space"),
    ):  # fmt: skip
        with pytest.raises((ShapeError, ArgumentError), match=words):
            call()


def test_modules_move_and_cast():
    net = M.Sequential(M.Linear(3, 2), M.BatchNorm1d(2))
    assert net.to("cpu") is net and net.cpu() is net and net.double() is net
    assert {p.dtype.name for p in net.parameters()} == {"float64"} and net[1].running_mean.dtype == "float64"
    assert net.to("cpu", "float32")[0].weight.dtype == "float32" and net.half()[0].weight.dtype == "float16"
    assert net.float()[0].bias.dtype == "float32"
    assert net.get_submodule("1") is net[1] and net.get_parameter("0.weight") is net[0].weight and net.get_submodule("") is net
    for call in (lambda: net.cuda(), lambda: net.to("cuda:0")):
        with pytest.raises(DeviceError):
            call()
    assert net.requires_grad_(False) is net and all(p.frozen for p in net.parameters())
    with pytest.raises(AttributeError, match="no module '7'"):
        net.get_submodule("7")


def test_what_means_something_else_here_is_said():
    with pytest.warns(UsageWarning, match=r"momentum=0.1 is the share.*momentum=0.9 here"):
        M.BatchNorm2d(3, momentum=0.1)
    with pytest.warns(UsageWarning, match=r"transpose\(0, 1\) of f32\[2,3\] is NumPy's.*swapaxes\(0, 1\)"):
        assert F.ones((2, 3)).transpose(0, 1).shape == (2, 3)
    assert F.ones((2, 3, 4)).transpose(1, 2).shape == (2, 4, 3)
    for call, error, words in (
        (lambda: amp.GradScaler("cuda"), TypeError, "leave the device out"),
        (lambda: amp.autocast(device_type="cuda"), DeviceError, "no device 'cuda'"),
        (lambda: M.Conv2d(3, 4, 2, padding="same"), ArgumentError, "'same' with stride 1"),
        (lambda: M.Conv2d(3, 4, 3, stride=2, padding="same"), ArgumentError, "'same' with stride 1"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            call()
    with amp.autocast(device_type="cpu", dtype="bfloat16"):
        assert F.matmul(F.ones((2, 2)), F.ones((2, 2))).dtype == "bfloat16"
    x = Tensor(IMAGES)
    conv = M.Conv2d(6, 2, (3, 5), padding="same", dilation=(2, 1))
    assert conv(x).shape == (2, 2, 4, 6) and conv.padding == (2, 2) and M.Conv2d(6, 2, 3, padding="valid")(x).shape == (2, 2, 2, 4)


@pytest.mark.parametrize("make", [
    lambda: M.Linear(3, 2), lambda: M.Conv2d(2, 2, 3), lambda: M.Embedding(4, 3, padding_idx=0), lambda: M.LayerNorm(3),
    lambda: M.BatchNorm2d(3), lambda: M.GroupNorm(1, 3), lambda: M.InstanceNorm(3), lambda: M.MultiHeadAttention(4, 2),
])  # fmt: skip
def test_parameters_are_reset(make):
    net = make()
    first = {n: p.numpy().copy() for n, p in net.named_parameters()}
    for p in net.parameters():
        p[...] = 9.0
    net.reset_parameters()
    for n, p in net.named_parameters():
        drawn = np.unique(first[n]).size > 1
        assert np.abs(p.numpy()).max() < 6 and (p.numpy() != first[n]).any() == drawn, n
    if isinstance(net, M.Embedding):
        assert not net.weight[0].numpy().any()


def test_names_of_megengines_layers():
    net = M.Linear(2, 1)
    assert net.calc_linear(F.ones((1, 2)), Tensor([[1.0, 2.0]]), None).tolist() == [[3.0]]
    for n in (1, 2, 3):
        conv = getattr(M, f"Conv{n}d")(1, 1, 3, padding=1)
        assert conv.calc_conv(F.ones((1, 1, *(3,) * n)), F.ones((1, 1, *(3,) * n)), None).numpy().max() == 3**n
    table = M.Embedding.from_pretrained(F.ones((3, 2)))
    gm = autodiff.GradManager().attach(table.parameters())
    with gm:
        y = table(Tensor([0])) + Tensor([0.0, 1.0])
    assert table.freeze and y.tolist() == [[1.0, 2.0]] and not M.Embedding.from_pretrained(F.ones((3, 2)), freeze=False).freeze
    with pytest.raises(ValueError, match="a table"):
        M.Embedding.from_pretrained(F.ones(3))


def test_initialisers():
    x = Tensor(np.ones((10, 4), "f4"))
    M.init.sparse_(x, 0.25)
    assert ((x.numpy() == 0).sum(0) == 3).all() and 0 < np.abs(x.numpy()).max() < 0.1
    for shape, groups in (((4, 2, 3), 2), ((2, 3, 3, 3), 1), ((3, 3, 1, 1, 3), 1)):
        f = Tensor(np.ones(shape, "f4"))
        M.init.dirac_(f, groups)
        want = np.zeros(shape, "f4")
        for i in range(min(shape[0] // groups, shape[1])):
            for g in range(groups):
                want[(g * (shape[0] // groups) + i, i, *(k // 2 for k in shape[2:]))] = 1
        assert np.array_equal(f.numpy(), want)
    for bad in (lambda: M.init.dirac_(x), lambda: M.init.sparse_(F.ones(3), 0.5)):
        with pytest.raises(ValueError, match="got shape"):
            bad()


def test_schedulers_stand_where_pytorch_has_them():
    for name in ("OneCycleLR", "CyclicLR", "ReduceLROnPlateau", "SequentialLR", "ChainedScheduler", "StepLR"):
        assert getattr(optimizer.lr_scheduler, name) is getattr(optimizer, name)
    near = (optimizer.lr_scheduler, "StepLr", "StepLR"), (random, "randperms", "randperm"), (linalg, "svdd", "svd")
    for module, name, words in (*near, (autodiff, "jacrev", "jacobian")):
        with pytest.raises(AttributeError, match=f"help: .*{words}"):
            getattr(module, name)


PADS = {"Zero": "constant", "Constant": "constant", "Reflection": "reflect", "Replication": "edge", "Circular": "wrap"}


@pytest.mark.parametrize("name, mode", PADS.items())
def test_negative_sides_of_a_padding_cut_off(name, mode):
    """As PyTorch does it: RWKV's shift by one step is ``ZeroPad2d((0, 0, 1, -1))``. Circular ones go round what is left."""
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    args = (5.0,) if name == "Constant" else ()
    how = {"constant_values": 5.0} if args else {}
    for sides in ((0, 0, 1, -1), (1, -2, 2, -1), (-1, -1, -1, 0), (-1,) * 4):
        cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, a, b in ((3, *sides[2:]), (4, *sides[:2])))
        widths = ((0, 0), (0, 0), *((max(a, 0), max(b, 0)) for a, b in (sides[2:], sides[:2])))
        if mode == "wrap":
            want = np.pad(x[:, :, cut[0], cut[1]], widths, mode)
        else:
            want = np.pad(x, widths, mode, **how)
            h, w = want.shape[2:]
            want = want[:, :, max(-sides[2], 0) : h - max(-sides[3], 0), max(-sides[0], 0) : w - max(-sides[1], 0)]
        np.testing.assert_array_equal(getattr(M, f"{name}Pad2d")(sides if len(set(sides)) > 1 else sides[0], *args)(Tensor(x)).numpy(), want)
