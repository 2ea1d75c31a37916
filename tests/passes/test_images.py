"""Loops over images: nodes whose images do not depend on each other run some images at a time, and every bit stays."""

import uuid
from importlib.util import find_spec

import numpy as np
import pytest
from exhaustive import but

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, deploy, load_graph, trace
from tengen.autodiff import GradManager
from tengen.base.config import config
from tengen.codegen.targets import Target
from tengen.compiler.arena import Temporaries
from tengen.ir.text import parse_graph
from tengen.kernels.schedule import Schedules
from tengen.kernels.steps import Loop, leaves
from tengen.loops.lang import as_int
from tengen.passes import images
from tengen.passes.lower import lower
from tengen.runtime import environment
from tengen.tuning.trial import Bench

HUGE = 1 << 60  # everything is kept: no loops


class Net(M.Module):
    """Inverted residuals, squeeze and excitation, a residual of two convolutions, pooling: with odd numbers of channels."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = M.Conv2d(3, 12, 3, stride=2, padding=1), M.BatchNorm2d(12)
        self.wide, self.depthwise, self.narrow = (
            M.Conv2d(12, 40, 1),
            M.Conv2d(40, 40, 3, padding=1, groups=40),
            M.Conv2d(40, 12, 1),
        )
        self.less, self.more = M.Conv2d(40, 5, 1), M.Conv2d(5, 40, 1)
        self.winograd, self.last = M.Conv2d(12, 33, 3, padding=1), M.Conv2d(33, 12, 3, padding=1)
        self.grouped, self.fc = M.Conv2d(12, 12, 3, groups=3), M.Linear(12, 7)

    def forward(self, x):
        x = F.relu6(self.norm(self.stem(x)))
        y = F.relu(self.depthwise(F.relu(self.wide(x))))
        y = y * F.sigmoid(self.more(F.relu(self.less(y.mean(axis=(2, 3), keepdims=True)))))
        x = x + self.narrow(y)
        x = F.nn.max_pool2d(x + self.last(F.relu(self.winograd(x))), 2)
        x = F.nn.avg_pool2d(F.relu(self.grouped(x)), 2)
        return self.fc(x.mean(axis=(2, 3))), x


@pytest.fixture
def kept(monkeypatch):
    """Says how many bytes stay in cache. Their number is no part of the key of a kept program: programs are kept under a key of
    this test's own. Machine code comes from the cache that all tests have."""
    sources = environment.sources()
    unique = uuid.uuid4().hex

    def put(n):
        monkeypatch.setattr(images, "LAST_CACHE_BYTES", n)
        monkeypatch.setattr(environment, "sources", lambda: f"{sources} {unique} {n}")

    with config.scope(cache=True):
        yield put


@pytest.fixture
def net():
    tengen.random.seed(1)
    net = Net()
    net(batch(4))  # statistics
    return net.eval()


def batch(n, size=25):
    return Tensor(np.random.default_rng(n).normal(size=(n, 3, size, size)).astype("float32"))


def program_run(f):
    return next(iter(f._recordings.values()))[0].run


def bits(values):
    return [v.numpy().tobytes() for v in values]


@but(every=2)
@pytest.mark.parametrize("n", [1, 3, 8])
def test_the_same_bits(net, kept, n):
    x, found = batch(n), {}
    for bytes_ in (HUGE, 40 << 10, 16 << 10):
        kept(bytes_)
        f = trace(net, capture_as_const=True)
        found[bytes_] = bits(f(x))
        assert (".test:" in program_run(f).program.text) == (n > 1 and bytes_ < HUGE)
        for threads in (1, 2, 3):
            tengen.set_threads(threads)
            assert bits(f(x)) == found[bytes_]
    assert found[HUGE] == found[40 << 10] == found[16 << 10] == bits(net(x))


def test_files_kept_programs_and_artifacts(net, kept, tmp_path):
    x = batch(3)
    kept(16 << 10)
    f = trace(net, capture_as_const=True)
    want = bits(f(x))
    f.dump(str(tmp_path / "net.tgn"), arg_names=["x"])
    model = load_graph(str(tmp_path / "net.tgn"))
    assert bits(model(x)) == want
    assert bits(trace(net, capture_as_const=True)(x)) == want  # as it was kept
    if find_spec("ziglang"):
        a = deploy.compile_model(model, "native", tmp_path, "net", 2)
        assert a.workspace_bytes < 3 * 40 * 13 * 13 * 4  # not even the widest value of the whole batch
        assert [np.ascontiguousarray(v).tobytes() for v in deploy.run_artifact(a, [x.numpy()])] == [
            np.asarray(v.numpy(), order="C").tobytes() for v in f(x)
        ]


def test_training(kept):
    losses = {}
    for bytes_ in (HUGE, 16 << 10):
        kept(bytes_)
        tengen.random.seed(1)
        net = Net()
        gm = GradManager().attach(net.parameters())

        @trace
        def step(x, net=net, gm=gm):
            with gm:
                y, z = net(x)
                loss = (y * y).sum() + z.sum()
                gm.backward(loss)
            return [loss, *(p.grad for p in net.parameters())]

        losses[bytes_] = bits(step(batch(4)))
    assert losses[HUGE] == losses[16 << 10]


def test_a_profile_shows_every_time(net, kept):
    kept(16 << 10)
    f, x = trace(net, capture_as_const=True), batch(2)
    f(x)
    with tengen.profile() as p:
        f(x)
    assert {r.calls for r in p.rows} == {1, 2} and all(r.bytes > 0 for r in p.rows if r.calls == 2)


CHAIN = """
graph g(x: f32[8,16,32,32]):
    const w: f32[64,16,1,1]
    const k: f32[16,64,1,1]
    state total: f32[8,64,32,32]
    a: f32[8,64,32,32] = conv(x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, algorithm="direct", precision="highest")
    b: f32[8,64,32,32] = max_pool(a, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
    c: f32[8,16,32,32] = conv(b, k, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, algorithm="direct", precision="highest")
    $REST
"""


@pytest.mark.parametrize(
    ("rest", "nodes", "inner"),
    [
        ("return c = c", (0, 1, 2), 2),
        ("return c = c, b = b", (0, 1, 2), 1),  # all images of b are wanted
        ("write total = b\n    return c = c", (0,), None),  # a state is not written in parts
        ("m: f32[64,32,32] = max(b, axes=(0,), keepdims=false)\n    return c = c, m = m", (0, 1, 2), 1),
        ("m: f32[8,64,1,1] = max(b, axes=(2, 3), keepdims=true)\n    return c = c, m = m", (0, 1, 2, 3), 2),
    ],
)
def test_what_becomes_a_loop(monkeypatch, rest, nodes, inner):
    graph = parse_graph(CHAIN.replace("$REST", rest).strip() + "\n")
    each = 64 * 32 * 32 * 4
    for times, some in ((8, None), (7, 4), (3, 2), (1, 1), (0.4, None)):
        monkeypatch.setattr(images, "LAST_CACHE_BYTES", int(each * times))
        found = []
        monkeypatch.setattr(
            "tengen.passes.lower.find_loops", lambda *a, found=found: found.extend(images.find_loops(*a)) or found
        )
        lo, _ = lower(graph, Target.named("x86-64-v4"))
        if some is None or len(nodes) < 2:
            assert not found and not any(isinstance(s, Loop) for s in lo.steps)
            continue
        (loop,) = found
        assert (loop.nodes, loop.some, loop.count, len(loop.inner)) == (nodes, some, 8 // some, inner)
        inside = [leaf for leaf in leaves(lo.steps) if leaf.loops]
        assert {as_int(leaf.loops[0].count) for leaf in inside} == {8 // some}
        assert {leaf.launch.node for leaf in inside} == set(nodes)
        temps = Temporaries.of(lo)
        assert temps.place(temps.sizes)[1] <= (8 + 3 * some) * each  # temporaries of a round lie over each other


FILTERS = """
graph g(x: f32[8,16,16,16]):
    const a: f32[64,16,1,1]
    const b: f32[128,64,1,1]
    const c: f32[128,128,1,1]
    const d: f32[128,128,1,1]
    s: f32[8,64,16,16] = conv(x, a, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, algorithm="direct", precision="highest")
    t: f32[8,128,8,8] = conv(s, b, stride=(2, 2), padding=(0, 0), dilation=(1, 1), groups=1, algorithm="direct", precision="highest")
    u: f32[8,128,8,8] = conv(t, c, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, algorithm="direct", precision="highest")
    v: f32[8,128,8,8] = conv(u, d, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, algorithm="direct", precision="highest")
    return v = v
"""


@pytest.mark.parametrize(
    ("kept", "loops"),
    [
        (1 << 18, [((0, 1), 4)]),  # all of the small images stay in cache: nothing to gain
        (1 << 15, [((0, 1, 2, 3), 1)]),  # not even two of them do
        (3 << 15, [((0, 1), 1), ((2, 3), 2)]),  # two do: then the last filters are read half as often
    ],
)
def test_large_filters_have_loops_of_more_images(monkeypatch, kept, loops):
    graph, found = parse_graph(FILTERS.strip() + "\n"), []
    monkeypatch.setattr(images, "LAST_CACHE_BYTES", kept)
    monkeypatch.setattr("tengen.passes.lower.find_loops", lambda *a: found.extend(images.find_loops(*a)) or found)
    lower(graph, Target.named("x86-64-v4"))
    assert [(x.nodes, x.some) for x in found] == loops


def test_open_extents_have_no_loops(net, kept):
    kept(16 << 10)
    f = trace(net, dynamic_axes={"x": {0: "n"}}, capture_as_const=True)
    for n in (2, 3):
        assert bits(f(batch(n))) == bits(net(batch(n)))


def test_tuning_finds_the_nodes(net, kept):
    kept(16 << 10)
    f, plain = trace(net, capture_as_const=True), Schedules(Target.host().key, 2)
    f(batch(2))
    bench = Bench(program_run(f).graph, plain)
    looped = {leaf.launch.node for leaf in leaves(bench.lo.steps) if leaf.loops}
    assert len(looped) > 5
    for node in looped:
        bench.trial(node, plain).seconds(1)


def test_how_many_images_at_a_time():
    """The largest divisor of the batch that fits; it is found at once for a vector of any length."""
    for batch in (0, 1, 7, 12, 360, 1009):
        for most in (0, 1, images.LAST_CACHE_BYTES // 100, images.LAST_CACHE_BYTES, images.LAST_CACHE_BYTES + 1):
            fits = [s for s in range(1, batch + 1) if batch % s == 0 and s * most <= images.LAST_CACHE_BYTES]
            assert images._at_a_time(batch, most) == max(fits, default=1)
    assert images._at_a_time(1 << 40, 4) == images.LAST_CACHE_BYTES // 4
