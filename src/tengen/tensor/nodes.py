"""The tape's data: a `TapeNode` for each recorded call, and a `Level` for each gradient that is being recorded.

Gradients nest: inside `grad` of a function there may be another `grad`, or a `GradManager`. Each has a level, with start nodes
of its own for the tensors that it differentiates by. A start node passes its gradient on to the place that the tensor has on
the tape of the levels around. So a walk of one level ends at its own start nodes, and can itself be differentiated by other
levels.

A node is live while an active level has a start node below it; no gradient can be asked for through other nodes. Whether a node
is live is computed when it is needed, and not noted with each call.
"""

from __future__ import annotations

import itertools
import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import ref

from tengen.base.changes import changed
from tengen.base.errors import GradientError, user_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tengen.tensor.tensor import Tensor

_counter = itertools.count()


class TapeNode:
    """One recorded call: what its gradient rule needs. `order` increases with time.

    `saved` has each input's memory, layout and node at the time of the call, as the tensor itself may be changed in place
    later. A start node has no op; it has one input without memory, or none; `level` is the level that it belongs to. For a call
    `level` is a level below it that was found active, or None if there is none and never will be; it is not set before that was
    asked. `hooks`, where there are any: (which output, function of its gradient) by the number of the hook. `where`, where somebody
    wanted to know it: the user's line that made the call.
    """

    __slots__ = ("op", "saved", "attrs", "outputs", "order", "level", "hooks", "where")

    def __init__(self, op, inputs, attrs, outputs=None):
        self.op, self.attrs, self.outputs = op, attrs, outputs
        self.saved = [None if x is None else (x._data, x._layout, x._node) for x in inputs]
        self.order = next(_counter)

    def parents(self) -> list:
        """The nodes that made the inputs."""
        nodes = [s[2] for s in self.saved if s is not None and s[2] is not None]
        return [n[0] if isinstance(n, tuple) else n for n in nodes]


SPENT: Any = ("let go by backward()",)  # the attributes of a call that a walk to the leaves has passed, and let go of what it had saved


def is_spent(t: Tensor) -> bool:
    """Whether a walk to the leaves has let go of what the gradient of a tensor needs."""
    node = node_of(t)[0]
    return node is not None and node.attrs is SPENT


class Walking(threading.local):
    """node: the call whose gradient this thread computes now; None outside of a backward walk. level: for which one."""

    node: TapeNode | None = None
    level: Level | None = None

    def go_to(self, node: TapeNode | None, level: Level | None) -> tuple[TapeNode | None, Level | None]:
        """Says which call it is from now on, and for which level. Returns those before."""
        before = self.node, self.level
        self.node, self.level = node, level
        return before


walking = Walking()
limits: dict[int, int] = {}  # thread -> the order before which nodes are hidden from it: it is inside of `no_grad`


watchers: list[Callable[[TapeNode], None]] = []  # functions of each node that `visible_node` makes
unpacking: list[Callable[[TapeNode], tuple[list, tuple | None]]] = []  # what makes packed values again (`saved.py`), once there were any
EVERYBODY = -1  # a thread that there is not: while it has a limit, all calls are put on the tape by `visible_node`


def watch(told: Callable[[TapeNode], None]) -> None:
    """From now on a function is told of each node that is made, by all threads."""
    watchers.append(told)
    limits[EVERYBODY] = 0


def unwatch(told: Callable[[TapeNode], None]) -> None:
    """Takes back one `watch`."""
    watchers.remove(told)
    if not watchers:
        limits.pop(EVERYBODY, None)


def _is_hidden(node: TapeNode | tuple | None) -> bool:
    """Whether the calling thread is inside of a `no_grad` that began after the node was made."""
    node = node[0] if isinstance(node, tuple) else node
    return node is not None and node.order < limits.get(get_ident(), 0)


def new_limit() -> int:
    """The order of what is made from now on."""
    return next(_counter)


def visible_node(op, inputs, attrs, outputs=None) -> TapeNode | None:
    """A `TapeNode` without the inputs' places that are hidden; None where no place is left. `watchers` are told of it."""
    node = TapeNode(op, inputs, attrs, outputs)
    node.saved = [s if s is None or not _is_hidden(s[2]) else (s[0], s[1], None) for s in node.saved]
    if not node.parents():
        return None
    for told in watchers:
        told(node)
    return node


class Leaves:
    """What is common to all tensors that require gradients by themselves (`tengen.tensor.leaves`). level: theirs; None before the first.
    parameters: whether new parameters are leaves."""

    level: Level | None = None
    parameters = False

    def start(self, t: Tensor) -> None:
        """From now on what is computed of t is recorded, wherever that is."""
        if self.level is None:
            self.level = Level()
        node = TapeNode(None, (), ref(t))  # of its attributes a start node needs none: here it knows its tensor
        node.level, node.order = self.level, self.level.order  # older than every `no_grad`, which so hides it
        t._node = node
        changed()

    def of_parameters(self, value: bool) -> bool:
        """Whether parameters that are made from now on are leaves. Returns what was said before."""
        before, self.parameters = self.parameters, value
        return before


leaves = Leaves()


def leaf_of(t: Tensor) -> TapeNode | None:
    """The start node of a tensor that is a leaf; None of any other."""
    node = t._node
    return node if type(node) is TapeNode and node.op is None and leaves.level is not None and node.level is leaves.level else None


def kept_place(target: Tensor, node: Any) -> Any:
    """The place of a tensor that takes a value whose place is `node`: an attached tensor that is written inside of `no_grad` stays
    attached, and a leaf stays one. Errors: GradientError for a leaf outside of `no_grad` whose new value has a gradient."""
    own = target._node
    if own is None:
        return node
    if limits and _is_hidden(own) and getattr(own, "op", own) is None:
        return own
    if leaf_of(target) is None:
        return node
    if node is not None and is_live(node[0] if isinstance(node, tuple) else node):
        raise GradientError(
            f"{user_line()}: {target._layout.type!r}, which requires a gradient, is given a value that was computed from such tensors; help: "
            "with no_grad(): around the update; or x = ..., another tensor"
        )
    return own


def node_of(t: Tensor | None) -> tuple[TapeNode | None, int]:
    """The node that made a tensor, and which of its outputs the tensor is."""
    n = None if t is None else t._node
    return n if isinstance(n, tuple) else (n, 0)


levels: list[Level] = []  # the active ones of all threads


class Level:
    """A gradient that is being recorded: active from its making to `end`. As a context manager it ends with the block.

    Args: alone: whether gradients end at the tensors that it starts where those are leaves, in place of going on to the leaves' level.
        since: the order from which on calls are its own (`new_limit`); default: from now on.
    Attributes: owed: results that this process does not use and whose gradient it walks all the same, since other processes wait for
        its part of it. awaited: places that it walks to for the same reason. thread: the number of the thread that began it. complete: no
        later call is for it; it waits to be walked (`vjp`). within: the level in whose walk a call is made again (`checkpoint`), whose
            gradients are not asked for through what this one computes; None elsewhere.
    """

    __slots__ = ("order", "active", "complete", "owed", "awaited", "thread", "alone", "within", "_starts", "__weakref__")

    def __init__(self, alone: bool = False, since: int | None = None) -> None:
        self.order = next(_counter) if since is None else since
        self.alone = alone
        self.active = True
        self.complete = False
        self.owed: list[Tensor] = []
        self.awaited: list[tuple[TapeNode | None, int]] = []
        self.thread = get_ident()
        self.within: Level | None = None
        self._starts: list[list[Any]] = []  # [reference to a tensor, its start node, its place on the tape before]
        levels.append(self)

    def __enter__(self) -> Level:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def start(self, t: Tensor, *aliases: Tensor) -> tuple[TapeNode | None, int]:
        """From now on this level can compute gradients with respect to `t`. If `t` is the result of a call that this level has
        recorded, gradients are with respect to that result. aliases: tensors that stand for the same one. Returns t's place on
        the tape."""
        node, index = node_of(t)
        if node is not None and node.op is not None and node.order > self.order and is_live(node):
            return node, index
        start = TapeNode(None, (), ())
        start.level = self
        if on_tape(t) and not (self.alone and leaf_of(t) is not None):
            start.saved = [(None, t._layout, t._node)]
        for x in (t, *aliases):
            self._starts.append([ref(x), start, x._node])
            x._node = start
        return start, 0

    def copy(self, x: Tensor) -> Tensor:
        """A tensor of the same value whose gradient this level can compute."""
        t = x._off_tape()
        t._node = x._node
        self.start(t)
        return t

    def resume(self) -> None:
        """Makes a level that has ended, and whose starts nobody shares, active once more."""
        self.active = True
        levels.append(self)

    def end(self) -> None:
        """Ends the level: it computes no more gradients. Tensors that it has started get back the places that they had
        before."""
        if not self.active:
            return
        self.active = False
        levels.remove(self)
        for r, start, before in self._starts:
            t = r()
            if t is None:
                continue
            if t._node is start:
                t._node = before
            else:  # the tensor has another value now, or a later level that is still active has started it
                for s in (s for level in levels for s in level._starts if s[2] is start):
                    s[2] = before
            on_tape(t)
        self._starts = []


def own_levels() -> list[Level]:
    """The active levels of the calling thread, the outermost first."""
    return [level for level in levels if level.thread == get_ident()]


def is_nested() -> bool:
    """Whether this thread is recording several gradients, so that one may be asked for through another."""
    return len(levels) > 1 and sum(level is not leaves.level and not level.complete for level in own_levels()) > 1


def is_live(node: TapeNode) -> bool:
    """Whether an active level may walk from a node to one of its start nodes. If not, the node frees what it has saved; one of which every
    part is spent is spent itself."""
    if (known := _level_below(node)) is not None:
        return known.active
    path: list[list[Any]] = [[node, iter(node.parents()), False]]  # and whether something below is spent
    while path:
        n, below, spent = path[-1]
        m = next(below, None)
        if m is None:  # nothing below is live, and nothing ever will be
            n.level, n.saved, n.outputs = None, [], None
            path.pop()
            if spent:
                n.level, n.attrs = leaves.level, SPENT
                if path:
                    path[-1][2] = True
        elif m.attrs is SPENT:
            path[-1][2] = True
        elif (found := _level_below(m)) is None:
            path.append([m, iter(m.parents()), False])
        elif found.active:
            for n, *_ in path:
                n.level = found
            return True
    return node.attrs is SPENT


def is_live_elsewhere(tensors: Iterable[Tensor], level: Level | None) -> bool:
    """Whether another active level than this one may ask for a gradient through one of the tensors."""
    path = [n for n in (node_of(t)[0] for t in tensors) if n is not None and not _is_hidden(n)]
    seen = set()
    while path:
        n = path.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        if n.op is None and n.level.active and n.level is not level:
            return True
        path.extend(n.parents())
    return False


def lives_for_others(node: TapeNode, own: set[Level]) -> bool:
    """Whether an active level that is none of these may ask for a gradient through a node."""
    if all(level in own for level in levels):
        return False
    path, seen = [node], {id(node)}
    while path:
        n = path.pop()
        if n.op is None and n.level is not None and n.level.active and n.level not in own:
            return True
        path += [m for m in n.parents() if id(m) not in seen]
        seen.update(map(id, path))
    return False


class _Nobody:
    active = False


def _level_below(n: TapeNode) -> Any:
    """A level below the node that is active, `_Nobody` if there is none, None if that is not known."""
    level = getattr(n, "level", n)
    if level is None:
        return _Nobody
    return level if level is not n and level.active else None


def on_tape(t: Tensor) -> bool:
    """Whether an active level may ask for a gradient through a tensor. If not, the tensor leaves the tape."""
    if t._node is None or (limits and _is_hidden(t._node)):
        return False
    if is_live(node_of(t)[0]):
        return True
    t._node = None
    return False
