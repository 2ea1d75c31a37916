"""The signatures of MegEngine 1.13's public functions, constructors and methods (`megengine_signatures.txt`, which `megengine_signatures.py`
wrote beside the real package): each parameter is taken here by its name and its place, with its default, or stands in `DIFFERENT` with the
reason."""

import ast
import importlib
import inspect
from enum import EnumType
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest
from each import each
from test_megengine_names import NOT_HERE, namespace

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor
from tengen.base.errors import DeviceError, UsageWarning

INSIDE = "of MegEngine's insides: no program calls it"
CV2 = "the same interpolation: cv2.INTER_LINEAR is 1"
SAME = "the same value, said another way"
ANY = "its constructor takes any, and hands it to the float layer or the layers that it is made of"
FLOAT = "made by `from_qat_module`, which gives it what it is made of"
HUB = "there is no host: repositories are local folders"
NAMED = "by another name here; by its place it is the same"

# names of functions (with * and ?), and parameters -> why
DIFFERENT = {
    "Tensor.to: _borrow": INSIDE,
    "amp.GradScaler.load_state_dict: state": NAMED,
    "autodiff.Function.forward: **": "users' subclasses say what it takes",
    "core.tensor.dtype.is_*: dtype": NAMED,
    "data.transform.Compose: transforms": SAME,
    "data.transform.RandomCrop: padding_value": "0 stands for each channel, of which there may be one or four",
    "data.transform.R*: interpolation": CV2, "data.transform.ShortestEdgeResize: interpolation": CV2,
    "distributed.launcher: **": "options of the function it decorates are its own",
    "functional.vision.cvt_color: mode": "MegEngine's default is refused there too",
    "jit.trace.dump: *": "any are taken by name: those that have a meaning here are done, the others said to change nothing",
    "hub.*: git_host protocol": HUB, "hub.import_module: protocol": HUB,
    "logger.MegEngineLogFormatter: style validate defaults": "logging.Formatter's, which it takes as any",
    "module.Concat: name": ANY, "module.*Stub: name": ANY, "module.Identity: name": ANY, "module.Module: name": ANY,
    "module.Sigmoid: name": ANY,
    "module.GELU: name": ANY, "module.quantized.*: name": ANY,
    "module.ConvBn*2d: dilation groups bias conv_mode compute_mode padding_mode": ANY,
    "module.ConvTransposeBn*2d: output_padding dilation groups bias conv_mode compute_mode": ANY,
    "module.Linear.calc_linear: x": NAMED,
    "module.LinearBn*1d: **": "MegEngine's take a name, which is named here",
    "module.Module.*: **": "with_key, with_parent and predicates are of MegEngine's insides",
    "module.Module.named_*: prefix": SAME,
    "module.MultiHeadAttention.forward: key_padding_mask attn_mask need_weights average_attn_weights is_causal maybe_cudnn_style_mask": (
        "MegEngine's runs with cuDNN alone; this one returns the outputs alone, and functional.multi_head_attention takes all of them"
    ),
    "module.qat.*: *": ANY,
    "module.quantized.*: *": FLOAT,
    "random*.normal: size": SAME, "random*.uniform: size": SAME,
    "random*.permutation: dtype": "int64, which numbers of any size fit, as all indices here",
    "traced_module.TracedModule: is_top argdef_graph_map argdef_outdef_map is_qat": "made by trace_module",
    "traced_module.optimize: enabled_pass": SAME,
    "utils.profiler.Profiler: with_backtrace with_scopes": "taken by name, with a warning: they change nothing",
}  # fmt: skip

# methods and functions that are not here -> why; a name that `NOT_HERE` excuses is not looked at
LACKING = {
    "data.Infinite.sample": INSIDE, "data.MapSampler.batch": INSIDE, "data.StreamSampler.batch": INSIDE,
    "data.StreamSampler.sample": "users' subclasses say what it is",
    "jit.trace.*": INSIDE, "module.*.reset_parameters": INSIDE, "module.*.apply_op": INSIDE, "module.*.calc_*": INSIDE,
    "module.*.get_pad_wi*": INSIDE,
}  # fmt: skip


class Signature(NamedTuple):
    """Names by place, names alone, defaults (... where the file has none), and whether any are taken."""

    places: list
    named: list
    defaults: dict
    any_place: bool
    any_name: bool


def read() -> dict[str, Signature]:
    """MegEngine's signatures by full name."""
    found = {}
    for line in (Path(__file__).parent / "megengine_signatures.txt").read_text().splitlines():
        full, _, rest = line.partition("(")
        a = ast.parse(f"def f({rest}: pass").body[0].args
        places = [p.arg for p in (*a.posonlyargs, *a.args)]
        given = [*zip(places[len(places) - len(a.defaults) :], a.defaults), *zip((p.arg for p in a.kwonlyargs), a.kw_defaults)]
        defaults = {name: ast.literal_eval(value) for name, value in given if value is not None}
        found[full] = Signature(places, [p.arg for p in a.kwonlyargs], defaults, a.vararg is not None, a.kwarg is not None)
    return found


def ours(full: str):
    """(what stands under this name, whether its first parameter is the object it is called on); None where nothing does."""
    home, _, name = full.rpartition(".")
    value = tengen
    for part in [] if home == "megengine" else home.split("."):
        value = getattr(value, part, None)
    value = value if inspect.isclass(value) and hasattr(value, name) else namespace(home)
    return getattr(value, name, None), inspect.isclass(value)


def differences(full: str, theirs: Signature) -> dict[str, str]:
    """{a parameter that is not taken as MegEngine takes it: what is so}."""
    f, of_object = ours(full)
    getattr(f, "_complete", lambda: None)()  # a record has its parameters from the first one on
    aliases, parameters = getattr(f, "aliases", {}), list(inspect.signature(f).parameters.values())[of_object:]
    by_name = {p.name: p for p in parameters}
    kinds = [p.kind for p in parameters]
    any_place, any_name = inspect.Parameter.VAR_POSITIONAL in kinds, inspect.Parameter.VAR_KEYWORD in kinds
    places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    first_input = full.startswith("module.") and full.endswith(".forward")  # `Module.__call__` takes it under any of their names
    found = {}
    for i, name in enumerate([*theirs.places, *theirs.named]):
        own = aliases.get(name, name)
        if not own:  # it is taken, and changes nothing
            continue
        if own not in by_name and not (i == 0 and first_input):
            found[name] = "is not taken"
        elif name in theirs.places and not any_place and places[i : i + 1] != [own] and not (i == 0 and first_input):
            found[name] = f"has not place {i}"
        elif name in theirs.defaults and own in by_name and theirs.defaults[name] is not ... and by_name[own].default != theirs.defaults[name]:
            found[name] = f"is {by_name[own].default!r} by default, there {theirs.defaults[name]!r}"
    return found | ({"**": "any others are not taken"} if theirs.any_name and not any_name else {})


THEIRS = read()
HERE = {full: theirs for full, theirs in THEIRS.items() if ours(full)[0] is not None}
EXCUSED = [tuple(key.split(": ")) for key in DIFFERENT]


@each("full", HERE)
def test_every_parameter_is_taken_as_there(full):
    if not callable(ours(full)[0]) or isinstance(ours(full)[0], EnumType):
        return  # `megengine.tensor.tensor` is a module here, as `from tengen.tensor import Tensor` needs it; what an Enum takes is Python's
    left = {
        name: what for name, what in differences(full, HERE[full]).items()
        if not any(fnmatch(full, names) and any(fnmatch(name, one) for one in some.split()) for names, some in EXCUSED)
    }  # fmt: skip
    assert not left


def test_every_excuse_is_needed():
    for names, some in EXCUSED:
        found = {name for full in HERE if fnmatch(full, names) and callable(ours(full)[0]) for name in differences(full, HERE[full])}
        assert found and all(any(fnmatch(name, one) for name in found) for one in some.split()), (names, some, found)


def test_what_is_not_here_is_excused():
    gone = [ns for ns, _, names in (key.partition(":") for key in NOT_HERE) if not names]
    some = {f"{ns}.{name}" for ns, _, names in (key.partition(": ") for key in NOT_HERE) for name in names.split()}
    left = [f for f in THEIRS.keys() - HERE if f not in some and not f.startswith(tuple(gone)) and not any(fnmatch(f, p) for p in LACKING)]
    assert not [f for f in left if f.rpartition(".")[0] not in some]
    assert all(any(fnmatch(f, p) for f in THEIRS.keys() - HERE) for p in LACKING)


def test_arguments_that_change_nothing(tmp_path):
    """MegEngine's of `Tensor`, files and devices: taken, checked where they can be wrong, and no number is another."""
    x = Tensor([1.0, 2.0], "float32", "xpux", False, True, "x")
    assert x.name == "x" and x.tolist() == [1.0, 2.0] and tengen.Parameter([1.0], name="w").name == "w"
    assert tengen.Parameter([1.0], None, None, False, True, "v").name == "v" and Tensor([1.0], name="y", format="default").name == "y"
    with pytest.warns(UsageWarning, match="format='nhwc'"):
        Tensor([1.0], format="nhwc")
    tengen.save({"x": x}, f=tmp_path / "x", pickle_protocol=4)
    for place in ("cpu0", "xpux", {"gpu0": "cpu0"}, None):
        assert tengen.load(f=tmp_path / "x", map_location=place)["x"].tolist() == [1.0, 2.0]
    assert F.concat([x, x], device="xpux").shape == (4,) and F.stack([x, x], 1, device="cpu0").shape == (2, 2)
    assert F.copy(x, device="cpu0").tolist() == [1.0, 2.0] and M.LSTM(2, 3, name="cells")._name == M.RNN(2, 3, name="cells")._name == "cells"
    for call, place in ((tengen.load, "map_location"), (F.concat, "device"), (F.copy, "device")):
        with pytest.raises(DeviceError, match="gpu0"):
            call(tmp_path / "x" if call is tengen.load else [x, x], **{place: "gpu0"})
    tengen.set_default_device()
    assert importlib.import_module("tengen.serialization").load(tmp_path / "x")["x"].dtype == "float32"
