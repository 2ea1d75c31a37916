"""What programs for MegEngine do with shapes, modules, managers and files beyond NumPy's and PyTorch's ways."""

import io
import operator

import numpy as np
import pytest

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Parameter, Tensor, random
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, GradientError, ShapeError
from tengen.data import transform as T

X = np.arange(6, dtype="f4").reshape(1, 2, 3)


def test_shapes():
    x = Tensor(X)
    assert F.broadcast_to(x, (1, None, 3)).shape == (1, 2, 3) and x.broadcast_to((Tensor(4), None, None, 3)).shape == (4, 1, 2, 3)
    for shape in ((None, 1, 2, 3), (None, None, None, None), (3, None)):
        with pytest.raises(ShapeError, match="None|broadcast"):
            F.broadcast_to(x, shape)
    two, three = Tensor([2]), Tensor([3])
    assert F.broadcast_to(x[:, :1], (two, two, three)).shape == (2, 2, 3) and x.reshape(two, three).shape == F.zeros((two, 3)).shape == (2, 3)
    for odd in (Tensor([2, 3]), Tensor([[2]]), [2]):
        with pytest.raises(ArgumentError, match="must be"):
            F.zeros((odd, 3))
    gm = GradManager().attach(x)
    with gm:
        gm.backward(F.broadcast_to(x, (4, None, 3)))
    assert x.grad.tolist() == np.full(X.shape, 4.0).tolist()
    assert x.transpose(0, "x", 2, 1).shape == x.transpose((0, "x", 2, 1)).shape == (1, 1, 3, 2)
    for n in ((3, 4), [3, 4], Tensor([3, 4]), np.array([3, 4])):
        assert F.eye(n, dtype="int32").tolist() == np.eye(3, 4).tolist()
    assert F.eye((3,), k=1).tolist() == F.eye(3, k=1).tolist() == np.eye(3, k=1).tolist() and F.eye(Tensor(2)).shape == (2, 2)
    for n, m in (((2, 3), 4), ((), None), ((1, 2, 3), None)):
        with pytest.raises(ShapeError, match="one or two extents"):
            F.eye(n, m)


def test_split_in_parts_that_are_not_equal():
    for n, parts in ((10, 4), (20, 3), (7, 4), (5, 5), (0, 2)):
        a = np.arange(2 * n, dtype="f4").reshape(2, n)
        assert [p.tolist() for p in F.split(Tensor(a), parts, 1)] == [p.tolist() for p in np.array_split(a, parts, 1)]
    assert [p.size for p in F.split(F.arange(6), [3, 3, 9])] == [3, 0, 3, 0]
    for cuts in ([3, 2, 5], [4, -4]):
        with pytest.raises(ValueError, match=r"the positions .* fall; help: positions at which"):
            F.split(F.arange(6), cuts)


def test_a_device_in_the_last_place():
    x = Tensor(X)
    for made in (F.copy(x, "cpu0"), F.concat([x], 0, "xpux"), F.stack([x], 0, tengen.get_default_device())[0]):
        assert made.tolist() == X.tolist()
    with pytest.raises(ValueError, match="no device 'cuda:0'"):
        F.copy(x, "cuda:0")
    for call in (lambda: F.copy(x, 3), lambda: F.copy(x, "cpu0", "cpu0"), lambda: F.copy(x, "cpu0", device="cpu0")):
        with pytest.raises(TypeError, match="takes 1 arguments|twice"):
            call()


def test_a_tuple_inside_of_a_key_is_a_list():
    a, x = X.copy(), Tensor(X)
    assert x[0, (1, 0)].tolist() == a[0, (1, 0)].tolist() and x[..., (0, 2)].tolist() == a[..., (0, 2)].tolist()
    assert x[0, 0, ()].shape == (0,) and x[0, ((0, 1), (1, 0))].shape == (2, 2, 3)
    a[0, (0, 1), 1] = x[0, (0, 1), 1] = 7
    assert x.tolist() == a.tolist()


def test_pixel_shuffle_of_more_axes():
    a = np.arange(2 * 3 * 8 * 2 * 3, dtype="f4").reshape(2, 3, 8, 2, 3)
    want = a.reshape(2, 3, 2, 2, 2, 2, 3).transpose(0, 1, 2, 5, 3, 6, 4).reshape(2, 3, 2, 4, 6)
    assert F.pixel_shuffle(Tensor(a), 2).tolist() == want.tolist() and F.pixel_shuffle(Tensor(a[0, 0]), 2).tolist() == want[0, 0].tolist()


def test_rows_in_random_order():
    x = Tensor(np.arange(40).reshape(20, 2))
    random.seed(3)
    y = random.permutation(x)
    random.seed(3)
    assert y.tolist() == x.numpy()[random.permutation(20).numpy()].tolist() != x.tolist() and y.dtype == x.dtype
    assert random.permutation(Tensor(5)).shape == (5,)


def test_managers_that_record_together():
    x = Tensor([1.0, 2.0])
    a, b, c = (GradManager().attach(x) for _ in range(3))
    with a | b | c as group:
        y = x * x
        for gm in group.managers:
            gm.backward(y)
    assert x.grad.tolist() == [6.0, 12.0] and all(gm.level is None for gm in (a, b, c))
    with pytest.raises(GradientError, match="records already"):
        with a | a:
            pass
    assert a.level is None
    with pytest.raises(TypeError):
        a | 3


def test_modules_with_their_parents():
    net = M.Sequential(M.Linear(2, 3), M.Sequential(M.ReLU()))
    assert list(net.modules(with_parent=True)) == [(net, None), (net[0], net), (net[1], net), (net[1][0], net[1])]
    assert [(n, p) for n, _, p in net.named_modules("a", with_parent=True)] == [("a", None), ("a.0", net), ("a.1", net), ("a.1.0", net[1])]


def test_modules_are_taken_out_of_a_sequential():
    net = M.Sequential(*(M.Linear(2, 2) for _ in range(5)))
    kept = net[0], net[4]
    del net[1]
    del net[1:3]
    assert list(net) == [*kept] and [n for n, _ in net.named_children()] == ["0", "4"] and len(net.state_dict()) == 4
    with pytest.raises(IndexError):
        del net[2]


def test_elementwise_names():
    x, y, z, w = (Tensor(np.random.default_rng(i).standard_normal(5).astype("f4")) for i in range(4))
    a, b, c, d = (t.numpy().astype("f8") for t in (x, y, z, w))
    for name, args, want in (
        ("FUSE_MUL_ADD3", (x, y, z), a * b + c), ("fuse_mul_add4", (x, y, z, w), a * b + c * d), ("FUSE_ADD_TANH", (x, y), np.tanh(a + b)),
        ("NEQ", (x, y), np.ones(5)), ("LOG_SUM_EXP", (x, y), np.logaddexp(a, b)), ("FUSE_ADD_RELU", (x, y), np.maximum(a + b, 0)),
    ):  # fmt: skip
        np.testing.assert_allclose(M.Elemwise(name)(*args).numpy(), want, rtol=1e-5, atol=1e-6)


def test_a_parameter_is_saved_as_one():
    file = io.BytesIO()
    tengen.save({"w": Parameter([1.0]), "b": Tensor([2.0]), "a": np.ones(1)}, file)
    for mmap in (False, True):
        loaded = tengen.load(io.BytesIO(file.getvalue()), mmap=mmap)
        assert [type(v) for v in loaded.values()] == [Parameter, Tensor, np.ndarray] and loaded["w"].tolist() == [1.0]


def test_an_item_that_no_transform_knows():
    sample = np.zeros((4, 6, 3)), np.array([[1.0, 0.0, 2.0, 3.0]])
    for error in (ValueError, NotImplementedError):
        with pytest.raises(error, match="'bboxes', which is none of image, coords, boxes"):
            T.RandomHorizontalFlip(prob=1, order=("image", "bboxes"))
    assert T.RandomHorizontalFlip(prob=1, order=("image", "boxes_category")).apply(sample)[1] is sample[1]

    class Shifted(T.VisionTransform):
        def _apply_image(self, image):
            return image

        def _apply_depth(self, depth):
            return depth + 1

    assert Shifted(order=("image", "depth")).apply(sample)[1].tolist() == [[2.0, 1.0, 3.0, 4.0]]


def test_modes_in_either_case():
    x = Tensor(np.random.default_rng(0).standard_normal((1, 1, 4, 4)).astype("f4"))
    for mode in ("average", "average_count_exclude_padding"):
        assert F.avg_pool2d(x, 3, 2, 1, mode.upper()).tolist() == F.avg_pool2d(x, 3, 2, 1, mode).tolist()
    y = F.ones((1, 2, 2, 3))
    assert F.vision.cvt_color(y, "rgb2gray").tolist() == F.vision.cvt_color(y, "RGB2GRAY").tolist()
    with pytest.raises(ShapeError, match="mode 'YCrCb2RGB' takes pictures"):
        F.vision.cvt_color(y.astype("uint8"), "ycrcb2rgb")
    assert F.loss.hinge_loss(x[0, 0], x[0, 0], "l2").item() == F.loss.hinge_loss(x[0, 0], x[0, 0], "L2").item()


def test_sequences_are_operands_on_either_side():
    x, a, row = Tensor(X[0] + 1), X[0].astype("f8") + 1, [1.0, 2.0, 3.0]
    for op in (operator.add, operator.sub, operator.mul, operator.truediv):
        for other in (row, tuple(row), [row] * 2):
            np.testing.assert_allclose(op(x, other).numpy(), op(a, np.array(other)), rtol=1e-6)
            np.testing.assert_allclose(op(other, x).numpy(), op(np.array(other), a), rtol=1e-6)
