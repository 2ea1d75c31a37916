"""The collator: a list of samples in, one batch of NumPy arrays out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Collator:
    """Stacks samples: arrays along a new first axis, numbers into an array, tuples and dicts item by item.

    Strings and bytes stay a list. Derive from it and define `apply` for anything else.

    >>> Collator().apply([(np.zeros(2), 1), (np.ones(2), 2)])
    (array([[0., 0.],
           [1., 1.]]), array([1, 2]))
    """

    def apply(self, inputs: Sequence[Any]) -> Any:
        """The batch of `inputs`.

        Errors:
            ValueError: no samples, or arrays whose shapes differ. TypeError: something that has no batch.
        """
        if not len(inputs):
            raise ValueError("Collator: no samples to make a batch of")
        first = inputs[0]
        if isinstance(first, np.ndarray):
            return self._stack(inputs)
        if isinstance(first, (str, bytes)):
            return list(inputs)
        if isinstance(first, (bool, int, float, complex, np.number, np.bool_)):
            return np.array(inputs)
        if isinstance(first, Mapping):
            for s in inputs:
                if s.keys() != first.keys():
                    raise ValueError(f"Collator: samples have different keys: {sorted(first)} and {sorted(s)}")
            return {key: self.apply([s[key] for s in inputs]) for key in first}
        if isinstance(first, Sequence):
            lengths = {len(s) for s in inputs}
            if len(lengths) > 1:
                raise ValueError(f"Collator: samples have different numbers of items: {sorted(lengths)}")
            items = [self.apply(column) for column in zip(*inputs)]
            return type(first)(*items) if hasattr(first, "_fields") else tuple(items)
        if hasattr(first, "__array__"):
            return self._stack([np.asarray(s) for s in inputs])
        raise TypeError(
            f"Collator: no batch can be made of {type(first).__name__}; help: samples are arrays, numbers, strings, or tuples "
            "and dicts of them; or give the loader a collator of your own"
        )

    @staticmethod
    def _stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
        shapes = {np.shape(a) for a in arrays}
        if len(shapes) > 1:
            raise ValueError(f"Collator: samples have different shapes: {', '.join(map(str, sorted(shapes)))}")
        if arrays[0].dtype.hasobject:
            raise TypeError("Collator: arrays of Python objects make no batch")
        return np.ascontiguousarray(np.stack(arrays))
