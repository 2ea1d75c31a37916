"""Every public name of MegEngine 1.13 and its last sources (`megengine.txt`): it exists here, or stands in `NOT_HERE` with the reason.
The list can only become shorter: a name in it that exists is an error, and so is one that neither exists nor is in it."""

import importlib
import logging
import math
import re
from pathlib import Path

import numpy as np
import pytest
from each import each

import tengen
import tengen.functional as F
from tengen import Parameter, Tensor
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, UsageWarning

INTERNAL = "MegEngine's own insides or tools, not for programs"
HARDWARE = "for hardware or a compiler that Tengen has no programs for"
SETTING = "a setting of MegEngine's runtime"

# namespace, or namespace: names -> why
NOT_HERE = {
    "megengine: async_level benchmark_kernel benchmark_with_subprocess deterministic_kernel disable_memory_forwarding": (
        f"{SETTING}: every run is synchronous, deterministic and planned"
    ),
    "megengine: check_misc": INTERNAL,
    "functional.external": HARDWARE,
    "functional.einsum": INTERNAL,
    "data.transform: CudaTransform": HARDWARE,
    "jit: xla_trace": HARDWARE,
    "distributed: group": INTERNAL,
    "utils.tensorboard": INTERNAL,
    "utils.hook": INTERNAL,
    "utils.deprecation": INTERNAL,
    "tools.network_visualize": INTERNAL,
    "tools.draw_graph": INTERNAL,
    "tools.load_network_and_run": INTERNAL,
    "xla": HARDWARE,
    "experimental": HARDWARE,
    "amp: Xla_GradScaler": HARDWARE,
    "logger: MegBrainLogFormatter call_countlog_func": (
        "of the log that MegEngine's native library writes; here TENGEN_DEBUG prints"
    ),
    "serialization: dmap": "maps names of devices in a file; files here name none",
    "Tensor: dmap_callback": "maps names of devices in a file; files here name none",
}  # fmt: skip


def names() -> dict[str, set[str]]:
    """MegEngine's names by namespace."""
    text = (Path(__file__).parent / "megengine.txt").read_text()
    return {ns: set(words.split()) for ns, words in re.findall(r"^([\w.]+):\n((?: +.*\n)+)", text, re.MULTILINE)}


def namespace(name: str):
    """The module or class of a namespace; None where there is none."""
    if name == "megengine":
        return tengen
    try:
        return importlib.import_module(f"tengen.{name}")
    except ModuleNotFoundError:
        value = tengen
        for part in name.split("."):
            value = getattr(value, part, None)
        return value


def excused() -> dict[str, set[str]]:
    """The names of `NOT_HERE` by namespace; of a whole namespace all of its names."""
    found: dict[str, set[str]] = {}
    for key in NOT_HERE:
        ns, _, some = key.partition(":")
        found.setdefault(ns, set()).update(some.split() or NAMES[ns])
    return found


NAMES = names()


@each("ns", NAMES)
def test_every_name_is_here_or_excused(ns):
    home, not_here = namespace(ns), excused().get(ns, set())
    here = {n for n in NAMES[ns] if home is not None and hasattr(home, n)}
    if ns not in NOT_HERE:
        assert home is not None, f"there is no tengen.{ns}"
        assert NAMES[ns] - here == not_here, "what is not here is not what NOT_HERE says"
    else:
        assert not here or ns == "functional.einsum", f"tengen.{ns} has {sorted(here)}: name in NOT_HERE what it lacks"


def test_the_list_names_what_megengine_has():
    for ns, some in excused().items():
        assert some and not (stray := some - NAMES[ns]), f"{ns}: MegEngine has no {stray}"


def test_the_count_grows():
    """How many of MegEngine's names exist here: raise it with each change that adds some."""
    here = sum(hasattr(home, n) for ns, some in NAMES.items() if (home := namespace(ns)) is not None for n in some)
    assert here >= 759, here


X = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)
SPELLED = {  # a call by another name of a parameter, and the same by its own
    "dim": (lambda x: F.sum(x, dim=0), lambda x: F.sum(x, axis=0)),
    "x.dim": (lambda x: x.max(dim=1, keepdim=True), lambda x: x.max(1, True)),
    "of a function": (lambda x: F.norm(x, dim=1), lambda x: F.norm(x, axis=1)),
    "of a list": (lambda x: F.concat([x, x], dim=1), lambda x: F.concat([x, x], 1)),
    "target_shape": (lambda x: F.reshape(inp=x, target_shape=(4,)), lambda x: F.reshape(x, (4,))),
    "inp": (lambda x: F.isnan(inp=x), F.isnan),
    "y": (lambda x: F.prelu(x, y=0.5), lambda x: F.prelu(x, 0.5)),
    "sort": (lambda x: F.sort(x, dim=0)[0], lambda x: F.sort(x, axis=0)[0]),
    "src": (lambda x: F.indexing_one_hot(src=x, index=Tensor([0, 1])), lambda x: F.indexing_one_hot(x, Tensor([0, 1]))),
    "start_dim": (lambda x: F.flatten(x, start_dim=0), F.flatten), "p": (lambda x: F.dropout(x, p=0.0), lambda x: x),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLED)
def test_other_spellings(name):
    one, other = (f(Tensor(X)) for f in SPELLED[name])
    assert one.shape == other.shape and one.numpy().tobytes() == other.numpy().tobytes()


@pytest.mark.parametrize("call, words", [
    (lambda x: F.sum(x, 0, dim=1), "'axis' twice, as 'dim' too"),
    (lambda x: F.reshape(x), r"reshape\(\) misses the argument 'shape'"), (lambda x: F.norm(x, axis=1, dim=0), "twice"),
    (lambda x: F.sum(x, None, False, 1), r"sum\(\) takes 3 arguments by their places"), (lambda x: F.flatten(x, 0, -1, 1), "takes 3 arguments"),
])  # fmt: skip
def test_arguments_that_are_none(call, words):
    with pytest.raises(TypeError, match=words + r".* \[at .*test_megengine_names.py"):
        call(Tensor(X))


def test_members_of_tensor():
    x = Tensor(X)
    assert x.name == "" and x.format == "default" and Parameter([1.0]).name is None and Parameter([1.0], name="w").name == "w"
    x.name = "pixels"
    assert x.name == "pixels"
    y = x
    x.set_value(np.ones(3, np.float32))
    assert y.tolist() == [1.0, 1.0, 1.0]
    x.reset_zero()
    assert x.tolist() == [0.0] * 3 and x.dtype == "float32"
    t = Tensor([1.5])
    assert [f(t).tolist() for f in (math.floor, math.ceil, math.trunc, round)] == [[1.0], [2.0], [1.0], [2.0]] and complex(t) == 1.5
    assert 3.0 in Tensor(X) and 5 not in Tensor(X) and 2 not in F.zeros((0,)) and math.floor(Tensor([3])).dtype == "int64"
    plus = +t
    plus += 1
    assert t.tolist() == [1.5] and plus.tolist() == [2.5]
    gm = GradManager().attach(t)
    with gm:
        gm.backward((+t * t).sum())
    assert t.grad.tolist() == [3.0]
    assert not t.requires_grad and Parameter([1.0]).requires_grad and not Parameter([1]).requires_grad


def test_settings_of_kernels_and_of_the_native_log():
    from tengen import logger

    chosen = F.debug_param
    assert chosen.get_execution_strategy() == chosen.Strategy.HEURISTIC | chosen.Strategy.REPRODUCIBLE
    with pytest.warns(UsageWarning, match="tengen.tune measures"):
        chosen.set_execution_strategy("PROFILE_REPRODUCIBLE")
    with pytest.raises(ArgumentError, match="'FAST' of 'HEURISTIC_FAST' must be one of HEURISTIC"):
        chosen.set_conv_execution_strategy("HEURISTIC_FAST")
    with logger.replace_mgb_log_level("ERROR"):
        assert logger.set_mgb_log_level(logging.DEBUG) == logging.ERROR
    assert logger.set_mgb_log_level("INFO") == logging.INFO
