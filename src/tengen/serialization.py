"""What a training run saves: `save` and `load` (MegEngine's namespace of them), and checkpoints of everything that a run goes on
from.

In: modules, optimizers, schedules, scalers, loaders, and plain values. Out: one file, and the same objects as they were. A run that
is killed at any moment and goes on from its last checkpoint ends with the bits of one that was not.
"""

from __future__ import annotations

import random as _python
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tengen import random
from tengen.base.errors import FileFormatError
from tengen.base.files import File, name_of
from tengen.deploy.checkpoint import load, save

__all__ = ["load", "load_checkpoint", "save", "save_checkpoint"]

_KEYS = {"tengen_checkpoint", "states", "values", "random"}
_VERSION = 1
_UNFIT = (KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError)  # what loading a state of something else raises


def save_checkpoint(file: File, /, **parts: Any) -> int:
    """Writes the state of a training run, so that `load_checkpoint` goes on with equal bits: what it is given, and where the generators
    of random numbers stand (Tengen's, NumPy's and Python's global ones). Call it between two steps; gradients are not in it.

    Args:
        file: a path, or a file that is open for writing bytes.
        parts: by names of your choice, objects with a `state_dict` (modules, optimizers, schedules, `GradScaler`, `DataLoader`,
            samplers, `RNG`, your own), and values that `save` takes (the number of the epoch, losses so far).

    Returns: the size in bytes. A file at a path is replaced whole or not at all, also when the process is killed meanwhile.

    Errors: those of `save`; TypeError for a part that is called random_state.

    >>> import os, tempfile
    >>> from tengen import module as M, optimizer
    >>> net = M.Linear(2, 1)
    >>> opt = optimizer.Adam(net.parameters(), lr=0.1)
    >>> path = os.path.join(tempfile.mkdtemp(), "run.tgc")
    >>> size = save_checkpoint(path, net=net, opt=opt, epoch=3)
    >>> load_checkpoint(path, net=net, opt=opt)
    {'epoch': 3}
    """
    return save(states_of(parts), file)


def states_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint holds; arrays of modules and optimizers are views of the tensors' memory. Errors: TypeError for a part that is called
    random_state."""
    if "random_state" in parts:
        raise TypeError("save_checkpoint: no part can be called random_state, which is an argument of load_checkpoint")
    states = {name: _state_of(x) for name, x in parts.items() if _has_state(x)}
    values = {name: x for name, x in parts.items() if name not in states}
    generators = {name: state() for name, (state, _) in _GENERATORS.items()}
    return {"tengen_checkpoint": _VERSION, "states": states, "values": values, "random": generators}


def load_checkpoint(file: File, /, *, random_state: bool = True, **parts: Any) -> dict[str, Any]:
    """Gives objects the states that `save_checkpoint` wrote, under the same names. If one does not fit, all stay as they were.

    Args:
        file: a path, or a file that is open for reading bytes.
        random_state: also set the global generators of random numbers back.
        parts: objects with `load_state_dict`. What the file has beside them is not loaded.

    Returns: by name, the plain values, and the states of the objects that were not given.

    Errors: FileFormatError for another or a damaged file, for one that lacks a name, and for a state that does not fit its object.
        TypeError for a part without `load_state_dict`. OSError where it cannot be read.
    """
    return restore(name_of(file), load(file), random_state, parts)


def restore(where: str, found: Any, random_state: bool, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Gives objects the states of a checkpoint that was read from `where`; the rest is returned."""
    for name, x in parts.items():
        if not _has_state(x):
            raise TypeError(f"load_checkpoint: {name} is a {type(x).__name__} and takes no state; help: values come back as the result")
    if not _is_checkpoint(found):
        raise FileFormatError(f"{where}: it is no file of save_checkpoint; help: tengen.load reads what tengen.save wrote")
    if found["tengen_checkpoint"] != _VERSION:
        raise FileFormatError(f"{where}: it has version {found['tengen_checkpoint']!r} of checkpoints, this Tengen reads {_VERSION}")
    states, generators = found["states"], found["random"] if random_state else {}
    if missing := [name for name in parts if name not in states]:
        raise FileFormatError(f"{where}: it has no state of {missing[0]!r}; it has {', '.join(map(repr, states)) or 'none'}")
    steps = [(name, type(x).__name__, x.state_dict, x.load_state_dict, states[name]) for name, x in parts.items()]
    for name, state in generators.items():
        if name not in _GENERATORS:
            raise FileFormatError(f"{where}: it has the state of a generator {str(name)[:40]!r}, which is not known")
        steps.append((name, "random numbers", *_GENERATORS[name], state))
    _load_all(where, steps)
    return {**found["values"], **{name: state for name, state in states.items() if name not in parts}}


def _load_all(where: str, steps: list[tuple[str, str, Callable[[], Any], Callable[[Any], Any], Any]]) -> None:
    """Loads each state, (name, kind, how to read the present one, how to set it, the new one); all or none."""
    before: list[tuple[Callable[[Any], Any], Any]] = []
    for name, kind, read, write, state in steps:
        before.append((write, read()))
        try:
            write(state)
        except BaseException as e:
            for back, old in reversed(before):
                back(old)
            if isinstance(e, _UNFIT):
                told = e.args[0] if isinstance(e, KeyError) and e.args else e
                raise FileFormatError(f"{where}: the state of {name!r} does not fit ({kind}): {type(e).__name__}: {told}") from e
            raise


def _state_of(x: Any) -> Any:
    """An object's state dict; without copies of arrays where its class has such, and does not say by a `state_dict` of its own what else
    belongs to it."""
    owner = getattr(x.state_dict, "__self__", x)  # of a wrapper that passes calls on: what it wraps
    home = lambda name: next((c for c in type(owner).__mro__ if name in vars(c)), None)
    views = home("_state_views")
    plain = views is not None and home("state_dict") is views and "state_dict" not in getattr(owner, "__dict__", {})
    return owner._state_views() if plain else x.state_dict()


def _has_state(x: Any) -> bool:
    return all(callable(getattr(x, name, None)) for name in ("state_dict", "load_state_dict"))


def _is_checkpoint(found: Any) -> bool:
    return isinstance(found, dict) and set(found) == _KEYS and all(isinstance(found[k], dict) for k in ("states", "values", "random"))


def _set_numpy(state: Mapping[str, Any]) -> None:
    if state["bit_generator"] != (own := np.random.get_state(legacy=False)["bit_generator"]):
        raise ValueError(f"the state of a {state['bit_generator']!r}, NumPy's global generator is a {own!r}")
    np.random.set_state(dict(state))


_GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "tengen": (random.get_state, random.set_state),
    "numpy": (lambda: np.random.get_state(legacy=False), _set_numpy),
    "python": (_python.getstate, _python.setstate),
}
