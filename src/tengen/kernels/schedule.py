"""Schedules: what a strategy may choose freely because it changes no bit: tiles, unrolling, the order of loops, packing, how
work is divided into pieces.

A strategy has a rule that computes a schedule from the problem and the target. It asks the lowering (`Lowering.choose`), which
answers with the rule's schedule, or with the one that tuning found for the same problem. Two problems are the same if they have
the same *problem key*: a text of what is computed, with extents, strides and dtypes. `Schedules.key` hashes it with the target
and the number of threads. Both, and the texts of schedules (kinds and names of fields), are in files of tuned models and in the
cache: they stay when classes and modules are renamed. In: a problem key, a rule's schedule. Out: a schedule that fits. Nothing
here touches the order of any sum.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tengen.base.digest import sha256
from tengen.base.errors import ScheduleError
from tengen.base.record import record

if TYPE_CHECKING:
    import random

MOST_TEXT_CHARACTERS = 200
KEY_DIGITS = 32
DRAWS = 2000  # random schedules that are tried after those nearby
_TEXT = re.compile(r"([a-z_]+)\(([a-z_]+=\d{1,9}(?:, [a-z_]+=\d{1,9})*)\)")
_kinds: dict[str, type[Schedule]] = {}
HOMES = (  # modules that define kinds, beside this one
    "attention.sizes", "contraction.channelwise", "contraction.tile", "contraction.transposed_operand", "contraction.unpacked",
    "convolution.depthwise", "convolution.few_channels", "convolution.winograd_sizes",
)  # fmt: skip


class Schedule:
    """The base of every kind of schedule: a frozen dataclass of integers >= 0 (0 and 1 for yes and no).

    Its text reads back: ``str(s)`` is ``"tile(rows=6, vectors=2)"``, and `parse` makes the same of it.
    """

    kind: ClassVar[str] = ""
    steps: ClassVar[Mapping[str, Sequence[int]]] = {}  # field -> values that are worth a try

    def __init_subclass__(cls, kind: str, **rest):
        super().__init_subclass__(**rest)
        cls.kind = kind
        _kinds[kind] = cls

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{k}={int(v)}' for k, v in self.numbers().items())})"

    def numbers(self) -> dict[str, int]:
        """The fields by name."""
        return {f.name: int(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def near(self) -> Iterator[Schedule]:
        """Schedules that differ little from this one: first those in which one field is one of its `steps` away, then two steps
        away, then those in which two fields are one step away each."""
        moves = [(name, self._beside(name, 1)) for name in self.steps]
        for name, values in [*moves, *((name, self._beside(name, 2)) for name in self.steps)]:
            yield from (dataclasses.replace(self, **{name: v}) for v in values)  # type: ignore[type-var]  # every Schedule is a dataclass
        for (x, xs), (y, ys) in itertools.combinations(moves, 2):
            yield from (dataclasses.replace(self, **{x: v, y: w}) for v in xs for w in ys)  # type: ignore[type-var]  # every Schedule is a dataclass

    def far(self, rng: random.Random) -> Schedule:
        """A schedule whose fields are drawn at random from their `steps`."""
        drawn = {name: rng.choice(values) for name, values in self.steps.items()}
        return dataclasses.replace(self, **drawn)  # type: ignore[type-var]  # every Schedule is a dataclass

    def _beside(self, name: str, distance: int) -> list[int]:
        """The values that are `distance` of the field's steps above and below its value."""
        now, steps = getattr(self, name), sorted(self.steps[name])
        above, below = [v for v in steps if v > now], [v for v in reversed(steps) if v < now]
        return [side[distance - 1] for side in (above, below) if len(side) >= distance]


@functools.cache
def kinds() -> dict[str, type[Schedule]]:
    """All kinds of schedules by name. Their modules are imported for it: a process whose programs come from the cache has not
    needed most of them so far."""
    for name in HOMES:
        importlib.import_module(f"{__package__}.{name}")
    return _kinds


def parse(text: str) -> Schedule | None:
    """The schedule of a text; None where it is of a kind, or has fields, that this Tengen does not know.

    Errors: ScheduleError for a text that is no schedule at all.

    >>> from tengen.kernels.contraction.tile import Register
    >>> s = parse("register(rows=6, vectors=2, high=4, along_k=1, packed=1, panels=0, blocks=0, across=0, unroll=2)")
    >>> s == Register(rows=6, vectors=2, high=4, along_k=1, packed=1, unroll=2), parse("later(depth=3)")
    (True, None)
    """
    m = _TEXT.fullmatch(text) if len(text) <= MOST_TEXT_CHARACTERS else None
    if m is None:
        raise ScheduleError(f"{text[:60]!r} is no schedule; help: one looks like 'grain(elements=16384)'")
    numbers = dict(pair.split("=") for pair in m[2].split(", "))
    cls: Any = kinds().get(m[1])
    if cls is None or numbers.keys() != {f.name for f in dataclasses.fields(cls)}:
        return None
    return cls(**{k: int(v) for k, v in numbers.items()})


S = TypeVar("S", bound=Schedule)


class Schedules:
    """Tuned schedules for one target and number of threads, by what is computed.

    Args:
        target: `Target.key`. threads: that programs run with. entries: key -> schedule.
        strict: whether a schedule that does not fit its problem is an error; if not, the rule's is taken.
    """

    def __init__(self, target: str, threads: int, entries: Mapping[str, Schedule] | None = None, strict: bool = False):
        self.target, self.threads, self.strict = target, threads, strict
        self.entries = dict(entries or {})

    def key(self, problem_key: str) -> str:
        """The key of a problem: a hash of its problem key, the target and the number of threads."""
        return sha256(f"{self.target}\n{self.threads}\n{problem_key}".encode()).hexdigest()[:KEY_DIGITS]

    def concern(self, asked: Iterable[str]) -> bool:
        """Whether one of these problem keys has an entry: a program that asks for no other is the rule's."""
        return bool(self.entries) and any(self.key(k) in self.entries for k in asked)

    def told(self) -> tuple:
        """All that decides a program for which an entry is asked, as plain data whose `repr` is complete."""
        return self.strict, self.threads, sorted((k, str(s)) for k, s in self.entries.items())

    def also(self, entries: Mapping[str, Schedule], strict: bool = False) -> Schedules:
        """The same with more entries, which come first."""
        return Schedules(self.target, self.threads, {**self.entries, **entries}, strict)


@record
class Choice:
    """A schedule that a strategy asked for.

    Attributes:
        problem_key: what is computed, as a text. rule: the rule's schedule. taken: the one that it got.
        fits: a schedule -> why the kernel cannot have it; empty if it can. nodes: positions of the graph's nodes that asked.
    """

    problem_key: str
    rule: Schedule
    taken: Schedule
    fits: Callable[[Schedule], str]
    nodes: set[int] = field(default_factory=set)

    def near(self, s: Schedule) -> Iterator[Schedule]:
        """Schedules near `s` that fit."""
        return (x for x in s.near() if not self.fits(x))

    def worth_a_try(self, s: Schedule) -> Iterator[Schedule]:
        """Schedules that fit: those near `s`, then random ones, the same in every process."""
        import random  # only the search for schedules needs it

        rng = random.Random(self.problem_key)
        yield from self.near(s)
        yield from (x for x in (s.far(rng) for _ in range(DRAWS)) if not self.fits(x))


def answer(tuned: Schedules | None, problem_key: str, rule: S, fits: Callable[[S], str]) -> S:
    """The tuned schedule of a problem, where there is one of the rule's kind that fits; else the rule's.

    Errors: ScheduleError, where `tuned` is strict, for one that does not fit.
    """
    found = tuned.entries.get(tuned.key(problem_key)) if tuned is not None and tuned.entries else None
    if found is None or type(found) is not type(rule):
        return rule
    why = fits(found)
    if why and tuned is not None and tuned.strict:
        raise ScheduleError(f"{found} cannot be: {why}; what is computed: {problem_key}")
    return rule if why else found


def outside(s: Schedule, **limits: tuple[int, int]) -> str:
    """Why a field of a schedule is not within its limits (least, most); empty if all are."""
    for name, (least, most) in limits.items():
        if not least <= getattr(s, name) <= most:
            return f"{name} is {getattr(s, name)}, not in {least}..{most}"
    return ""


@record(frozen=True)
class Grain(Schedule, kind="grain"):
    """elements: of a piece, about."""

    elements: int

    steps: ClassVar = {"elements": tuple(1 << i for i in range(10, 21))}

    def fits(self) -> str:
        """Why it cannot be; empty if it can."""
        return outside(self, elements=(1, 1 << 24))
