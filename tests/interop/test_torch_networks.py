"""PyTorch's modules and exported programs as Tengen's: names, training, shapes that stay open, control flow, and what is refused."""

import copy
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import tengen
from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, DTypeError, FileFormatError, ShapeError, TengenError
from tengen.interop.torch import from_torch, load_program, to_module, to_torch
from tengen.interop.torch.load import decomposed, quiet
from tengen.interop.torch.ops import OPS
from tengen.optimizer import SGD

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
BATCH = torch.export.Dim("batch", max=512)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=2)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


class Net(nn.Module):
    """Nested modules, tied weights, buffers of all kinds, a reshape by the batch."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, stride=2)
        self.layers = nn.ModuleList([Block(4), Block(4)])
        self.head = nn.Linear(16, 5)
        self.twin = nn.Linear(16, 5)
        self.twin.weight = self.head.weight
        self.drop = nn.Dropout(0.0)
        self.register_buffer("scale", torch.full((1,), 0.5))
        self.register_buffer("hidden", torch.full((1,), 2.0), persistent=False)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        x = nn.functional.adaptive_avg_pool2d(x, 2).reshape(x.shape[0], -1)
        return self.head(self.drop(x)) * self.scale + self.twin(x) * self.hidden


@pytest.fixture(scope="module")
def pair():
    torch.manual_seed(0)
    module = Net()
    return module, to_module(module, (torch.randn(2, 3, 10, 10),), dynamic_shapes=({0: BATCH},))


def image(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 3, 10, 10)).astype(np.float32)


def close(have, want, tolerance=2e-5):
    want = want.detach().numpy()
    np.testing.assert_allclose(have.numpy(), want, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(want).max())))


def test_names_and_values_are_pytorchs(pair):
    module, net = pair
    state = module.state_dict()
    assert list(net.state_dict()) == list(state)  # in PyTorch's order, tied weights twice
    assert all((net.state_dict()[k] == v.numpy()).all() for k, v in state.items())
    assert {n for n, _ in net.named_buffers()} == {n for n, _ in module.named_buffers()}
    tied = {"head.weight", "twin.weight"}
    assert {n for n, _ in net.named_parameters()} | tied == {n for n, _ in module.named_parameters()} | tied
    assert net.twin.weight is net.head.weight and net.training
    again = copy.deepcopy(module)
    again.load_state_dict(to_torch(net.state_dict()))  # and back
    changed = {k: v + 1 for k, v in net.state_dict().items()}
    other = copy.deepcopy(net)
    other.load_state_dict(changed)
    assert all((other.state_dict()[k] == v).all() for k, v in changed.items())
    other.load_state_dict(from_torch(state))
    assert all((other.state_dict()[k] == v.numpy()).all() for k, v in state.items())
    with pytest.raises(KeyError, match="missing: head.bias"):
        other.load_state_dict({k: v for k, v in changed.items() if k != "head.bias"})


def test_training_steps_beside_pytorch(pair):
    """Three steps of SGD in training mode: losses, all weights, the running statistics, then evaluation; traced with equal bits."""
    module, net = copy.deepcopy(pair[0]).train(), copy.deepcopy(pair[1]).train()
    twin = copy.deepcopy(net)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

    def step_of(net):
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            with gm:
                y = net(x)
                loss = (y * y).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        return step

    step, traced = step_of(net), trace(step_of(twin))
    for i in range(3):
        x = image(4, i)
        optimizer.zero_grad()
        loss = (module(torch.from_numpy(x)) ** 2).mean()
        loss.backward()
        optimizer.step()
        mine = step(Tensor(x))
        close(mine, loss)
        assert traced(Tensor(x)).numpy().tobytes() == mine.numpy().tobytes()
    for name, want in module.state_dict().items():
        close(Tensor(net.state_dict()[name]), want)
    assert net.layers.__dict__["0"].norm.num_batches_tracked.item() == 3
    x = image(3, 9)
    close(net.eval()(Tensor(x)), module.eval()(torch.from_numpy(x)))
    assert twin.eval()(Tensor(x)).numpy().tobytes() == net(Tensor(x)).numpy().tobytes()


def test_one_tensor_is_the_only_argument():
    """Its rows are not the arguments."""
    layer, x = nn.Linear(3, 2), torch.ones(4, 3)
    assert to_module(layer, x)(from_torch(x)).numpy().tobytes() == to_module(layer, (x,))(from_torch(x)).numpy().tobytes()


def test_dropout_is_tengens_and_drops_in_training_alone():
    net = to_module(nn.Dropout(0.25), (torch.ones(40, 50),))
    ones = np.ones((40, 50), np.float32)
    tengen.random.seed(3)
    first = net(ones).numpy()
    tengen.random.seed(3)
    assert net(ones).numpy().tobytes() == first.tobytes()
    assert set(np.unique(first)) == {0.0, np.float32(1 / 0.75)} and 0.15 < (first == 0).mean() < 0.35
    assert (net.eval()(ones).numpy() == 1).all()


def test_open_extents_stay_open_and_ship(pair, tmp_path):
    """One traced program and one file for every batch, with the eager bits."""
    module, net = pair[0].eval(), copy.deepcopy(pair[1]).eval()
    run = trace(net, dynamic_axes={0: "batch"})
    run(Tensor(image(2)))
    run.dump(tmp_path / "net.tgn", arg_names=["x"], output_names=["y"])
    loaded = tengen.load_graph(tmp_path / "net.tgn")
    assert str(loaded.inputs[0]) == "x: f32[batch,3,10,10]"
    for n in (1, 5):
        x = image(n, n)
        y = net(x).numpy()
        close(Tensor(y), module(torch.from_numpy(x)))
        assert loaded(x=x).numpy().tobytes() == y.tobytes() == run(Tensor(x)).numpy().tobytes()
    module.train()


def test_arguments_that_do_not_fit_are_refused(pair):
    net = pair[1]
    with pytest.raises(
        ShapeError, match=r"must have the shape \(s\w+, 3, 10, 10\), got 9 along axis 2; help: export it with dynamic_shapes"
    ):
        net(np.zeros((2, 3, 9, 10), np.float32))
    with pytest.raises(ShapeError, match=r"got s\w+ = 513 along axis 0; the network was exported for 0 to 512"):
        net(np.zeros((513, 3, 10, 10), np.float32))
    with pytest.raises(ShapeError, match="must have 4 axes"):
        net(np.zeros((3, 10, 10), np.float32))
    with pytest.raises(DTypeError, match="must be float32, as when it was exported; got float64"):
        net(np.zeros((2, 3, 10, 10)))
    with pytest.raises(ArgumentError, match="the arguments must hold 1 values"):
        net()
    with pytest.raises(ArgumentError, match="the arguments must hold 1 values, as when the network was exported; got 2"):
        net(image(1), image(1))
    with pytest.raises(ArgumentError, match=r"must be a tensor float32 \(s\w+, 3, 10, 10\), got a list"):
        net([1.0])
    with pytest.raises(ArgumentError, match=r"got a Tensor of PyTorch's; help: from_torch\(x\)"):
        net(torch.zeros(1, 3, 10, 10))


class Nest(nn.Module):
    def forward(self, x, pair, *, k=2, mask=None):
        return {"sum": x + pair["a"] * k, "both": (pair["b"].argmax(0), x if mask is None else x.masked_fill(mask, 0.0))}


def test_nests_of_arguments_and_results():
    x, a, b, mask = torch.randn(3), torch.randn(3), torch.randn(4, 3), torch.tensor([True, False, True])
    args, kwargs = (x, {"a": a, "b": b}), {"k": 3, "mask": mask}
    net = to_module(Nest(), args, kwargs)
    want, have = Nest()(*args, **kwargs), net(*from_torch(args), **from_torch(kwargs))
    assert list(have) == ["sum", "both"] and isinstance(have["both"], tuple)
    close(have["sum"], want["sum"])
    assert have["both"][0].numpy() == pytest.approx(want["both"][0].numpy()) and have["both"][0].dtype == "int64"
    close(have["both"][1], want["both"][1])
    with pytest.raises(ArgumentError, match="the argument k is 4, and the network was exported for 3 alone"):
        net(*from_torch(args), k=4, mask=from_torch(mask))


class Pairs(nn.Module):
    def forward(self, x, y):
        return torch.cat([x, y[::2]]).sum(0) + y.shape[0]


def test_extents_that_follow_from_others():
    """A traced program for all of them; what does not follow is refused."""
    b = torch.export.Dim("b", min=2, max=64)
    net = to_module(Pairs(), (torch.ones(4, 3), torch.ones(8, 3)), dynamic_shapes=({0: b}, {0: 2 * b}), training=False)
    run, ones = trace(net), lambda n: Tensor(np.ones((n, 3), np.float32))
    for n in (5, 6, 7):
        assert run(ones(n), ones(2 * n)).tolist() == net(ones(n), ones(2 * n)).tolist() == [4.0 * n] * 3
    with pytest.raises(ShapeError, match=r"must have the shape \(2\*s\w+, 3\), got 9 along axis 0"):
        net(ones(5), ones(9))
    with pytest.raises(ShapeError, match=r"has s\w+ = 4 along axis 0; another argument has 5"):
        net(ones(5), ones(8))


def partly(x):
    """A branch with a part that has no gradient."""
    with torch.no_grad():
        z = x * 5
    return x * 2 + z


class Control(nn.Module):
    def forward(self, x):
        y = torch.cond(x.sum() > 0, partly, lambda x: x - 1, (x,))
        with torch.no_grad():
            z = y * 3
        return y, z + (x * 7).detach()


def test_branches_are_regions_and_no_grad_has_no_gradient():
    net = to_module(Control(), (torch.ones(3),), training=False)
    run = trace(net)
    for v in (1.0, -1.0):
        x = torch.full((3,), v)
        for have in (net(from_torch(x)), run(from_torch(x)), run(from_torch(x))):
            for h, w in zip(have, Control()(x)):
                close(h, w)
    slope = tengen.autodiff.grad(lambda x: net(x)[1].sum() + net(x)[0].sum())(Tensor(np.ones(3, np.float32)))
    assert slope.tolist() == [2.0] * 3


class Loop(nn.Module):
    def forward(self, i, x):
        return torch._higher_order_ops.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (i, x))


def test_loops():
    args = (torch.tensor(1), torch.ones(2))
    net = to_module(Loop(), args, training=False)
    for have in (net(*from_torch(args)), trace(net)(*from_torch(args))):
        assert have[0].item() == 5 and have[1].tolist() == [1.5**4] * 2


class Scan(nn.Module):
    def forward(self, init, xs):
        return torch._higher_order_ops.scan(lambda c, x: (c + x, c * x), init, xs, dim=0)


def test_scans():
    args = (torch.ones(2), torch.arange(6.0).reshape(3, 2))
    net, want = to_module(Scan(), args, training=False), Scan()(*args)
    for have in (net(*from_torch(args)), trace(net)(*from_torch(args))):
        for h, w in zip(have, want):
            close(h, w)


class Foreign(nn.Module):
    def forward(self, x):
        a = torch.ops.aten._standard_gamma_grad(x, x)
        return a + torch.hash_tensor(x).to(x.dtype)


class Solver(nn.Module):
    def forward(self, x):
        a = x @ x.mT + torch.eye(3, dtype=x.dtype)
        return torch.linalg.solve(a, x), torch.linalg.inv(a), torch.linalg.cholesky(a), torch.linalg.slogdet(a)[1], torch.linalg.svdvals(x)


def test_linear_algebra():
    """What checks whether it succeeded is in an order, by tokens, in PyTorch's programs; where it failed is 0, as an error is raised
    else. What stands beside results for PyTorch's own gradients is not told."""
    x = torch.randn(2, 3, 3, dtype=torch.float64)
    net = to_module(Solver(), (x,), training=False)
    for have in (net(from_torch(x)), trace(net)(from_torch(x))):
        for h, w in zip(have, Solver()(x), strict=True):
            close(h, w, 1e-9)

    class Told(nn.Module):
        def forward(self, x):
            return torch.linalg.inv_ex(x).info + 1

    assert to_module(Told(), (x,), training=False)(from_torch(x)).tolist() == [1, 1]

    class Beside(nn.Module):
        def forward(self, x):
            return torch.ops.aten._linalg_det(x)[1] + 1

    with pytest.raises(TypeError) as e:
        to_module(Beside(), (x,), training=False)(from_torch(x))
    assert any("_linalg_det(x)[1] + 1" in n for n in e.value.__notes__)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_are_not_written_out(kind):
    """A layer stays one operator, trains, and has the eager bits in a trace."""
    torch.manual_seed(3)
    module, x = kind(3, 4, bidirectional=True), torch.randn(5, 2, 3)
    with quiet():
        program = decomposed(torch.export.export(module, (x,)))
    calls = [n for n in program.graph.nodes if n.op == "call_function"]
    assert len([n for n in calls if str(n.target).endswith(".input")]) == 1 and len(calls) < 8
    net = to_module(module, (x,), training=False)
    have, run = net(from_torch(x)), trace(net)
    close(have[0], module(x)[0])
    for _ in range(2):
        assert run(from_torch(x))[0].numpy().tobytes() == have[0].numpy().tobytes()
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward((net(from_torch(x))[0] ** 2).sum())
    module(x)[0].square().sum().backward()
    found = dict(net.named_parameters())
    for name, p in module.named_parameters():
        close(found[name].grad, p.grad, 1e-4)


def test_unknown_ops_are_told_at_once_with_the_users_lines():
    with pytest.raises(ArgumentError) as e:
        to_module(Foreign(), (torch.eye(3),))
    text = str(e.value)
    assert "aten._standard_gamma_grad" in text and "aten.hash_tensor" in text
    assert "nodes of the PyTorch program have no meaning here" in text
    assert text.count("test_torch_networks.py") >= 2 and "torch.hash_tensor(x)" in text


class Graph(nn.Module):
    """A layer of a graph network: the edges as a sparse matrix, which is a buffer, an argument or made inside, or as lists."""

    def __init__(self, edges=None):
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.register_buffer("edges", edges)

    def forward(self, x, *given):
        x = self.inner(x)
        if len(given) == 2:
            rows, columns = given
            return torch.zeros_like(x).index_add(0, rows, x[columns])
        return (given[0] if given else self.edges if self.edges is not None else torch.eye(4).to_sparse()) @ x


def test_sparse_tensors_are_errors_that_say_what_to_do():
    x, edges = torch.randn(4, 3), torch.tensor([[0, 2, 2], [1, 3, 0]])
    sparse = torch.sparse_coo_tensor(edges, torch.ones(3), (4, 4), check_invariants=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls its CSR tensors a trial
        csr = sparse.to_sparse_csr()
    for module, args, words in (
        (Graph(sparse), (x,), r"edges \(torch.sparse_coo\): sparse tensors have no meaning here; help: keep the tensor dense"),
        (Graph(), (x, sparse), r"argument 1 \(torch.sparse_coo\): sparse"), (Graph(), (x, csr), r"argument 1 \(torch.sparse_csr\): sparse"),
        (Graph(), (x,), "(?s)aten._to_sparse.*sparse tensors have no meaning here; help: keep"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=words):
            to_module(module, args)
    lists = Graph()
    close(to_module(lists, (x, *edges), training=False)(*from_torch((x, *edges))), sparse @ lists.inner(x))  # what the help says


WEIGHTED = {"reduction": "sum", "ignore_index": 3, "weight": torch.tensor([0.5, 0.25, 1.0, 2.0, 0.75])}


@pytest.mark.parametrize("given", [{}, {"reduction": "none"}, WEIGHTED], ids=["mean", "none", "weighted"])
def test_a_linear_layer_and_its_loss_in_one(given):
    """PyTorch computes it in pieces by an operator of its own."""
    if not hasattr(nn, "LinearCrossEntropyOptions"):
        pytest.skip("this PyTorch has no linear_cross_entropy")
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2, allow_retain_graph=True)

    class Head(nn.Linear):
        def forward(self, x, y):
            return nn.functional.linear_cross_entropy(x, self.weight, y, linear_bias=self.bias, options=options, **given)

    module, args = Head(4, 5), (torch.randn(6, 4), torch.tensor([3, 0, 4, 3, 2, 1]))
    net = to_module(module, args)
    gm = GradManager().attach(net.parameters())
    with gm:
        loss = net(*from_torch(args))
        gm.backward((loss**2).sum())
    want = module(*args)
    close(loss, want)
    want.square().sum().backward()
    close(net.weight.grad, module.weight.grad)
    close(net.bias.grad, module.bias.grad)


def test_programs_of_torch_export():
    """Any program, decomposed already or not; it runs in the mode that it was exported in."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)).eval()
    x = torch.randn(3, 4)
    program = torch.export.export(module, (x,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's, of itself
        plain = program.run_decompositions({})
    for p in (program, plain):
        net = load_program(p)
        close(net(from_torch(x)), module(x))
        assert list(net.state_dict()) == list(module.state_dict())
        net.train()
        close(net(from_torch(x)), module(x))
    module[0].weight.requires_grad_(False)
    net = to_module(module, (x,), training=False)
    assert "0.weight" in dict(net.named_buffers()) and "0.bias" in dict(net.named_parameters())
    with pytest.raises(ArgumentError, match="exported for evaluation alone"):
        net.train()(from_torch(x))
    with pytest.raises(ArgumentError, match="takes an nn.Module, got a ExportedProgram"):
        to_module(program)
    with pytest.raises(ArgumentError, match="takes an ExportedProgram, got a Sequential"):
        load_program(module)


def test_pickles_are_not_read_and_the_line_that_is_told_converts_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Evil:
        def __reduce__(self):
            return (os.mkdir, ("harm",))

    torch.save({"weight": Evil()}, "evil.pt")
    for read in (load_program, to_module, from_torch):
        with pytest.raises(FileFormatError, match="pickles, which may run code"):
            read("evil.pt")
    with pytest.raises(FileFormatError, match=r"load_program\(torch.export.load\('net.pt2'\)\)"):
        load_program("net.pt2")
    assert not os.path.exists("harm")
    weights = nn.Linear(3, 2).state_dict()
    torch.save(weights, "old.pt", _use_new_zipfile_serialization=False)
    torch.save(weights, "net.pt")
    with pytest.raises(FileFormatError) as e:
        load_program("net.pt")
    for read in (tengen.load, tengen.load_graph):  # whatever it is called
        with pytest.raises(FileFormatError, match="a pickle, which is not read here; help: convert a state dict once\npython "):
            read("net.pt")
        with pytest.raises(FileFormatError, match="a pickle, which is not read here"):
            read("old.pt")
    line = str(e.value).splitlines()[-1]
    assert line.startswith("python ")
    subprocess.run(
        line.replace("python", sys.executable, 1), shell=True, check=True, env={**os.environ, "PYTHONWARNINGS": "ignore"}
    )
    found = tengen.load("net.safetensors")
    assert found.keys() == weights.keys() and all((np.asarray(found[k]) == v.numpy()).all() for k, v in weights.items())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(3, 4, num_layers=2, bidirectional=True), nn.GRU(8, 5, batch_first=True)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])


def attention():
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@pytest.mark.parametrize("make, shape", [(Recurrent, (5, 2, 3)), (attention, (2, 4, 8))], ids=["recurrent", "transformer"])
def test_layers_and_their_gradients(make, shape):
    """In float64, so that nothing but the meaning decides."""
    torch.manual_seed(2)
    module, x = make().double(), torch.randn(shape, dtype=torch.float64, requires_grad=True)
    net = to_module(module, (x,), training=False)
    want = module.eval()(x)
    want = want[0] if isinstance(want, tuple) else want
    weight = torch.randn_like(want)
    (want * weight).sum().backward()
    mine = Tensor(x.detach().numpy())
    gm = GradManager().attach([mine, *net.parameters()])
    with gm:
        have = net(mine)
        have = have[0] if isinstance(have, tuple) else have
        gm.backward((have * from_torch(weight)).sum())
    close(have, want, 1e-12)
    close(mine.grad, x.grad, 1e-11)
    found = dict(net.named_parameters())
    for name, p in module.named_parameters():
        close(found[name].grad, p.grad, 1e-11)


def test_roi_align_beside_torchvisions_definition():
    roi = pytest.importorskip("torchvision.ops.roi_align", reason="torchvision is not installed")
    x = torch.randn(2, 3, 12, 10, dtype=torch.float64)
    boxes = torch.tensor(
        [[0.0, 1.0, 2.0, 7.5, 9.0], [1.0, 0.0, 0.0, 3.0, 11.0], [0.0, 4.0, 4.0, 5.0, 5.0]], dtype=torch.float64
    )
    for samples, aligned in ((2, False), (2, True), (-1, True)):
        want = roi._roi_align.__wrapped__(x, boxes, 0.5, 3, 2, samples, aligned)
        have = OPS["torchvision.roi_align"](from_torch(x), from_torch(boxes), 0.5, 3, 2, samples, aligned)
        close(have, want, 1e-9)


def test_resnet_has_the_kernels_of_the_zoos():
    """An imported network becomes the same nodes as the zoo's, so the same kernels: no copies, no shapes left over."""
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    from recorded import graph_of

    net = to_module(models.resnet18(weights=None).eval(), (torch.zeros(1, 3, 64, 64),), training=False)
    x = Tensor(np.zeros((1, 3, 64, 64), np.float32))
    mine, zoos = graph_of(net, x), graph_of(tengen.models.resnet18().eval(), x)
    count = lambda g, op: sum(n.op == op for n in g.nodes)
    for op in ("conv", "matmul", "max_pool", "copy", "mean"):
        assert count(mine, op) == count(zoos, op), op


def test_errors_name_the_node_and_the_line():
    class Wrong(nn.Module):
        def forward(self, x, i):
            return x[i]

    net = to_module(Wrong(), (torch.zeros(3), torch.tensor([0])))
    with pytest.raises((TengenError, IndexError)) as e:
        net(np.zeros(3, np.float32), np.array([7]))
    assert any("aten.index.Tensor" in n and "return x[i]" in n for n in e.value.__notes__)
