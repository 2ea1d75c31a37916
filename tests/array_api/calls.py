"""Calls of the functions that are not elementwise, as the tests make them of two namespaces: {name: [call(xp, a), ...]}, where
``a(dtype, shape)`` is an array of sample values. Each is made for every dtype of `DTYPES_OF` (all by default)."""

S = ((3, 4), (5,), (), (0, 3), (2, 3, 4))


def _names_axis(call):
    return "axis" in call.__code__.co_consts or any("axis" in c for c in call.__code__.co_consts if isinstance(c, tuple))


def _over(*calls):
    """The same calls for each shape of S; where an axis is named, without the 0-d one, of which NumPy takes some for a vector."""
    return [lambda xp, a, d, c=c, s=s: c(xp, a(d, s)) for c in calls for s in S if s or not _names_axis(c)]


def _reduction(name, *more):
    def f(xp):
        return getattr(xp, name)

    return _over(
        lambda xp, x: f(xp)(x),
        lambda xp, x: f(xp)(x, axis=-1),
        lambda xp, x: f(xp)(x, axis=0, keepdims=True),
        lambda xp, x: f(xp)(x, axis=(0, 1)),
        lambda xp, x: f(xp)(x, axis=9),
        *more,
    )


CALLS = {
    "all": _reduction("all"),
    "any": _reduction("any"),
    "max": _reduction("max"),
    "min": _reduction("min"),
    "mean": _reduction("mean"),
    "sum": _reduction("sum", lambda xp, x: xp.sum(x, dtype=xp.float64), lambda xp, x: xp.sum(x, dtype=xp.int8)),
    "prod": _reduction("prod", lambda xp, x: xp.prod(x, dtype=xp.float64), lambda xp, x: xp.prod(x, dtype=xp.uint8)),
    "var": _reduction("var", lambda xp, x: xp.var(x, correction=1), lambda xp, x: xp.var(x, axis=0, correction=2.5)),
    "std": _reduction("std", lambda xp, x: xp.std(x, correction=1)),
    "count_nonzero": _reduction("count_nonzero"),
    "argmax": _over(
        lambda xp, x: xp.argmax(x), lambda xp, x: xp.argmax(x, axis=-1), lambda xp, x: xp.argmax(x, axis=0, keepdims=True)
    ),
    "argmin": _over(
        lambda xp, x: xp.argmin(x), lambda xp, x: xp.argmin(x, axis=-1), lambda xp, x: xp.argmin(x, axis=0, keepdims=True)
    ),
    "cumulative_sum": _over(
        lambda xp, x: xp.cumulative_sum(x) if x.ndim else None,
        lambda xp, x: xp.cumulative_sum(x, axis=-1, include_initial=True),
        lambda xp, x: xp.cumulative_sum(x, axis=0, dtype=xp.float32),
    ),
    "cumulative_prod": _over(
        lambda xp, x: xp.cumulative_prod(x), lambda xp, x: xp.cumulative_prod(x, axis=-1, include_initial=True)
    ),
    "diff": _over(
        lambda xp, x: xp.diff(x, axis=-1), lambda xp, x: xp.diff(x, n=2, axis=0), lambda xp, x: xp.diff(x, n=0, axis=-1)
    )
    + [lambda xp, a, d: xp.diff(a(d, (3, 4)), prepend=a(d, (3, 1)), append=a(d, (3, 2)))],
    "sort": _over(lambda xp, x: xp.sort(x, axis=-1), lambda xp, x: xp.sort(x, axis=0, descending=True)),
    "argsort": _over(
        lambda xp, x: xp.argsort(x, axis=-1),
        lambda xp, x: xp.argsort(x, axis=0),
        lambda xp, x: xp.argsort(x, axis=1, descending=True),
        lambda xp, x: xp.argsort(x, axis=0, descending=True),
    ),
    "nonzero": _over(lambda xp, x: xp.nonzero(x)),
    "searchsorted": [
        lambda xp, a, d, side=side: xp.searchsorted(xp.sort(a(d, (9,))), a(d, (2, 3)), side=side) for side in ("left", "right")
    ]
    + [lambda xp, a, d: xp.searchsorted(a(d, (9,)), a(d, (4,)), sorter=xp.argsort(a(d, (9,))))],
    "unique_all": _over(lambda xp, x: tuple(xp.unique_all(x))),
    "unique_counts": _over(lambda xp, x: tuple(xp.unique_counts(x))),
    "unique_inverse": _over(lambda xp, x: tuple(xp.unique_inverse(x))),
    "unique_values": _over(lambda xp, x: xp.unique_values(x)),
    "take": [
        lambda xp, a, d: xp.take(a(d, (5,)), xp.asarray([0, 3, 3])),
        lambda xp, a, d: xp.take(a(d, (3, 4)), xp.asarray([2, 0]), axis=0),
        lambda xp, a, d: xp.take(a(d, (3, 4)), xp.asarray([3, -1]), axis=1),
        lambda xp, a, d: xp.take(a(d, (3, 4)), xp.asarray([2])),
        lambda xp, a, d: xp.take(a(d, (5,)), xp.asarray([9])),
        lambda xp, a, d: xp.take(a(d, (5,)), xp.asarray([1.0])),
        lambda xp, a, d: xp.take(a(d, (5,)), xp.asarray(1)),
    ],
    "take_along_axis": [
        lambda xp, a, d: xp.take_along_axis(a(d, (3, 4)), xp.argsort(a("int8", (3, 4))), axis=-1),
        lambda xp, a, d: xp.take_along_axis(a(d, (3, 4)), xp.asarray([[2, 0, 1, 1]]), axis=0),
        lambda xp, a, d: xp.take_along_axis(a(d, (3, 1)), xp.asarray([[0, 0, 0, 0]] * 3), axis=1),
    ],
    "concat": [
        lambda xp, a, d: xp.concat([a(d, (3, 4)), a(d, (1, 4))]),
        lambda xp, a, d: xp.concat((a(d, (3, 4)), a(d, (3, 0))), axis=-1),
        lambda xp, a, d: xp.concat([a(d, (3, 4)), a(d, ())], axis=None),
        lambda xp, a, d: xp.concat([a(d, (3, 4)), a("float32", (3, 4))]),
        lambda xp, a, d: xp.concat([a(d, (3, 4)), a("int16", (3, 4))], axis=1),
        lambda xp, a, d: xp.concat([a(d, (3, 4)), a(d, (3, 5))]),
    ],
    "stack": [
        lambda xp, a, d: xp.stack([a(d, (3, 4)), a(d, (3, 4))]),
        lambda xp, a, d: xp.stack((a(d, (3,)), a(d, (3,))), axis=-1),
        lambda xp, a, d: xp.stack([a(d, (3, 4)), a("uint8", (3, 4))], axis=1),
        lambda xp, a, d: xp.stack([a(d, (3, 4)), a(d, (3, 5))]),
    ],
    "unstack": _over(lambda xp, x: xp.unstack(x), lambda xp, x: xp.unstack(x, axis=-1)),
    "expand_dims": _over(
        lambda xp, x: xp.expand_dims(x, axis=0),
        lambda xp, x: xp.expand_dims(x, axis=-1),
        lambda xp, x: xp.expand_dims(x, axis=2),
    ),
    "squeeze": [
        lambda xp, a, d: xp.squeeze(a(d, (1, 3, 1)), 0),
        lambda xp, a, d: xp.squeeze(a(d, (1, 3, 1)), axis=(0, -1)),
        lambda xp, a, d: xp.squeeze(a(d, (1, 3, 1)), 1),
    ],
    "flip": _over(lambda xp, x: xp.flip(x), lambda xp, x: xp.flip(x, axis=-1), lambda xp, x: xp.flip(x, axis=(0, 1))),
    "roll": _over(
        lambda xp, x: xp.roll(x, 2), lambda xp, x: xp.roll(x, -1, axis=0), lambda xp, x: xp.roll(x, (1, 2), axis=(0, 1))
    ),
    "tile": _over(lambda xp, x: xp.tile(x, (2,)), lambda xp, x: xp.tile(x, (2, 1, 3)), lambda xp, x: xp.tile(x, (0, 1))),
    "repeat": _over(lambda xp, x: xp.repeat(x, 2), lambda xp, x: xp.repeat(x, 3, axis=-1))
    + [
        lambda xp, a, d: xp.repeat(a(d, (3, 4)), xp.asarray([1, 0, 2]), axis=0),
        lambda xp, a, d: xp.repeat(a(d, (3,)), xp.asarray([1, 2])),
    ],
    "reshape": [
        lambda xp, a, d: xp.reshape(a(d, (3, 4)), (2, -1)),
        lambda xp, a, d: xp.reshape(a(d, (3, 4)), (12,), copy=True),
        lambda xp, a, d: xp.reshape(a(d, (3, 4)), (4, 3), copy=False),
        lambda xp, a, d: xp.reshape(a(d, (3, 4)).T, (12,), copy=False),
        lambda xp, a, d: xp.reshape(a(d, (3, 4)), (5, 2)),
        lambda xp, a, d: xp.reshape(a(d, ()), (1, 1)),
        lambda xp, a, d: xp.reshape(a(d, (0, 3)), (3, 0)),
    ],
    "moveaxis": [
        lambda xp, a, d: xp.moveaxis(a(d, (2, 3, 4)), 0, -1),
        lambda xp, a, d: xp.moveaxis(a(d, (2, 3, 4)), (0, 1), (2, 0)),
        lambda xp, a, d: xp.moveaxis(a(d, (2, 3)), 3, 0),
    ],
    "permute_dims": [
        lambda xp, a, d: xp.permute_dims(a(d, (2, 3, 4)), (2, 0, 1)),
        lambda xp, a, d: xp.permute_dims(a(d, (2, 3)), (0, 0)),
    ],
    "matrix_transpose": _over(lambda xp, x: xp.matrix_transpose(x)),
    "broadcast_to": [
        lambda xp, a, d: xp.broadcast_to(a(d, (3, 1)), (2, 3, 4)),
        lambda xp, a, d: xp.broadcast_to(a(d, ()), (0, 2)),
        lambda xp, a, d: xp.broadcast_to(a(d, (3,)), (4,)),
    ],
    "broadcast_arrays": [lambda xp, a, d: xp.broadcast_arrays(a(d, (3, 1)), a("int8", (2,)), a(d, ()))],
    "matmul": [
        lambda xp, a, d: xp.matmul(a(d, (3, 4)), a(d, (4, 2))),
        lambda xp, a, d: xp.matmul(a(d, (2, 3, 4)), a(d, (4,))),
        lambda xp, a, d: xp.matmul(a(d, (4,)), a(d, (4,))),
        lambda xp, a, d: xp.matmul(a(d, ()), a(d, (4,))),
        lambda xp, a, d: xp.matmul(a(d, (3, 4)), a(d, (3, 4))),
        lambda xp, a, d: xp.matmul(a(d, (2, 1, 3, 4)), a(d, (5, 4, 0))),
        lambda xp, a, d: a(d, (3, 4)) @ a(d, (4, 2)),
    ],
    "vecdot": [
        lambda xp, a, d: xp.vecdot(a(d, (3, 4)), a(d, (4,))),
        lambda xp, a, d: xp.vecdot(a(d, (3, 4)), a(d, (3, 1)), axis=-2),
        lambda xp, a, d: xp.vecdot(a(d, (3, 4)), a(d, (3, 2))),
        lambda xp, a, d: xp.vecdot(a(d, (3, 4)), a(d, (3, 4)), axis=0),
    ],
    "tensordot": [
        lambda xp, a, d: xp.tensordot(a(d, (2, 3, 4)), a(d, (3, 4, 2))),
        lambda xp, a, d: xp.tensordot(a(d, (3, 4)), a(d, (2,)), axes=0),
        lambda xp, a, d: xp.tensordot(a(d, (3, 4)), a(d, (2, 4, 3)), axes=((0, 1), (2, -2))),
        lambda xp, a, d: xp.tensordot(a(d, (3, 4)), a(d, (3, 4)), axes=1),
    ],
    "where": [
        lambda xp, a, d: xp.where(a("bool", (3, 4)), a(d, (3, 4)), a(d, (4,))),
        lambda xp, a, d: xp.where(a("int8", (3,)), a(d, (3,)), a(d, (3,))),
        lambda xp, a, d: xp.where(a("bool", (3,)), a(d, (3,)), 1),
        lambda xp, a, d: xp.where(a("bool", (3,)), 1.5, a(d, (3,))),
        lambda xp, a, d: xp.where(a("bool", (3,)), a(d, (3,)), a("int16", (3,))),
    ],
    "clip": [
        lambda xp, a, d: xp.clip(a(d, (3, 4)), 1, 4),
        lambda xp, a, d: xp.clip(a(d, (3, 4)), max=2.5),
        lambda xp, a, d: xp.clip(a(d, (3, 4))),
        lambda xp, a, d: xp.clip(a(d, (3, 4)), a(d, (4,)) - a(d, (4,)), None),
        lambda xp, a, d: xp.clip(a(d, (3,)), -1000, 1000),
    ],
    "meshgrid": [
        lambda xp, a, d: xp.meshgrid(a(d, (3,)), a(d, (4,))),
        lambda xp, a, d: xp.meshgrid(a(d, (3,)), a(d, (2,)), a(d, (1,)), indexing="ij"),
        lambda xp, a, d: xp.meshgrid(a(d, (3,))),
    ],
    "tril": _over(lambda xp, x: xp.tril(x), lambda xp, x: xp.tril(x, k=-1)),
    "triu": _over(lambda xp, x: xp.triu(x), lambda xp, x: xp.triu(x, k=2)),
    "zeros": [lambda xp, a, d: xp.zeros((2, 3), dtype=getattr(xp, d)), lambda xp, a, d: xp.zeros(3, dtype=getattr(xp, d))],
    "ones": [lambda xp, a, d: xp.ones((2, 0), dtype=getattr(xp, d)), lambda xp, a, d: xp.ones((), dtype=getattr(xp, d))],
    "empty": [lambda xp, a, d: xp.empty((2, 3), dtype=getattr(xp, d)).shape],
    "empty_like": [lambda xp, a, d: xp.empty_like(a(d, (2, 3))).shape],
    "zeros_like": [lambda xp, a, d: xp.zeros_like(a(d, (2, 3))), lambda xp, a, d: xp.zeros_like(a(d, (2, 3)), dtype=xp.int8)],
    "ones_like": [lambda xp, a, d: xp.ones_like(a(d, (2, 3))), lambda xp, a, d: xp.ones_like(a(d, ()), dtype=xp.float64)],
    "full": [
        lambda xp, a, d: xp.full((2, 3), 1, dtype=getattr(xp, d)),
        lambda xp, a, d: xp.full(2, True),
        lambda xp, a, d: xp.full(2, 7),
    ],
    "full_like": [lambda xp, a, d: xp.full_like(a(d, (2, 3)), 1)],
    "eye": [
        lambda xp, a, d: xp.eye(3, dtype=getattr(xp, d)),
        lambda xp, a, d: xp.eye(2, 4, k=1, dtype=getattr(xp, d)),
        lambda xp, a, d: xp.eye(2, 3, k=-7, dtype=getattr(xp, d)),
    ],
    "astype": [
        lambda xp, a, d, e=e: xp.astype(a(d, (3, 4)), getattr(xp, e)) for e in ("bool", "int8", "int64", "float32", "float64")
    ]
    + [lambda xp, a, d: xp.astype(a(d, (3, 4)), getattr(xp, d), copy=False)],
    "asarray": [
        lambda xp, a, d: xp.asarray(a(d, (3, 4))),
        lambda xp, a, d: xp.asarray(a(d, (3, 4)), copy=True),
        lambda xp, a, d: xp.asarray([[1, 0], [0, 1]], dtype=getattr(xp, d)),
        lambda xp, a, d: xp.asarray(True),
        lambda xp, a, d: xp.asarray([1, 2]),
        lambda xp, a, d: xp.asarray(a(d, (3,)), dtype=xp.float64),
    ],
    "positive": [lambda xp, a, d: xp.positive(a(d, (3, 4)))],
}
# without a dtype: made once
ONCE = {
    "arange": [
        lambda xp: xp.arange(5),
        lambda xp: xp.arange(2, 11, 3),
        lambda xp: xp.arange(5, -5, -2, dtype=xp.int16),
        lambda xp: xp.arange(0, 2, 0.25, dtype=xp.float64),
        lambda xp: xp.arange(3, 3),
    ],
    "linspace": [
        lambda xp: xp.linspace(0, 1, 5, dtype=xp.float64),
        lambda xp: xp.linspace(-2, 3, 1, dtype=xp.float64),
        lambda xp: xp.linspace(0, 1, 0, dtype=xp.float64),
        lambda xp: xp.linspace(0, 8, 4, endpoint=False, dtype=xp.float64),
        lambda xp: xp.linspace(5, -3, 9, dtype=xp.float32),
    ],
    "finfo": [
        lambda xp, d=d, w=w: getattr(xp.finfo(getattr(xp, d)), w)
        for d in ("float32", "float64")
        for w in ("bits", "eps", "max", "min", "smallest_normal")
    ],
    "iinfo": [
        lambda xp, d=d, w=w: getattr(xp.iinfo(getattr(xp, d)), w)
        for d in ("int8", "int64", "uint8", "uint64")
        for w in ("bits", "max", "min")
    ],
    "constants": [lambda xp: (xp.e, xp.pi, xp.inf, xp.newaxis)],
    "from_dlpack": [lambda xp: xp.from_dlpack(xp.asarray([1, 2]))],
}
FFT = {
    name: [
        lambda xp, a, d, f=name: getattr(xp.fft, f)(a(d, (3, 4))),
        lambda xp, a, d, f=name: getattr(xp.fft, f)(a(d, (3, 5)), n=7, axis=0, norm="ortho"),
        lambda xp, a, d, f=name: getattr(xp.fft, f)(a(d, (5,)), n=3, norm="forward"),
    ]
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
}
FFT |= {
    name: [
        lambda xp, a, d, f=name: getattr(xp.fft, f)(a(d, (3, 4, 2))),
        lambda xp, a, d, f=name: getattr(xp.fft, f)(a(d, (3, 5)), s=(2, 4), axes=(0, 1), norm="forward"),
    ]
    for name in ("fftn", "ifftn", "rfftn", "irfftn")
}
FFT["fftshift"] = [lambda xp, a, d: xp.fft.fftshift(a(d, (3, 4))), lambda xp, a, d: xp.fft.fftshift(a(d, (3, 4)), axes=1)]
FFT["ifftshift"] = [lambda xp, a, d: xp.fft.ifftshift(a(d, (3, 4))), lambda xp, a, d: xp.fft.ifftshift(a(d, (3, 4)), axes=0)]
FFT["fftfreq"] = [lambda xp, a, d, n=n: xp.fft.fftfreq(n, d=0.5, dtype=getattr(xp, d)) for n in (1, 4, 5)]
FFT["rfftfreq"] = [lambda xp, a, d, n=n: xp.fft.rfftfreq(n, d=0.5, dtype=getattr(xp, d)) for n in (1, 4, 5)]


def _square(a, d, *lead):
    """Well-conditioned matrices."""
    return a(d, (*lead, 3, 3)) + a(d, (*lead, 3, 3)).mT


def _positive(xp, a, d):
    x = a(d, (2, 3, 3))
    return xp.matmul(x, x.mT) + xp.eye(3, dtype=getattr(xp, d)) * 4 if d.startswith("f") else x


# name -> calls whose values are compared; where factors are not unique, what is made of them is
LINALG = {
    "cholesky": [
        lambda xp, a, d: xp.linalg.cholesky(_positive(xp, a, d)),
        lambda xp, a, d: xp.linalg.cholesky(_positive(xp, a, d), upper=True),
    ],
    "det": [lambda xp, a, d: xp.linalg.det(a(d, (2, 3, 3)))],
    "slogdet": [lambda xp, a, d: tuple(xp.linalg.slogdet(_positive(xp, a, d)))],
    "diagonal": [
        lambda xp, a, d: xp.linalg.diagonal(a(d, (2, 3, 4))),
        lambda xp, a, d: xp.linalg.diagonal(a(d, (3, 4)), offset=-1),
    ],
    "trace": [lambda xp, a, d: xp.linalg.trace(a(d, (2, 3, 3))), lambda xp, a, d: xp.linalg.trace(a(d, (3, 4)), offset=1)],
    "eigvalsh": [lambda xp, a, d: xp.linalg.eigvalsh(_square(a, d, 2))],
    "eigh": [lambda xp, a, d: xp.linalg.eigh(_square(a, d)).eigenvalues],
    "inv": [lambda xp, a, d: xp.linalg.inv(_positive(xp, a, d))],
    "pinv": [lambda xp, a, d: xp.linalg.pinv(a(d, (4, 3)))],
    "solve": [lambda xp, a, d: xp.linalg.solve(_positive(xp, a, d), a(d, (2, 3, 2)))],
    "matrix_norm": [
        lambda xp, a, d, o=o: xp.linalg.matrix_norm(a(d, (2, 3, 4)), ord=o) for o in ("fro", "nuc", 1, -1, 2, float("inf"))
    ],
    "vector_norm": [
        lambda xp, a, d, o=o: xp.linalg.vector_norm(a(d, (3, 4)), axis=1, ord=o)
        for o in (2, 1, 0, 3, float("inf"), float("-inf"))
    ]
    + [lambda xp, a, d: xp.linalg.vector_norm(a(d, (3, 4)), keepdims=True)],
    "matrix_power": [lambda xp, a, d, n=n: xp.linalg.matrix_power(_positive(xp, a, d), n) for n in (0, 1, 3, -1)],
    "matrix_rank": [lambda xp, a, d: xp.linalg.matrix_rank(a(d, (2, 3, 4)))],
    "qr": [lambda xp, a, d: xp.abs(xp.linalg.qr(a(d, (2, 4, 3))).R)],
    "svd": [lambda xp, a, d: xp.linalg.svd(a(d, (2, 4, 3)), full_matrices=False).S],
    "svdvals": [lambda xp, a, d: xp.linalg.svdvals(a(d, (2, 4, 3)))],
    "cross": [lambda xp, a, d: xp.linalg.cross(a(d, (2, 3)), a(d, (1, 3)))],
    "outer": [lambda xp, a, d: xp.linalg.outer(a(d, (3,)), a(d, (2,)))],
    "matmul": [lambda xp, a, d: xp.linalg.matmul(a(d, (3, 4)), a(d, (4,)))],
    "matrix_transpose": [lambda xp, a, d: xp.linalg.matrix_transpose(a(d, (2, 3)))],
    "tensordot": [lambda xp, a, d: xp.linalg.tensordot(a(d, (3, 4)), a(d, (3, 4)), axes=2)],
    "vecdot": [lambda xp, a, d: xp.linalg.vecdot(a(d, (3, 4)), a(d, (4,)))],
}
