"""Open extents: one recording and one program for every batch, with the bits of the program for each.

Functions are run at each batch with the axis open, traced for their shapes, and eagerly.
"""

import numpy as np
import pytest
from exhaustive import but

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, autodiff, load_graph, random, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, ConfigError, ShapeError, TraceError
from tengen.codegen import llvm
from tengen.compiler import building
from tengen.deploy.compile import compile_model
from tengen.deploy.verify import verify
from tengen.optimizer import SGD

BATCHES = (2, 1, 3, 17)
BATCH = {0: "batch"}


def floats(n, *shape, seed=0):
    return Tensor(np.random.default_rng(seed + n).normal(size=(n, *shape)).astype(np.float32))


def integers(n, *shape, below=10, dtype=np.int32):
    return Tensor(np.random.default_rng(n).integers(0, below, (n, *shape)).astype(dtype))


def bits(x):
    return [(t.shape, t.numpy().tobytes()) for t in (x if isinstance(x, (tuple, list)) else (x,))]


class Small(M.Module):
    """A residual network in small: every kind of convolution, batch norm, pooling."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn = M.Conv2d(3, 16, 3, padding=1), M.BatchNorm2d(16)
        self.deep, self.wide = M.Conv2d(16, 16, 3, padding=1, groups=16), M.Conv2d(16, 40, 1)
        self.out = M.Linear(40, 10)

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))
        x = F.max_pool2d(self.wide(F.relu(self.deep(x)) + x), 2)
        return self.out(F.dropout(x.mean((2, 3)), 0.3, self.training))


class Sequence(M.Module):
    """Embedding, attention with a causal mask, an LSTM."""

    def __init__(self):
        super().__init__()
        self.embed = M.Embedding(11, 16)
        self.attention, self.lstm, self.out = M.MultiHeadAttention(16, 2, is_causal=True), M.LSTM(16, 16), M.Linear(16, 10)

    def forward(self, x):
        y = self.embed(x)
        y = y + self.attention(y, y, y)[0]
        y = self.lstm(y.transpose(1, 0, 2))[0]
        return self.out(y[-1])


NETWORKS = {
    "mlp": (lambda: M.Sequential(M.Linear(20, 33), M.ReLU(), M.Linear(33, 10)), lambda n: floats(n, 20)),
    "small": (Small, lambda n: floats(n, 3, 12, 12)),
    "gpt": (lambda: tengen.models.create("gpt", layers=1, width=32, heads=2, vocabulary=10, context=8), lambda n: integers(n, 6)),
    "lstm": (lambda: tengen.models.create("lstm", vocabulary=10, num_classes=10), lambda n: integers(n, 5)),
}


def stepping(name, wrap):
    """What two runs at each batch give, and the parameters afterwards."""
    random.seed(5)
    make, data = NETWORKS[name]
    net = make()
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.05, momentum=0.9)

    def step(x, label):
        with gm:
            y = net(x)
            loss = F.loss.cross_entropy(y.reshape(-1, y.shape[-1]), label.reshape(-1))
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    run = wrap(step)
    label = (lambda n: integers(n, 6, below=9)) if name == "gpt" else lambda n: integers(n, below=9)
    losses = [bits(run(data(n), label(n))) for _ in range(2) for n in BATCHES]
    return losses, [bits(p) for p in net.parameters()] + [bits(b) for b in net.buffers()], run


@but(every=2)
@pytest.mark.parametrize("name", NETWORKS)
def test_training_steps(name):
    one = stepping(name, lambda f: trace(f, dynamic_axes=BATCH))
    assert one[:2] == stepping(name, lambda f: f)[:2]
    assert len(one[2].stats()) == 1 and one[2]._last.run.program is not None


@but(every=2)
@pytest.mark.parametrize("name", NETWORKS)
def test_inference_with_any_threads(name):
    make, data = NETWORKS[name]
    net = make().eval()
    run = trace(net, dynamic_axes=BATCH)
    for n in BATCHES:
        wanted = bits(trace(net)(data(n)))
        assert wanted == bits(net(data(n)))
        for some in (1, 2, 3):
            tengen.set_threads(some)
            assert bits(run(data(n))) == wanted
    assert len(run.stats()) == 1


def test_nothing_is_compiled_for_another_batch(monkeypatch):
    made = []
    monkeypatch.setattr(building, "emit_module", lambda *a: made.append(a) or llvm.emit_module(*a))
    net = Small().eval()
    run = trace(net, dynamic_axes=BATCH, example_input=floats(4, 3, 12, 12))
    once, kernels = len(made), run._last.run.kernels
    results = [run(floats(n, 3, 12, 12)) for n in (1, 5, 64, 4)]
    assert [r.shape for r in results] == [(n, 10) for n in (1, 5, 64, 4)]
    assert len(made) == once and run._last.run.kernels == kernels


def test_temporaries_are_placed_for_each_batch():
    net = NETWORKS["small"][0]().eval()
    run = trace(net, dynamic_axes=BATCH, example_input=floats(2, 3, 12, 12))
    for n in (1, 9):
        alone = trace(net, example_input=floats(n, 3, 12, 12))
        assert run._last.run.program.arena_bytes([n]) <= 1.05 * alone._last.run.program.arena_bytes([]) + 4096


TABLE = floats(20, 3)
FUNCTIONS = {
    "mean over the batch": lambda x: x.mean(0) + (x / x.shape[0]).sum(0),
    "the number as a factor": lambda x: x.shape[0] * x - x.shape[0],
    "reshape by the extent": lambda x: x.reshape(x.shape[0] * 2, -1),
    "reshape by -1": lambda x: x.reshape(-1, 2, 2).reshape(-1),
    "joining": lambda x: F.concat([x, F.ones((3, 4)), x]).sum(0),
    "made in the shape": lambda x: F.zeros((x.shape[0], 2)) + F.arange(x.shape[0]).reshape(-1, 1),
    "repeated": lambda x: (F.tile(x[:1], (x.shape[0], 2)), F.repeat(x[0], x.shape[0]), F.repeat(x[:1], x.shape[0] + 1, axis=0)),
    "random": lambda x: random.uniform(size=(x.shape[0], 3)),
    "products over the batch": lambda x: (x @ x.T, x.T @ x),
    "sorted along the batch": lambda x: (F.sort(x, axis=0)[0], F.argmax(x, 0), F.cumsum(x, 0)),
    "slices of others": lambda x: (TABLE[: x.shape[0]] + x.sum(1, True), TABLE[x.shape[0] :], TABLE[1 : x.shape[0] + 1, 1]),
    "slices": lambda x: (x[1:], x[:-1] * 2, x[: x.shape[0]], x[::2], x[x.shape[0] - 1 :].sum(0)),
    "row": lambda x: (x[-1], x[0], F.stack([x, x])),
    "variance": lambda x: F.softmax(x, 0) * x.var(0),
}


@but(every=2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_depends_on_the_extent(name):
    f = FUNCTIONS[name]
    run = trace(f, dynamic_axes=BATCH)
    for n in BATCHES:
        results = []
        for g in (run, trace(f), f):
            random.seed(1)
            results.append(bits(g(floats(n, 4))))
        assert results[0] == results[1] == results[2], n
    assert len(run.stats()) == 1


LABELS = Tensor(np.array([[1], [0]], np.int64))
OF_SOME_EXTENTS = {  # (function, numbers that it serves, one at which a run is refused, or None)
    "parts between positions": (lambda x: F.split(x, [1, -1], 0), (6, 3, 17), 1),
    "rolled back": (lambda x: F.roll(x, -2, 0), (6, 3, 2, 17), 1),
    "rolled flat": (lambda x: F.roll(x, 3), (6, 1, 17), None),
    "stacked": (lambda x: F.stack([x, x[: x.shape[0] // 2 * 2] * 2]), (6, 2, 8), 5),
    "added": (lambda x: x + x[: x.shape[0] // 2 * 2], (6, 2, 8), 5),
    "products": (lambda x: x.T @ x[: x.shape[0] // 2 * 2], (6, 2, 8), 5),
    "enlarged by a fraction": (lambda x: F.vision.interpolate(x.reshape(1, 1, -1, 4), scale_factor=1.5), (6, 1, 5), None),
    "windows with gaps": (lambda x: F.max_pool2d(x.reshape(1, 1, -1, 4), 2, 3, 1, 2, ceil_mode=True), (6, 3, 17), None),
    "places of maxima": (lambda x: F.max_pool2d(x.reshape(1, 1, -1, 4), 2, 2, 0, 1, True, True), (6, 3, 17), None),
    "sums of windows": (lambda x: F.avg_pool2d(x.reshape(1, 1, -1, 4), 2, 2, ceil_mode=True, divisor_override=3), (6, 3, 17), None),
    "rows of a table": (lambda x: x[LABELS] + F.gather(x, 0, LABELS), (6, 2, 17), None),
    "labels": (lambda x: F.loss.cross_entropy(x.T[:2], LABELS[:, 0]), (6, 2, 17), None),
    "a row of each": (lambda x: F.one_hot(F.arange(x.shape[0]).astype("int32"), x.shape[0]), (6, 1, 17), None),
    "the last row": (lambda x: x[x.shape[0] - 1] + x[x.shape[0] // 2, 1:2] + x[-1, LABELS[0]][0], (6, 1, 17), None),
    "a row of few": (lambda x: x[x.shape[0] - 3], (6, 3, 17), 2),
    "evenly spaced": (lambda x: F.linspace(0, 1, x.shape[0] + 1), (6, 1, 17), None),
}


@pytest.mark.parametrize("name", OF_SOME_EXTENTS)
def test_what_fits_some_extents(name):
    """Shapes that fit for some numbers are recorded for every number, and each run looks at its own."""
    f, numbers, refused = OF_SOME_EXTENTS[name]
    run = trace(f, dynamic_axes=BATCH)
    for n in numbers:
        assert bits(run(floats(n, 4))) == bits(f(floats(n, 4))), n
    if refused is not None:
        with pytest.raises(ShapeError, match=f"with batch = {refused}: .*test_dynamic.py:"):
            run(floats(refused, 4))
    assert len(run.stats()) == 1


PARTS = {  # (function, numbers, how many recordings serve them)
    "parts": (lambda x: F.split(x, 3, 0), (6, 3, 9, 7, 4, 11), 2),
    "even parts": (lambda x: F.tensor_split(x, 3), (6, 3, 9, 7, 4, 11, 2, 1, 0), 2),
    "few equal parts": (lambda x: x.chunk(3), (6, 9, 7, 5, 3), 1),
    "fewer parts": (lambda x: F.chunk(x, 3), (6, 4, 1, 7, 10), 3),
    "parts of a size": (lambda x: x.split(3), (6, 4, 5, 7, 2), 3),
    "parts of an open size": (lambda x: x.split(x.shape[0] // 2), (6, 4, 5, 7), 2),
    "a part and the rest": (lambda x: x.split([2, x.shape[0] - 2]), (6, 2, 5), 1),
    "gradients of parts": (lambda x: autodiff.grad(lambda v: sum((p * p * i).sum() for i, p in enumerate(F.split(v, 2))))(x), (6, 5, 4, 7), 2),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_an_open_extent(name):
    """How many parts there are, and whether they are equal, chooses among recordings; their extents stay open."""
    f, numbers, recordings = PARTS[name]
    run = trace(f, dynamic_axes=BATCH)
    for n in numbers:
        assert bits(run(floats(n, 4))) == bits(f(floats(n, 4))), n
    assert len(run.stats()) == recordings
    if name == "parts":
        with pytest.raises(ShapeError, match="2 elements of axis 0 cannot be cut in 3 parts"):
            f(floats(2, 4))
        with pytest.raises(ShapeError, match="cannot be cut in 3 parts"):
            run(floats(2, 4))


REFUSED = {
    "a Python number": (lambda x: x.reshape(int(x.shape[0]), 2, 2), TraceError, "extent batch has no value"),
    "the factors of it": (lambda x: tengen.fft.fft(x, axis=0), TraceError, "length batch of a Fourier.*a program for each: leave the axis out"),
    "a power of it": (lambda x: x * x.shape[0] ** -0.5, TraceError, r"the power batch \*\* -0.5"),
    "a float of it": (lambda x: x * (1 / x.shape[0]), TraceError, "the quotient 1 / batch"),
    "a float with it": (lambda x: x * (0.5 * x.shape[0]), TraceError, "so 0.5 cannot be combined"),
    "its length": (lambda x: x * len(x), TraceError, "has no value"),
    "a loop": (lambda x: sum(row.sum() for row in x), TraceError, "has no value"),
    "the example's number": (lambda x: x.reshape(3, 4), ShapeError, "with batch = 4: reshape.*16 elements do not fit"),
    "another tensor of its size": (lambda x: x + F.ones((3, 4)), TraceError, "axis -2 has extents batch and 3"),
    "a slice that turns": (lambda x: x[2::-1], ShapeError, "extent batch, .* known only when the program runs"),
    "a slice of another": (lambda x: TABLE[: x.shape[0] * 7], ShapeError, "with batch = 3: strided_slice.*has no 21 elements"),
    "a longer slice": (lambda x: x[:9], ShapeError, "with batch = 3: strided_slice.*has no 9 elements"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_stay_open_is_refused(name):
    f, error, message = REFUSED[name]
    with pytest.raises(error, match=message) as e:
        trace(f, dynamic_axes=BATCH)(floats(3, 4))
    assert "test_dynamic.py:" in str(e.value)


def test_enlarged_by_any_factor():
    """Extents are multiplied as floats are: 100 * 0.35 is 35.0, and 180 * 0.35 is 62.99...; a program serves those for which a quotient of
    integers is the same."""
    f = lambda x, factor: F.vision.interpolate(x.reshape(1, 1, -1, 4), scale_factor=(factor, 1), mode="nearest")
    for factor in (0.7, 0.35, 1.3, 2.2):
        run = trace(f, dynamic_axes={"x": {0: "rows"}})
        for n in (3, 20, 49, 88):
            assert bits(run(floats(n, 4), factor)) == bits(f(floats(n, 4), factor)), (factor, n)
        assert len(run.stats()) == 1
    for n, factor in ((90, 0.7), (180, 0.35)):
        with pytest.raises(TraceError, match=f"times {factor} depends on how floats are rounded, .* help: size="):
            trace(f, dynamic_axes={"x": {0: "rows"}})(floats(n, 4), factor)


@pytest.mark.parametrize("mode", ["average", "average_count_exclude_padding"])
def test_means_of_windows_behind_the_image(mode):
    """Whether the last window reaches behind the image is a condition, so that values and gradients have the bits of eager calls."""
    pool = lambda x: F.avg_pool2d(x.reshape(1, 1, -1, 4), 3, 2, 1, mode, ceil_mode=True)
    f = lambda x: (pool(x), autodiff.grad(lambda v: (pool(v) ** 2).sum())(x))
    run = trace(f, dynamic_axes=BATCH)
    for n in (3, 4, 9, 8, 12):
        assert bits(run(floats(n, 4))) == bits(f(floats(n, 4))), n
    assert len(run.stats()) <= 2


def _ways(x):
    if x.shape == (3, 4):
        return x
    if x.shape[0] > 5 and x.shape[0] != 17:
        return x[:6].sum(0)
    return x * 2 if x.shape[0] % 2 else -x


def test_comparisons_choose_among_recordings(tmp_path):
    """Each recording serves the numbers for which Python code takes the same way, in the trace and in files."""
    run = trace(_ways, dynamic_axes=BATCH)
    for n in (3, 4, 9, 2, 8, 5, 1, 17):
        assert bits(run(floats(n, 4))) == bits(_ways(floats(n, 4))), n
    assert len(run.stats()) == run.stats().programs == 5
    few = next(s for s in run.stats() if s.extents == {"batch": 4})
    assert few.conditions[:2] == ("batch != 3", "batch <= 5") and few.cause == "numbers for which batch == 3 does not hold"
    run(floats(9, 4))
    run.dump(tmp_path / "many.tgn", arg_names=["x"])
    many = load_graph(tmp_path / "many.tgn")
    for n in (9, 6, 30):
        assert bits(many(floats(n, 4))) == bits(_ways(floats(n, 4)))
    with pytest.raises(ValueError, match="_ways was recorded for batch != 17 and does not serve other numbers"):
        many(floats(17, 4))
    assert len(run.stats()) == 5


def test_a_branch_of_extents_is_one_program(tmp_path):
    run = trace(lambda x: F.cond(x.shape[0] > 4, lambda x: x * 2, lambda x: -x, x), dynamic_axes=BATCH)
    run.trace(floats(3, 4)).dump(tmp_path / "m.tgn", arg_names=["x"])
    model = load_graph(tmp_path / "m.tgn")
    for n in (2, 9, 1, 5, 4):
        x = floats(n, 4)
        assert bits(run(x)) == bits(model(x)) == bits(x * 2 if n > 4 else -x)
    assert run.stats().programs == 1 and not run.stats()[0].conditions


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_quantiles_of_any_number(dtype):
    kinds = ("linear", "lower", "higher", "midpoint", "nearest")
    f = lambda x: [F.quantile(x, [0.3, 0.5, 0.0, 1.0, 1 / 3], 0, interpolation=kind) for kind in kinds] + [F.median(x)]
    run = trace(f, dynamic_axes=BATCH)
    for n in (5, 4, 1, 2, 13):
        a = floats(n, 3).numpy() * 10
        a[n // 2, 1], a[0, 2] = np.inf, np.nan if n == 13 else 0
        x = Tensor(a).astype(dtype)
        assert bits(run(x)) == bits(f(x)), n
    assert run.stats().programs == 1


def test_empty_batches():
    run = trace(lambda x: (F.relu(x) + 1, x.sum(0)), dynamic_axes=BATCH)
    assert [t.shape for t in run(floats(3, 4))] == [(3, 4), (4,)]
    y, total = run(floats(0, 4))
    assert y.shape == (0, 4) and total.tolist() == [0] * 4


def test_names_of_arguments():
    def f(data, mask, scale=1.0):
        return (data * scale, mask.sum(1))

    axes = {"data": {0: "batch"}, "mask": {0: "batch", 1: "tokens"}}
    run = trace(f, dynamic_axes=axes)
    for n, m in ((2, 3), (3, 2), (4, 4)):
        x, y = floats(n, 5), floats(n, m)
        assert bits(run(x, mask=y)) == bits(f(x, y))
        assert bits(run(x, y, scale=2.0)) == bits(f(x, y, 2.0))
    assert len(run.stats()) == 2  # a scale or none
    with pytest.raises(ShapeError, match="'batch' is 2 in tensor 0 of the arguments and 3 in tensor 1"):
        run(floats(2, 5), floats(3, 2))
    run(floats(2, 6), floats(2, 2))  # what is not named is recorded for itself
    assert len(run.stats()) == 3
    with pytest.raises(TypeError, match="dynamic_axes names 'x', the function has the parameters data, mask, scale"):
        trace(f, dynamic_axes={"x": {0: "batch"}})
    with pytest.raises(ValueError, match="cannot be called 'piece'"):
        trace(f, dynamic_axes={0: "piece"})
    with pytest.raises(ArgumentError, match=r"axes of one argument stand under its name, \{\"x\": \{0: \"batch\"\}\}"):
        trace(f, dynamic_axes={0: {0: "batch"}, 1: {0: "batch"}})  # arguments by their numbers
    with pytest.raises(ShapeError, match="has no axis 2"):
        trace(f, dynamic_axes={"data": {2: "batch"}})(floats(2, 5), floats(2, 2))


def test_axes_of_arguments_that_a_function_takes_by_any_name():
    """Such as the `forward` of networks that come from PyTorch."""

    def f(*args, **kwargs):
        return args[0] + kwargs["row"]

    run = trace(f, dynamic_axes={"args": {0: "batch", 1: "width"}, "row": {0: "width"}})
    for n, m in ((2, 3), (3, 2), (4, 4)):
        x, row = floats(n, m), floats(m)
        assert bits(run(x, row=row)) == bits(f(x, row=row))
    assert len(run.stats()) == 1
    with pytest.raises(ArgumentError, match="dynamic_axes names 'column', the call has the arguments args, row"):
        trace(f, dynamic_axes={"column": {0: "n"}})(floats(2, 3), row=floats(3))



def test_methods_and_nested_arguments():
    class Net(M.Module):
        @trace(dynamic_axes=BATCH)
        def forward(self, pair):
            return {"y": pair["a"] + pair["b"][0]}

    net = Net()
    for n in (2, 5):
        x = floats(n, 3)
        assert net({"a": x, "b": [x, Tensor(1.0)]})["y"].tolist() == (x + x).tolist()
    assert len(net.forward.stats()) == 1


def test_files_and_artifacts(tmp_path):
    net = Small().eval()
    run = trace(net, dynamic_axes=BATCH, example_input=floats(2, 3, 12, 12))
    run.dump(tmp_path / "m.tgn", arg_names=["image"], output_names=["scores"])
    model = load_graph(tmp_path / "m.tgn")
    assert repr(model.inputs + model.outputs) == "(image: f32[batch,3,12,12], scores: f32[batch,10])" and model.extents == ("batch",)
    for n in (*BATCHES, 0):
        x = floats(n, 3, 12, 12)
        assert bits(model(x)) == bits(net(x)) == bits(model.at(batch=n)(x))
    with pytest.raises(ShapeError, match=r"image: f32\[batch,3,12,12\] was given f32\[2,3,12,11\]"):
        model(floats(2, 3, 12, 11))
    with pytest.raises(ConfigError, match="open extents batch, it was given nothing"):
        compile_model(model, out_dir=tmp_path)
    made = compile_model(model, "native", tmp_path / "out", extents={"batch": 3})
    assert made.inputs[0].shape == (3, 3, 12, 12)
    assert verify(model, tmp_path / "out", runs=1).status in ("equal", "skipped")


def test_profiles_and_tuning():
    net = NETWORKS["mlp"][0]().eval()
    run = trace(net, dynamic_axes=BATCH)
    for n in (3, 5):
        wanted = bits(run(floats(n, 20)))
        with tengen.profile() as p:
            assert bits(run(floats(n, 20))) == wanted
        assert sum(row.calls for row in p.sorted("time")) >= 2
    with pytest.raises(ConfigError, match="has the open extents"):
        tengen.tune(run, seconds=0.1)


def test_a_program_for_each_batch_where_a_kernel_must_know(monkeypatch):
    """Nothing of Tengen's needs it today: a lowering that asks for the number gets a program for each."""
    from tengen.base.errors import Undecided
    from tengen.ops.define import lookup

    rule = lookup("sort").rules.lower

    def asks(lo, ins, outs, **attrs):
        if not isinstance(ins[0].shape[0], int):
            raise Undecided("how many")
        return rule(lo, ins, outs, **attrs)

    monkeypatch.setattr(lookup("sort").rules, "lower", asks)
    run = trace(lambda x: F.sort(x, axis=1)[0] + 1, dynamic_axes=BATCH)
    for n in (2, 3, 2):
        assert bits(run(floats(n, 7))) == bits(F.sort(floats(n, 7), axis=1)[0] + 1)
    assert len(run.stats()) == 1 and run._last.run.program is None and len(run._last.run._alone) == 2


@pytest.mark.parametrize("name", ["step", "step1", "own"])
def test_an_axis_may_have_any_name(name):
    """Kernels have integers of their own, for the number of an iteration among others, under names that a user may choose too."""
    net = M.LSTM(4, 8).eval()
    run = trace(lambda x: net(x)[0], dynamic_axes={0: name})
    for n in (3, 5):
        x = Tensor(np.random.default_rng(n).normal(size=(n, 2, 4)).astype(np.float32))
        assert run(x).numpy().tobytes() == net(x)[0].numpy().tobytes()
