"""Every network of the zoo with open axes: one recording and one program for all sizes, with the bits of eager calls for each.

The batch is open in all; height and width in those that are convolutions up to a pool over all pixels; positions in those of sequences.
"""

import numpy as np
import pytest
from exhaustive import but
from test_models import SHORT, SMALL, first, network

from tengen import Tensor, load_graph, trace
from tengen.base.errors import ShapeError
from tengen.deploy import compile_model

FIXED = {  # networks whose images have one size, and why
    "lenet": "a linear layer takes all pixels", "mlp": "a linear layer takes all pixels", "vit_tiny": "each patch has a position of its own",
    "vgg16": "whether an adaptive pool to 7 by 7 is of equal windows is a condition, so there are two programs; see below",
}  # fmt: skip
SEQUENCES = ("bert_base", "gpt", "lstm")


def axes_and_sizes(name):
    shape = SMALL[name][1]
    if name in SEQUENCES:
        return {0: "batch", 1: "positions"}, [(2, 9), (3, 5), (1, 14)]
    if name in FIXED:
        return {0: "batch"}, [(2, *shape), (3, *shape)]
    return {0: "batch", 2: "height", 3: "width"}, [(2, 3, 64, 64), (1, 3, 32, 96), (3, 3, 48, 40)]


def sample(name, shape):
    rng = np.random.default_rng(sum(shape))
    return Tensor(rng.integers(0, 50, shape).astype("int32") if name in SEQUENCES else rng.standard_normal(shape, "float32"))


@but(every=8)
@pytest.mark.parametrize("name", SMALL)
def test_one_program_for_all_sizes(name):
    net = network(name, **SHORT.get(name, {})).eval()
    axes, sizes = axes_and_sizes(name)
    run = trace(lambda x: first(net(x)), dynamic_axes=axes)
    for shape in sizes:
        x = sample(name, shape)
        assert run(x).numpy().tobytes() == first(net(x)).numpy().tobytes(), shape
    assert len(run.stats()) == run.stats().programs == 1 and not run.stats()[0].conditions


@pytest.mark.parametrize("name", ["resnet", "gpt"])
def test_files(name, tmp_path):
    net = network(name, **SHORT.get(name, {})).eval()
    axes, sizes = axes_and_sizes(name)
    run = trace(lambda x: first(net(x)), dynamic_axes=axes, example_input=sample(name, sizes[0]))
    run.dump(tmp_path / "net.tgn")
    model = load_graph(tmp_path / "net.tgn")
    assert model.extents == tuple(axes.values())
    for shape in sizes[1:]:
        x = sample(name, shape)
        assert model(x).numpy().tobytes() == first(net(x)).numpy().tobytes(), shape


def test_a_pool_to_several_pixels():
    """Sizes that are shared out evenly have one recording, others another; one more is for the first call, where axes open by themselves."""
    net = network("vgg16").eval()
    for axes, programs in (("auto", 4), ({0: "batch", 2: "height", 3: "width"}, 2)):
        run = trace(lambda x: first(net(x)), dynamic_axes=axes)
        for shape in [(2, 3, 64, 64), (2, 3, 56, 112), (2, 3, 60, 72), (2, 3, 112, 84), (2, 3, 72, 60)]:
            x = sample("vgg16", shape)
            assert run(x).numpy().tobytes() == net(x).numpy().tobytes(), shape
        assert run.stats().programs <= programs and any(" % 7" in c or "rem(" in c for s in run.stats() for c in s.conditions)


def masks(n, t):
    """Which tokens are there: another number of each example, at least one."""
    return Tensor((np.arange(t) < 1 + np.arange(n)[:, None] * 3 % t).astype("int32"))


def test_sequences_of_any_length_up_to_a_bound(tmp_path):
    """Causal and padding masks: one program for all lengths up to the context, and an error that says so beyond."""
    bert, gpt = (network(name).eval() for name in ("bert_base", "gpt"))
    padded = lambda tokens, mask: bert(tokens, None, mask)[1]
    axes = {0: "batch", 1: "positions"}
    for f, more in ((padded, (masks,)), (gpt, ())):
        run = trace(f, dynamic_axes=axes)
        for n, t in ((2, 9), (1, 1), (3, 16), (5, 2), (2, 13)):
            args = sample("gpt", (n, t)), *(make(n, t) for make in more)
            assert run(*args).numpy().tobytes() == f(*args).numpy().tobytes(), (n, t)
        assert len(run.stats()) == run.stats().programs == 1
        with pytest.raises(ShapeError, match="positions = 17: strided_slice.* no 17 elements"):
            run(sample("gpt", (2, 17)), *(make(2, 17) for make in more))
    run.dump(tmp_path / "gpt.tgn")
    with pytest.raises(ShapeError, match="positions = 17: strided_slice.* no 17 elements"):
        compile_model(tmp_path / "gpt.tgn", "native", tmp_path, extents={"batch": 2, "positions": range(1, 18)})
