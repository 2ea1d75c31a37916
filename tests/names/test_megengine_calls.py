"""Functions, layers and methods give what MegEngine 1.13 gave for the same text and arrays (`megengine_calls.npz`): values, shapes and
dtypes."""

import numpy as np
import pytest
from each import each
from megengine_calls import CALLS, SAVED, results

import tengen

pytestmark = pytest.mark.filterwarnings("ignore::tengen.base.errors.UsageWarning")

WIDE = "positions are int64"
INTS = "Python's ints, and sums of integers, are int64, as in NumPy: MegEngine's int32 and uint8 overflow"
MOD = "the sign of the divisor, as of Python's % and NumPy's, and of MegEngine's for integers; its floats have C's fmod"
NAN = "a NaN stays one"
FIRST = "the number is for all channels: OpenCV takes it for the first one alone"
POWER = "powers of integers are integers, as in NumPy"
# names of calls -> why another result is meant
DIFFERENT = {
    "F.relu odd": NAN, "F.sign odd": NAN, "F.mod": MOD, "F.mod of both": MOD, "x % 1": MOD,
    **dict.fromkeys(["F.argmax", "F.argmin", "F.argmax 0", "F.argmin 0", "F.argmax -1 kept", "F.argmin -1 kept", "F.argmax of ints"], WIDE),
    **dict.fromkeys(["F.argmin of ints", "F.topk", "F.topk rising", "F.topk kth", "F.sort", "F.sort falling", "F.argsort"], WIDE),
    **dict.fromkeys(["F.argsort falling", "F.sort equal", "F.cond_take", "F.nms", "random.permutation"], WIDE),
    **dict.fromkeys(["F.sum of ints", "F.sum of bytes", "F.sum of bools", "F.cumsum ints", "F.full of int", "shape", "tensor of ints"], INTS),
    "transform.Pad": FIRST, "transform.Pad four": FIRST,
    "F.norm inf": "MegEngine's takes no notice of the axis",
    "i ** 2": POWER, "2 ** j": POWER,
    "h + i": "a float and an integer give the float",
    "round halves": "halves to even, as in NumPy, Python and IEEE 754",
    "grad of abs": "at 0 it is 0",
    "grad of maximum": "in a tie it goes to the second operand, so that relu's is 0 at 0",
}  # fmt: skip


def saved() -> dict[str, list[np.ndarray]]:
    """The arrays that each call gave."""
    found: dict[str, list[np.ndarray]] = {}
    with np.load(SAVED) as f:
        kinds, values, at = f["kinds"].tolist(), f["values"], 0
    for kind in kinds:
        name, dtype, shape = kind.split("|")
        extents = [int(n) for n in shape.split(",") if n]
        n = int(np.prod(extents, initial=1))
        found.setdefault(name, []).append(values[at : at + n].reshape(extents).astype(dtype))
        at += n
    return found


WANT = saved()


def difference(name: str) -> str:
    """What is not as there; "" where all is."""
    got, want = results(tengen, name), WANT[name]
    if len(got) != len(want):
        return f"{len(got)} results, there {len(want)}"
    for g, w in zip(got, want):
        w = w.astype(np.int64) if DIFFERENT.get(name) in (WIDE, INTS) and w.dtype == np.int32 else w  # the values are compared
        if (g.shape, g.dtype) != (w.shape, w.dtype):
            return f"{g.dtype}{list(g.shape)}, there {w.dtype}{list(w.shape)}"
        if not np.allclose(g, w, rtol=2e-3 if w.dtype == "f2" else 2e-5, atol=1e-5, equal_nan=True):
            return f"{g.reshape(-1)[:8]}, there {w.reshape(-1)[:8]}"
    return ""


@each("name", [name for name in CALLS if name in WANT])
def test_results_are_those_of_megengine(name):
    assert difference(name) == "" or name in DIFFERENT


def test_every_excuse_is_needed():
    wide = [name for name, why in DIFFERENT.items() if why in (WIDE, INTS) and name != "F.sum of bytes"]
    assert not [name for name in wide if difference(name)]  # but for the dtype it is the same
    assert not [name for name in DIFFERENT if name not in wide and not difference(name)]
    assert len(WANT) >= 460 and not DIFFERENT.keys() - WANT.keys()
