"""The language in which a table says how a checkpoint of others names a network's tensors; it is read in both directions.

In: lines such as ``blocks.{i}.attn.qkv -> encoder.layer.{i}.attention.(query|key|value)``, and a network. Out: for each of its tensors,
the names in the checkpoint, and how the array is turned into theirs and back.

A line ``ours -> theirs`` stands for a module or a tensor and all below it; the first line that matches a name holds, and a name that none
matches is the same on both sides. On the left:

- ``{i}`` is an index, ``{i:last}`` the last one in its list, ``{i:0 of 2}`` and ``{i:last of 3}`` one in a list of so many convolutions;
- ``*.`` at the beginning is whatever stands above;
- ``{s/j}`` is an index of a flat list that the other side keeps in stages: stage s, place j; ``{s/j:0}`` only where j is 0.

On the right ``{i}``, ``{i+1}``, ``{2*s-1}`` are computed from them, ``(a|b)`` are parts that lie joined along axis 0 in ours, and names
after ``;`` are other spellings that are read too. A word behind ``:`` says how the array is stored: `STORED`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

import tengen.module as M
from tengen.base.record import record
from tengen.tensor import Tensor

_PLACE = re.compile(r"\{(?:(\w+)/)?(\w+)(?::(\w+)(?: of (\d+))?)?\}")
_TERM = re.compile(r"\{(?:(\d+)\*)?(\w+)([+-]\d+)?\}")
_PARTS = re.compile(r"\(([^()]*\|[^()]*)\)")
CONVOLUTIONS = {M.Conv1d: 1, M.Conv2d: 2, M.Conv3d: 3, M.ConvTranspose2d: 2, M.ConvTranspose3d: 3}  # and their axes of space
NORMS = (M.BatchNorm1d, M.BatchNorm2d, M.BatchNorm3d)
# how others store an array of ours: from ours to theirs, and back to the order of ours
STORED: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "T": (lambda a: a.T, lambda a: a.T),  # (in, out) instead of (out, in)
    "HWIO": (lambda a: a.transpose(2, 3, 1, 0), lambda a: a.transpose(3, 2, 0, 1)),  # filters of Keras and Flax
    "HWCM": (lambda a: a.transpose(2, 3, 0, 1), lambda a: a.transpose(2, 3, 0, 1)),  # Keras' depthwise filters
    "1x1": (lambda a: a.reshape(*a.shape, 1, 1), lambda a: a),  # a linear layer as a convolution
    "7x7": (lambda a: a.reshape(len(a), -1, 7, 7), lambda a: a),
    "column": (lambda a: a.reshape(-1, 1, 1), lambda a: a),
}


@record(frozen=True)
class Table:
    """How one layout names the tensors of one family.

    Attributes:
        rules: lines of the language. prefix: what stands before their names in some files and not in others. ignored: a pattern of
            names that carry no weights. heads: a pattern of names of a head that the network has not, which is told as a warning.
        renamed: older spellings, (pattern, what it is now). options: what the network must have been made with, by attribute.
        spelling: their words for ours, at the end of a name. linear: how weights of linear layers are stored.
        own_shapes: their shapes are those of our state dict. tied: a head, and the embedding whose values it has where they are one.
    """

    rules: str = ""
    prefix: str = ""
    ignored: str = ""
    heads: str = ""
    renamed: tuple[tuple[str, str], ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    spelling: Mapping[str, str] = field(default_factory=dict)
    linear: str = ""
    own_shapes: bool = False
    tied: tuple[str, str] | None = None


@record(frozen=True)
class Entry:
    """One tensor of a network. names: its spellings in a checkpoint, best first, each of one or more parts. shapes: of the parts.
    how: a key of `STORED`, or nothing. plain: the shape before it is stored so, and of all parts together."""

    ours: str
    tensor: Tensor
    names: list[list[str]]
    shapes: list[tuple[int, ...]]
    how: str
    plain: tuple[int, ...]

    def stored(self, a: np.ndarray) -> list[np.ndarray]:
        """Our array as the parts that the checkpoint has."""
        a = a.reshape(self.plain)
        if len(self.shapes) > 1:
            return np.split(a, np.cumsum([s[0] for s in self.shapes])[:-1])
        return [STORED[self.how][0](a) if self.how else a]

    def shapes_of(self, parts: Sequence[Any]) -> list[tuple[int, ...]]:
        """The shapes of the parts in one of the spellings: in some what is parts elsewhere lies joined."""
        return self.shapes if len(parts) == len(self.shapes) else [self.plain]

    def loaded(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """The parts of a checkpoint, whose shapes fit, as our array."""
        shaped = [part.reshape(shape) for part, shape in zip(parts, self.shapes_of(parts))]  # they may lack axes of one, or have more
        a = np.concatenate(shaped) if len(shaped) > 1 else shaped[0]
        return (STORED[self.how][1](a) if self.how else a).reshape(self.tensor.shape)


class Rule:
    """A line of a table."""

    def __init__(self, line: str):
        ours, _, right = (part.strip() for part in line.partition("->"))
        theirs, _, self.how = (part.strip() for part in right.partition(" : "))
        if not ours or not theirs or (self.how and self.how not in STORED):
            raise ValueError(f"{line.strip()!r} is no line of a table; help: 'ours -> theirs', or 'ours -> theirs : T'")
        self.theirs = [t.strip() for t in theirs.split(";")]
        at, text = 0, ""
        if ours.startswith("*."):
            at, text = 2, r"(?P<above>.*\.)?"
        self.places = list(_PLACE.finditer(ours))
        for i, m in enumerate(self.places):
            text += re.escape(ours[at : m.start()]) + rf"(?P<at{i}>\d+)"
            at = m.end()
        known = {key for m in self.places for key in (m[1], m[2])}
        unknown = [m[2] for t in self.theirs for m in _TERM.finditer(t) if m[2] not in known]
        unknown += [m[3] for m in self.places if m[3] and m[3] != "last" and not m[3].isdecimal()]
        if unknown:
            raise ValueError(
                f"{line.strip()!r}: nothing says what {unknown[0]!r} is; help: {{i}} on both sides, {{i:last}} or {{i:0}} on the left"
            )
        self.pattern = re.compile(text + re.escape(ours[at:]) + r"(?P<rest>\..+)?")

    def match(self, name: str, lists: Lists) -> list[list[str]] | None:
        """The spellings of a name of ours, or None."""
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        values: dict[str, int] = {}
        for i, place in enumerate(self.places):
            index, where = int(found[f"at{i}"]), name[: found.start(f"at{i}")]
            stage, key, which, of = place.groups()
            if stage:
                values[stage], index = lists.staged(index)
                values[key] = index
                fits = which is None or index == int(which)
            else:
                values[key] = index
                fits = lists.fits(where, index, which, of)
            if not fits:
                return None
        groups, numbered = found.groupdict(""), lambda t: _TERM.sub(lambda m: str(_term(m, values)), t)
        return [_parts(numbered(t).replace("*.", groups.get("above", ""), 1) + groups["rest"]) for t in self.theirs]


def _term(m: re.Match, values: Mapping[str, int]) -> int:
    return int(m[1] or 1) * values[m[2]] + int(m[3] or 0)


def _parts(name: str) -> list[str]:
    m = _PARTS.search(name)
    return [name] if m is None else [name[: m.start()] + part + name[m.end() :] for part in m[1].split("|")]


class Lists:
    """What a network's names say of its lists: how many, the last index, how many convolutions; and its stages.

    Args:
        start: index of the first stage's first module in a flat list. depths: modules of each stage.
    """

    def __init__(self, names: Iterable[str], start: int = 0, depths: Sequence[int] = ()):
        self.start, self.depths = start, depths
        self.last: dict[str, int] = {}
        self.convolutions: dict[str, set[int]] = {}
        for name in names:
            for m in re.finditer(r"(?<=\.)(\d+)(?=(\.\w+)?)", name):
                where, index = name[: m.start()], int(m[1])
                self.last[where] = max(index, self.last.get(where, 0))
                if m[2] == ".conv":
                    self.convolutions.setdefault(where, set()).add(index)

    def fits(self, where: str, index: int, which: str | None, of: str | None) -> bool:
        if of is not None and len(self.convolutions.get(where, ())) != int(of):
            return False
        return which is None or index == (self.last[where] if which == "last" else int(which))

    def staged(self, index: int) -> tuple[int, int]:
        """The stage of an index, and its place there; what lies behind all stages is in one more."""
        index -= self.start
        for stage, depth in enumerate(self.depths):
            if index < depth:
                return stage, index
            index -= depth
        return len(self.depths), index


def entries(net: M.Module, table: Table, lists: Lists) -> list[Entry]:
    """All tensors of a network, as a table names them."""
    rules = [Rule(line) for line in table.rules.splitlines() if line.strip()]
    owners = {f"{prefix}.{name}" if prefix else name: m for prefix, m in net.named_modules() for name, _ in m.named_tensors(recursive=False)}
    own = {name: a.shape for name, a in net.state_dict().items()} if table.own_shapes else {}
    found = []
    for name, tensor in net.named_tensors():
        names, how = next(((n, r.how) for r in rules if (n := r.match(name, lists)) is not None), ([[name]], ""))
        owner = owners.get(name)
        if table.linear and isinstance(owner, M.Linear):
            how = table.linear
        if tensor.ndim < 2 and how != "column":
            how = ""
        for ours, theirs in table.spelling.items():
            names = [[re.sub(rf"(^|\.){ours}$", rf"\1{theirs}", n) for n in spelling] for spelling in names]
        plain = own.get(name) or _torch_shape(name, tensor, owner)
        found.append(Entry(name, tensor, names, _shapes(plain, len(names[0]), how, owner), how, plain))
    return found


def _torch_shape(name: str, t: Tensor, owner: M.Module | None) -> tuple[int, ...]:
    """Of the same values in PyTorch: no axes of one around vectors, and the filters of all groups one after the other."""
    shape = tuple(t.shape)
    space = next((n for kind, n in CONVOLUTIONS.items() if isinstance(owner, kind)), None)
    if space is not None:
        if name.endswith("bias"):
            return (t.size,)
        return (shape[0] * shape[1], *shape[2:]) if len(shape) > space + 2 else shape
    return (t.size,) if isinstance(owner, NORMS) else shape


def _shapes(plain: tuple[int, ...], parts: int, how: str, owner: M.Module | None) -> list[tuple[int, ...]]:
    if parts > 1:
        if getattr(owner, "parts", None) is None and plain[0] % parts:
            raise ValueError(f"{plain[0]} rows are not {parts} equal parts")
        return [(n, *plain[1:]) for n in getattr(owner, "parts", None) or [plain[0] // parts] * parts]
    return [STORED[how][0](np.broadcast_to(np.float32(0), plain)).shape if how else plain]
