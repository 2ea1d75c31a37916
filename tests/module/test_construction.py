"""Constructors refuse what is no value of the kind that they name, and take device= and dtype=; calls name their first input as MegEngine
does."""

import inspect

import numpy as np
import pytest
from each import each

import tengen
from tengen import Parameter, Tensor, data, optimizer
from tengen import module as M
from tengen.base.errors import DeviceError, DTypeError

NEEDED = {
    "in_channels": 4, "out_channels": 4, "kernel_size": 3, "num_features": 4, "in_features": 4, "out_features": 4, "batch": 2, "oshp": 2,
    "num_channels": 4, "num_groups": 2, "num_embeddings": 5, "embedding_dim": 4, "method": "ADD", "normalized_shape": 4, "embed_dim": 4,
    "num_heads": 2, "norm_type": 2.0, "input_height": 8, "input_width": 8, "upscale_factor": 2, "output_size": 4, "no_trans": True,
    "part_size": 2, "pooled_h": 2, "pooled_w": 2, "sample_per_part": 2, "spatial_scale": 1.0, "input_size": 4, "hidden_size": 4,
    "d_model": 4, "nhead": 2, "dataset": 6, "lr": 0.1, "base_lr": 0.1, "max_lr": 0.2, "gamma": 0.5, "step_size": 2, "total_iters": 2, "T_0": 2,
    "T_max": 2,
}  # fmt: skip


def built(cls):
    """The arguments with which a class can be built; None where it needs others."""
    opt = optimizer.SGD([Parameter([1.0])], lr=0.1)
    given = NEEDED | {"optimizer": opt, "params": [Parameter([[1.0]])], "dataset": range(6)}
    parameters = inspect.signature(cls).parameters.values()
    needed = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    if any(p.name not in given for p in needed):
        return None
    args = [given[p.name] for p in needed]
    try:
        cls(*args)
    except (TypeError, ValueError, NotImplementedError):
        return None
    return args


def classes():
    """Layers, optimizers, schedules and samplers."""
    found = []
    for space in (M, optimizer, data):
        for name in sorted(space.__all__):
            cls = getattr(space, name)
            if inspect.isclass(cls) and issubclass(cls, (M.Module, optimizer.Optimizer, optimizer.LRScheduler, data.Sampler)):
                found.append(pytest.param(cls, id=f"{space.__name__}.{name}"))
    return found


@each("cls", classes(), ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_texts_and_unknown_words_are_refused(cls):
    args = built(cls)
    if args is None:
        return
    with pytest.raises((TypeError, ValueError)):
        cls(*args, no_such_argument=1)
    for p in inspect.signature(cls).parameters.values():
        if p.annotation in ("bool", *(("float", "int") if issubclass(cls, M.Module) else ())) and p.default is not p.empty:
            with pytest.raises((TypeError, ValueError)):
                cls(*args, **{p.name: "False"})


def test_most_classes_can_be_built_here():
    """The test above looks at what it can build."""
    assert sum(built(p.values[0]) is not None for p in classes()) > 100


@pytest.mark.parametrize(("make", "error", "words"), [
    (lambda: M.Linear(2, 3, bias="False"), TypeError, "Linear: bias='False' must be True or False"),
    (lambda: M.BatchNorm2d(3, eps=-1e-5), ValueError, "eps=-1e-05 must be a finite number that is not negative"),
    (lambda: M.LayerNorm(3, eps=float("nan")), ValueError, "eps=nan"),
    (lambda: M.LSTM(2, 3, num_layers=1.5), (TypeError, ValueError), "1.5"),
    (lambda: M.Conv2d(2, 3, 1, compute_mode="typo"), ValueError, "compute_mode='typo' must be 'default' or 'float32'"),
    (lambda: M.Linear(2, 3, compute_mode="typo"), ValueError, "compute_mode"),
    (lambda: M.LazyBatchNorm1d(bogus=1), TypeError, "unexpected keyword argument 'bogus'"),
    (lambda: tengen.models.resnet18(layout="typo"), ValueError, "layout 'typo'; help: one of megengine"),
    (lambda: optimizer.Adam([Parameter([1.0])], amsgrad="no"), TypeError, "Adam: amsgrad='no' must be True or False"),
    (lambda: optimizer.CyclicLR(optimizer.SGD([Parameter([1.0])], lr=1.0), 0.1, 1.0, scale_mode="typo", cycle_momentum=False), ValueError,
     "scale_mode='typo'"),
])  # fmt: skip
def test_what_a_refusal_says(make, error, words):
    with pytest.raises(error) as e:
        make()
    assert words in str(e.value)


def test_zero_and_one_are_bools_and_arrays_of_no_axes_numbers():
    assert M.Linear(2, 3, bias=0).bias is None
    assert M.BatchNorm2d(3, eps=np.float32(0.5), momentum=Tensor(0.9)).eps == 0.5


def test_constructors_of_users_are_their_own():
    class Mine(M.Linear):
        def __init__(self, flag: bool, width: int):
            super().__init__(2, 3, dtype="float64")
            self.flag, self.width = flag, width

    m = Mine("a text", "another")
    assert m.flag == "a text" and m.weight.dtype == "float64"


LAYERS = {
    "Linear": lambda **k: M.Linear(4, 3, **k), "Conv2d": lambda **k: M.Conv2d(4, 3, 2, **k), "Embedding": lambda **k: M.Embedding(4, 3, **k),
    "BatchNorm2d": lambda **k: M.BatchNorm2d(4, **k), "LSTM": lambda **k: M.LSTM(4, 3, bidirectional=True, **k),
    "ConvBn2d": lambda **k: M.ConvBn2d(4, 3, 2, **k), "LinearBnRelu1d": lambda **k: M.LinearBnRelu1d(4, 3, **k),
    "MultiHeadAttention": lambda **k: M.MultiHeadAttention(4, 2, **k),
    "TransformerEncoderLayer": lambda **k: M.TransformerEncoderLayer(4, 2, 8, **k),
    "PReLU": lambda **k: M.PReLU(4, **k),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_another_dtype_is_the_float32_one_cast(name):
    tengen.random.seed(3)
    plain = LAYERS[name]()
    tengen.random.seed(3)
    wide = LAYERS[name](dtype="float64", device="cpu")
    found = dict(wide.named_tensors())
    for k, t in plain.named_tensors():
        assert found[k].dtype == (t.dtype if not t.dtype.is_inexact else "float64"), k
        assert np.array_equal(found[k].numpy(), t.numpy())


def test_devices_and_dtypes_that_no_layer_has():
    with pytest.raises(DTypeError, match="dtype='int32' is not of floating-point numbers"):
        M.Linear(2, 3, dtype="int32")
    with pytest.raises(DeviceError, match="tpu"):
        M.Linear(2, 3, device="tpu")
    with pytest.raises(TypeError, match="dtype"):
        M.ReLU(dtype="float64")
    x = Tensor(np.ones((2, 5)))
    assert M.LazyLinear(3, dtype="float64")(x).dtype == "float64"


def test_the_first_input_by_name():
    x = Tensor([[1.0, -2.0]])
    layer = M.Linear(2, 3)
    want = layer(x).numpy().tobytes()
    for name in ("x", "inp", "input", "inputs"):
        assert layer(**{name: x}).numpy().tobytes() == want
    assert M.Sequential(layer)(inp=x).numpy().tobytes() == want
    assert M.ReLU()(inputs=x).tolist() == [[1.0, 0.0]]
    with pytest.raises(TypeError):
        layer(inp=x, x=x)
    with pytest.raises(TypeError):
        layer(inp=x, inputs=x)

    class Mine(M.Module):
        def forward(self, x):
            return x

    with pytest.raises(TypeError, match="inp"):
        Mine()(inp=x)
