"""Ops on text: known arrays of strings."""

from __future__ import annotations

import re

import numpy as np

from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, known


def array_of(items: list, shape: tuple) -> np.ndarray:
    """Strings in a shape."""
    found = np.empty(len(items), object)
    found[:] = items
    return found.reshape(shape)


@op("StringConcat")
def concat(n: NodeOf, x: Value, y: Value) -> Value:
    """One after the other, broadcast."""
    a, b = np.broadcast_arrays(known(x), known(y))
    return array_of([str(p) + str(q) for p, q in zip(a.flat, b.flat)], a.shape)


@op("StringSplit")
def split(n: NodeOf, x: Value) -> tuple[Value, Value]:
    """The parts of each, filled up with "" to one length; and how many there are."""
    a, by, most = known(x), n.get("delimiter") or None, n.get("maxsplit")
    parts = [str(s).split(by, -1 if most is None else most) if s or by is None else [] for s in a.flat]
    width = max(map(len, parts), default=0)
    found = array_of([p for one in parts for p in (*one, *[""] * (width - len(one)))], (*a.shape, width))
    return found, as_tensor(np.array([len(p) for p in parts], np.int64).reshape(a.shape))


@op("StringNormalizer")
def normalise(n: NodeOf, x: Value) -> Value:
    """Without stop words, in one case."""
    a = known(x)
    cased = {"LOWER": str.lower, "UPPER": str.upper}.get(n.get("case_change_action", "NONE"), lambda s: s)
    stop = set(n.get("stopwords") or [])
    exact = bool(n.get("is_case_sensitive", 0))
    folded = {s.lower() for s in stop}
    rows = a.reshape(-1, a.shape[-1]) if a.ndim > 1 else a.reshape(1, -1)
    kept = [[cased(s) for s in row if not (s in stop if exact else s.lower() in folded)] or [""] for row in rows]
    width = max(map(len, kept), default=0)
    return array_of([s for row in kept for s in row], (*a.shape[:-1], width))


@op("RegexFullMatch")
def full_match(n: NodeOf, x: Value) -> Value:
    """Whether the whole text matches (RE2's syntax, which Python's is close to)."""
    a, pattern = known(x), re.compile(n["pattern"])
    return as_tensor(np.array([pattern.fullmatch(str(s)) is not None for s in a.flat], bool).reshape(a.shape))


@op("TfIdfVectorizer")
def tf_idf(n: NodeOf, x: Value) -> Value:
    """Counts of n-grams, weighted or not."""
    a, rows = known(x), []
    pool = n.get("pool_strings") or n.get("pool_int64s")
    starts, places = n["ngram_counts"], n["ngram_indexes"]
    weights = n.get("weights") or [1.0] * len(places)
    grams: dict[tuple, int] = {}
    number = 0
    for size, (lo, hi) in enumerate(zip(starts, [*starts[1:], len(pool)]), 1):
        for i in range(lo, hi, size):
            grams[tuple(pool[i : i + size])] = number
            number += 1
    for row in a.reshape(-1, a.shape[-1]) if a.ndim > 1 else [a]:
        found = np.zeros(max(places) + 1, np.float32)
        items = row.tolist()
        for size in range(n["min_gram_length"], n["max_gram_length"] + 1):
            for skip in range(n["max_skip_count"] + 1 if size > 1 else 1):
                for first in range(len(items) - (size - 1) * (skip + 1)):
                    key = tuple(items[first : first + size * (skip + 1) : skip + 1])
                    if key in grams:
                        found[places[grams[key]]] += 1
        by = np.zeros_like(found)
        for i, p in enumerate(places):
            by[p] = weights[i]
        match n["mode"]:
            case "TFIDF": found = found * by  # fmt: skip
            case "IDF": found = np.where(found > 0, by, 0).astype(np.float32)  # fmt: skip
        rows.append(found)
    return as_tensor(np.stack(rows) if a.ndim > 1 else rows[0])


@op("ai.onnx.ml.LabelEncoder")
def label_encoder(n: NodeOf, x: Value) -> Value:
    """A table from keys to values."""
    pick = lambda what: next(
        (n[k] for k in (f"{what}_{t}" for t in ("tensor", "strings", "int64s", "floats")) if k in n.attributes), None
    )
    keys, values = (v.tolist() if isinstance(v, np.ndarray) else v for v in (pick("keys"), pick("values")))
    if "values_tensor" in n.attributes:
        dtype, default = n["values_tensor"].dtype, n.get("default_tensor", np.zeros(1)).reshape(-1)[0]
    else:
        dtype, default = next(
            (np.dtype(d), n.get(f"default_{name}", usual))
            for values_, d, name, usual in (
                ("strings", object, "string", "_Unused"), ("int64s", np.int64, "int64", -1), ("floats", np.float32, "float", -0.0),
            )
            if f"values_{values_}" in n.attributes
        )  # fmt: skip
    table = {("nan" if k != k else k): v for k, v in zip(keys, values)}  # NaN is a key, and equals nothing
    a = known(x)
    found = [table.get("nan" if v != v else v, default) for v in a.reshape(-1).tolist()]
    return array_of(found, a.shape) if dtype.kind == "O" else as_tensor(np.array(found, dtype).reshape(a.shape))
