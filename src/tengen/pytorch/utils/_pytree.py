"""`torch.utils._pytree`, which programs use to map functions over nested tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen.base.record import NamedTuple


class TreeSpec(NamedTuple):
    """The structure of a nest: kind: its type, None of a leaf; keys: of a dict; children: the structures inside."""

    kind: Any
    keys: tuple
    children: tuple

    @property
    def num_leaves(self) -> int:
        """How many leaves it has."""
        return 1 if self.kind is None else sum(c.num_leaves for c in self.children)


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """(The leaves in order, the structure). is_leaf: what is a leaf though it is a tuple, a list or a dict."""
    nested = isinstance(tree, (tuple, list, dict)) and not (is_leaf is not None and is_leaf(tree))
    if not nested:
        return [tree], TreeSpec(None, (), ())
    keys = tuple(tree) if isinstance(tree, dict) else ()
    pairs = [tree_flatten(v, is_leaf) for v in (tree.values() if keys or isinstance(tree, dict) else tree)]
    return [leaf for leaves, _ in pairs for leaf in leaves], TreeSpec(type(tree), keys, tuple(spec for _, spec in pairs))


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """The nest of these leaves. Errors: ValueError where they are not as many"""
    rest = list(leaves)
    if len(rest) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: {len(rest)} leaves for a structure that has {treespec.num_leaves}")
    return _built(treespec, iter(rest))


def _built(spec: TreeSpec, rest: Any) -> Any:
    if spec.kind is None:
        return next(rest)
    values = [_built(c, rest) for c in spec.children]
    if issubclass(spec.kind, dict):
        return spec.kind(zip(spec.keys, values)) if spec.kind.__name__ != "defaultdict" else dict(zip(spec.keys, values))
    return spec.kind(*values) if hasattr(spec.kind, "_fields") else spec.kind(values)


def tree_map(func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The nest of func(leaf), or of func(leaf, leaves of `rests` in the same places).

    >>> tree_map(lambda x: x * 2, {"a": 1, "b": [2, (3,)]})
    {'a': 2, 'b': [4, (6,)]}
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    return tree_unflatten([func(*each) for each in zip(leaves, *(tree_flatten(r, is_leaf)[0] for r in rests))], spec)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_map_only(kind: type | tuple[type, ...], func: Callable, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """`tree_map` of the leaves of a type; others stay."""
    return tree_map(lambda x: func(x) if isinstance(x, kind) else x, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether it holds for every leaf."""
    return all(map(pred, tree_leaves(tree)))


__all__ = ["TreeSpec", "tree_all", "tree_flatten", "tree_leaves", "tree_map", "tree_map_only", "tree_unflatten"]
