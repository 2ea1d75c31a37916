"""What `amp.autocast` does to calls of ops: while a thread is inside of it, a rule casts the operands of its calls to other
dtypes before they run.

In: calls of ops, as `dispatch` gets them. Out: the same, with a cast before an operand, or another attribute, where the rule
says so. The rule does not apply to the calls in the body of a composite, nor to those of the backward walk: a call is a
function of its operands and attributes alone.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from tengen.base.dtype import DType
from tengen.ops.calls import Run
from tengen.ops.define import REGISTRY, Op, dispatch
from tengen.tensor.nodes import new_limit
from tengen.tensor.tensor import Tensor

Rule = Callable[[Op, tuple, tuple], tuple[tuple, tuple]]


class Casting(threading.local):
    """The rule of the calling thread.

    Attributes:
        rule: (op, operands, attributes) -> operands and attributes; None outside of autocast. high: the dtype of `wide`.
        key: identifies the rule in keys of plans and recordings. made: parameters in other dtypes, as the block that the thread is in has
            cast them: by id and dtype, (memory, place on the tape, cast). order: of the tape, to which such a cast belongs that is made now;
            None: to where it is made.
    """

    rule: Rule | None = None
    high: DType | None = None
    key: Hashable = None
    order: int | None = None

    def __init__(self) -> None:
        self.made: dict[tuple[int, DType], tuple[Any, Any, Tensor]] = {}

    def begin(self, made: dict | None = None) -> dict:
        """From now on these casts of parameters are there, or none. Returns those of before."""
        before, self.made = self.made, {} if made is None else made
        return before


casting = Casting()


@functools.cache  # a block is entered for each body of a composite
def _by_rule(go: Run) -> Run:
    """Runs calls as the calling thread's rule says."""

    def run(op: Op, inputs: tuple, attrs: tuple):
        rule = casting.rule
        if rule is None:
            return go(op, inputs, attrs)
        casting.rule = None
        try:
            return go(op, *rule(op, inputs, attrs))
        finally:
            casting.rule = rule

    return run


@contextlib.contextmanager
def casts(rule: Rule | None, high: DType | None, key: Hashable, made: dict | None = None) -> Iterator[None]:
    """Calls of the calling thread go by this rule; None: by none. made: the casts of parameters that there are; None: those of now. See
    `Casting`."""
    before = casting.rule, casting.high, casting.key, casting.made
    dispatch.add_filter(_by_rule)
    casting.rule, casting.high, casting.key = rule, high, key
    casting.made = casting.made if made is None else made
    try:
        yield
    finally:
        casting.rule, casting.high, casting.key, casting.made = before
        dispatch.remove_filter(_by_rule)


@contextlib.contextmanager
def casts_from_before() -> Iterator[None]:
    """A block in which casts of parameters are put on the tape as if made before it, since what comes later uses them too."""
    outer = casting.order
    casting.order = new_limit() if outer is None else outer
    try:
        yield
    finally:
        casting.order = outer


def wide(x: Any) -> Any:
    """An operand of a function that is to be computed in high precision: under autocast a narrower float is cast, else x
    itself."""
    if casting.rule is None or not isinstance(x, Tensor) or not x.dtype.is_float or x.dtype.bits >= casting.high.bits:
        return x
    return REGISTRY["astype"](x, casting.high)
