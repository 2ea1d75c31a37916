"""Samples of PyTorch's core operators, for a dtype: (name of the op, arguments, arguments by name)."""

import math

import torch

INF = math.inf


def core():
    """The overloads in `torch.ops.aten` that PyTorch itself tags as core, in-place and `out=` forms too."""
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            base, _, overload = name[6:].partition(".")
            try:
                target = getattr(getattr(torch.ops.aten, base), overload or "default")
            except AttributeError:
                continue
            if torch.Tag.core in target.tags:
                found.add(str(target).removesuffix(".default"))
    return found


def target_of(name):
    """The op of this name."""
    domain, base, *overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, domain), base), overload[0] if overload else "default")


class Maker:
    """Tensors of one dtype, by a generator of their own."""

    def __init__(self, dtype):
        self.dtype, self.g = dtype, torch.Generator().manual_seed(5)

    def x(self, *shape):
        """Numbers around 0."""
        if self.dtype.is_floating_point:
            return torch.randn(shape, generator=self.g, dtype=self.dtype)
        low, high = (0, 2) if self.dtype is torch.bool else (-4, 5)
        return torch.randint(low, high, shape, generator=self.g).to(self.dtype)

    def unit(self, *shape):
        """In (0.05, 0.95); integers are 1."""
        x = torch.rand(shape, generator=self.g, dtype=torch.float64) * 0.9 + 0.05
        return x.to(self.dtype) if self.dtype.is_floating_point else torch.ones(shape, dtype=self.dtype)

    def i(self, high, *shape):
        """Indices below `high`."""
        return torch.randint(0, high, shape, generator=self.g)

    def distinct(self, *shape):
        """Numbers that are all different, so that places are defined."""
        n = math.prod(shape)
        return (torch.randperm(n, generator=self.g) - n // 2).reshape(shape).to(self.dtype)

    def mask(self, *shape):
        """Truth values."""
        return torch.rand(shape, generator=self.g) > 0.5


def elementwise(m):
    """Ops that broadcast."""
    x = m.x(3, 4)
    for name in (
        "abs asin atan asinh atanh ceil cos cosh erf exp expm1 floor isinf isnan logical_not neg reciprocal relu round sigmoid sign sin sinh "
        "tan tanh trunc alias clone bitwise_not"
    ).split():
        yield name, (x,), {}
    special = (
        torch.tensor([-INF, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, INF, math.nan], dtype=m.dtype) if m.dtype.is_floating_point else x
    )
    for name in "isinf isnan round trunc sign relu floor".split():
        yield name, (special,), {}
    for name in "acos asin atanh log log10 log1p log2 rsqrt sqrt".split():
        yield name, (m.unit(3, 5),), {}
    yield "acosh", (m.unit(3, 5) + 1,), {}
    y, row = m.x(3, 4), m.x(4)
    nonzero = torch.where(y == 0, torch.ones_like(y), y)
    for name in "add sub mul maximum minimum eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor".split():
        yield f"{name}.Tensor" if name not in ("maximum", "minimum") else name, (x, row), {}
    for name in "logical_and logical_or logical_xor atan2".split():
        yield name, (x, y), {}
    for name in "and or xor".split():
        yield f"bitwise_{name}.Scalar_Tensor", (2, x), {}
    yield "copysign.Scalar", (x, -1.5), {}
    yield "ldexp.Tensor", (x, torch.tensor([3, -2, 0, 40])), {}
    if m.dtype.is_floating_point:
        yield "frexp.Tensor", (torch.cat([special, m.x(5) * 1e30, m.x(5) * 1e-30, torch.tensor([1.0, 0.5, 4.0], dtype=m.dtype)]),), {}
    else:
        yield "gcd", (x * 12, row * 18), {}
        yield "lcm", (x * 12, row * 18), {}
    yield "angle", (x,), {}
    for name in "add sub mul eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor".split():
        yield f"{name}.Scalar", (x, 2), {}
    for name in "add.Tensor sub.Tensor".split():
        yield name, (x, y), {"alpha": 3}
    for name in "add.Scalar mul.Scalar div.Scalar lt.Scalar".split():
        yield name, (x, 1.5), {}
    yield "mul.Tensor", (x, torch.tensor(2.5, dtype=torch.float64)), {}
    yield "add.Tensor", (x, torch.arange(4)), {}
    for name in "div remainder fmod".split():
        yield f"{name}.Tensor", (x, nonzero), {}
        yield f"{name}.Scalar", (x, -2), {}
    for mode in ("trunc", "floor", None):
        yield "div.Tensor_mode", (x, nonzero), {"rounding_mode": mode}
        yield "div.Scalar_mode", (x, -3), {"rounding_mode": mode}
    for p in (2, 3, 0.5, -0.5, 2.7):
        yield "pow.Tensor_Scalar", (m.unit(3, 4), p), {}
    yield "pow.Tensor_Tensor", (m.unit(3, 4) + 1, m.x(4).abs() if m.dtype is not torch.bool else m.x(4)), {}
    yield "pow.Scalar", (2, m.x(3, 4).abs() if m.dtype is not torch.bool else x), {}
    for low, high in ((-1, 1), (None, 0.5), (0, None)):
        yield "clamp", (x, low, high), {}
    yield "clamp.Tensor", (x, m.x(4), None), {}
    yield "clamp.Tensor", (x, m.x(1, 4), m.x(3, 1)), {}
    yield "hardtanh", (x, -0.5, 1), {}
    yield "elu", (x,), {}
    yield "elu", (x, 0.7, 1.2, 0.5), {}
    yield "leaky_relu", (x, 0.2), {}
    yield "gelu", (x,), {}
    yield "gelu", (x,), {"approximate": "tanh"}
    yield "where.self", (m.mask(3, 4), x, row), {}
    yield "where.self", (m.mask(3, 1), x, torch.tensor(1.5)), {}
    for to in (torch.float32, torch.int64, torch.bool, torch.float64):
        yield "_to_copy", (x,), {"dtype": to}
    yield "fill.Scalar", (x, 1), {}
    yield "full_like", (x, 1), {}
    yield "copy", (x, torch.arange(4)), {}
    yield "masked_scatter", (x, m.mask(3, 4), m.x(4, 4)), {}


def reductions(m):
    """Ops over axes."""
    x, d = m.x(2, 3, 4), m.distinct(2, 3, 4)
    for dim, keep in (([1], False), ([0, 2], True), ([-1], False), ([], False), (None, True)):
        for name in "sum.dim_IntList mean.dim".split():
            yield name, (x, dim, keep), {}
        yield "var.dim", (x, dim, True, keep), {}
        for correction in (1, 0, 2.5):
            yield "var.correction", (x, dim), {"correction": correction, "keepdim": keep}
    yield "sum.dim_IntList", (x, [1]), {"dtype": torch.float64}
    for name in "cummax cummin logcumsumexp".split():
        yield name, (d, 1), {}
    for name in "_is_all_true _is_any_true".split():
        yield name, (x > -2,), {}
    yield "bincount", (m.i(5, 20),), {}
    yield "bincount", (m.i(5, 20), m.x(20), 8), {}
    yield "histc", (x, 5, -1, 1.5), {}
    yield "histc", (x, 4), {}
    for dim, keep in (([1], False), ([0, -1], True), ([], False)):
        for name in "amax amin".split():
            yield name, (x, dim, keep), {}
    for name in "mean prod any".split():
        yield name, (x,), {}
    for name in "any.dim prod.dim_int".split():
        yield name, (x, 1, True), {}
    yield "any.dims", (x, [0, 2]), {}
    yield "any.dims", (x, None, True), {}
    for name in "argmax argmin".split():
        for dim, keep in ((None, False), (1, True), (-1, False)):
            yield name, (d, dim, keep), {}
    for name in "max.dim min.dim".split():
        yield name, (d, 1, False), {}
        yield name, (d, -1, True), {}
    yield "cumsum", (x, 1), {}
    yield "cumsum", (x, -1), {"dtype": torch.float32}
    for name in "_softmax _log_softmax".split():
        yield name, (x, 1, False), {}
    yield "sort", (d, 1, False), {}
    yield "kthvalue", (d, 2, 0), {}
    yield "kthvalue", (d, 1, -1, True), {}
    yield "median.dim", (d, 1), {}
    yield "median.dim", (torch.where(d > 0.5, torch.nan, d), 0, True), {}
    yield "median", (d,), {}
    yield "median", (torch.where(d > 0.5, torch.nan, d),), {}
    yield "sort", (d, -1, True), {}
    yield "topk", (d, 2, -1, True, True), {}
    yield "topk", (d, 2, 1, False, True), {}
    scalar = m.x()
    for name in "sum.dim_IntList mean.dim amax".split():
        yield name, (scalar, [0]), {}
    yield "argmax", (scalar, 0), {}
    yield "_softmax", (scalar, 0, False), {}


def shapes(m):
    """Views, parts, joins and paddings."""
    x = m.x(2, 3, 4)
    yield "view", (x, [6, -1]), {}
    yield "expand", (m.x(3, 1), [2, -1, 4]), {}
    yield "permute", (x, [2, 0, -2]), {}
    yield "unsqueeze", (x, -2), {}
    yield "squeeze.dim", (m.x(2, 1, 3), 1), {}
    yield "squeeze.dim", (x, 1), {}
    yield "squeeze.dims", (m.x(1, 2, 1), [0, 1, 2]), {}
    yield "select.int", (x, 1, -1), {}
    for start, end, step in ((None, None, 1), (1, 9223372036854775807, 2), (-3, -1, 1), (0, 100, 3)):
        yield "slice.Tensor", (x, 2, start, end, step), {}
    yield "select_scatter", (x, m.x(2, 4), 1, 2), {}
    yield "slice_scatter", (x, m.x(2, 3, 2), 2, 1, None, 2), {}
    yield "slice_scatter", (x, m.x(2, 3, 4), 2), {}
    yield "split_with_sizes", (x, [1, 3], -1), {}
    yield "cat", ([x, m.x(2, 1, 4), torch.arange(8).reshape(2, 1, 4)], 1), {}
    yield "cat", ([torch.zeros(0), x], 0), {}
    yield "flip", (x, [0, -1]), {}
    yield "repeat", (m.x(2, 3), [2, 1, 3]), {}
    yield "diagonal", (x, 1, 1, -1), {}
    yield "as_strided", (x, [2, 3], [1, 5], 2), {}
    yield "constant_pad_nd", (x, [1, 2, -1, 0]), {}
    yield "constant_pad_nd", (x, [0, 1], 1), {}
    yield "reflection_pad1d", (m.x(1, 2, 5), [2, 1]), {}
    yield "reflection_pad2d", (m.x(1, 2, 5, 4), [2, 1, 3, 0]), {}
    yield "reflection_pad3d", (m.x(1, 1, 3, 4, 3), [2, 1, 1, 0, 1, 2]), {}
    yield "replication_pad2d", (m.x(1, 2, 5, 4), [2, 1, 3, 0]), {}
    yield "replication_pad3d", (m.x(1, 1, 3, 4, 3), [2, 1, 1, 0, 1, 2]), {}
    for name in "sym_size.int sym_stride.int".split():
        yield name, (x, 1), {}
    for name in "sym_numel sym_storage_offset".split():
        yield name, (x,), {}
    yield "_local_scalar_dense", (m.x(),), {}


def indexing(m):
    """Reading and writing at indices."""
    x, index = m.x(4, 5), m.i(4, 3, 5)
    yield "embedding", (m.x(6, 3), m.i(6, 2, 4)), {}
    yield "embedding", (m.x(6, 3), m.i(6, 2, 4), 2), {}
    yield "embedding", (m.x(6, 3), torch.tensor([[1, 4, 1], [2, 1, 4]]), 4, True), {}
    yield "gather", (x, 0, index), {}
    yield "gather", (x, -1, m.i(5, 2, 3)), {}
    yield "index_select", (x, 1, torch.tensor([4, 0, 0])), {}
    yield "index.Tensor", (x, [torch.tensor([0, -1]), None]), {}
    yield "index.Tensor", (m.x(2, 3, 4), [m.i(2, 3), None, m.i(4, 2, 1)]), {}
    yield "index.Tensor", (x, [m.mask(4, 5)]), {}
    yield "index_put", (x, [torch.tensor([0, 2]), None], m.x(5)), {}
    yield "index_put", (x, [m.mask(4, 5)], m.x()), {}
    yield "index_put", (x, [m.i(4, 6), m.i(5, 6)], m.x(6), True), {}
    yield "index_put", (m.x(3, 4, 2), [None, m.i(4, 6)], m.x(3, 6, 2), True), {}
    rows = torch.stack([torch.randperm(4, generator=m.g)[:3] for _ in range(5)], 1)
    yield "scatter.src", (x, 0, rows, m.x(4, 5)), {}
    yield "scatter.value", (x, 0, index, 2), {}
    yield "scatter_add", (x, 0, index, m.x(3, 5)), {}
    for reduce in ("add", "multiply"):
        yield "scatter.reduce", (x, 0, rows, m.x(4, 5)), {"reduce": reduce}
        yield "scatter.value_reduce", (x, 0, rows, 2), {"reduce": reduce}
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include in (True, False):
            yield "scatter_reduce.two", (x, 0, index, m.x(3, 5), reduce), {"include_self": include}
    yield "nonzero", (x,), {}


def creation(m):
    """New tensors."""
    d = {"dtype": m.dtype}
    yield "full", ([2, 3], 1.5), d
    yield "full", ([2, 3], 2), {}
    yield "arange.start_step", (1, 7, 2), {} if m.dtype is torch.bool else d
    yield "arange.start_step", (0.5, 3, 0.25), {}
    yield "scalar_tensor", (2.0,), d
    for name in "bartlett blackman hamming kaiser".split():
        yield f"{name}_window", (7,), {}
        yield f"{name}_window.periodic", (6, False), {"dtype": torch.float64}
    yield "hamming_window.periodic_alpha_beta", (6, True, 0.6, 0.3), {}
    yield "kaiser_window.beta", (6, True, 5.0), {}
    for name in "fft_fftfreq fft_rfftfreq".split():
        yield name, (7, 0.5), {}


def products(m):
    """Matrices, distances, transforms."""
    yield "mm", (m.x(3, 4), m.x(4, 5)), {}
    yield "bmm", (m.x(2, 3, 4), m.x(2, 4, 5)), {}
    yield "addmm", (m.x(5), m.x(3, 4), m.x(4, 5)), {}
    yield "addmm", (m.x(3, 5), m.x(3, 4), m.x(4, 5)), {"beta": 2, "alpha": 3}
    for ends in ([2, 2, 7], [0, 7, 7], [7, 7, 7]):  # groups of the rows, some of them empty
        yield "_grouped_mm", (m.x(7, 4), m.x(3, 4, 8), torch.tensor(ends, dtype=torch.int32)), {}
    yield "_grouped_mm", (m.x(3, 2, 4), m.x(3, 4, 8)), {}
    yield "addmv", (m.x(3), m.x(3, 4), m.x(4)), {"beta": 2, "alpha": 3}
    yield "addbmm", (m.x(3, 5), m.x(2, 3, 4), m.x(2, 4, 5)), {}
    yield "_trilinear", (m.x(2, 3), m.x(4, 3, 5), m.x(2, 5), [1, 3], [0], [1, 2], [2, 3]), {}
    for p in (2.0, 1.0, 0.0, 3.0, INF):
        yield "_cdist_forward", (m.x(2, 3, 4), m.x(2, 5, 4), p, None), {}
        yield "_pdist_forward", (m.x(4, 3), p), {}
    for norm in (0, 1, 2):
        yield "_fft_r2c", (m.x(3, 6), [1], norm, True), {}
        yield "_fft_c2r", (torch.fft.rfftn(torch.randn(3, 6, generator=m.g)).to(torch.complex64), [0, 1], norm, 6), {}
    yield "_fft_r2c", (m.x(3, 5), [0, 1], 0, False), {}


def images(m):
    """Convolutions, pools, resizing, and their gradients."""
    x = m.x(2, 4, 7, 6)
    yield "convolution", (x, m.x(3, 4, 3, 2), m.x(3), [2, 1], [1, 0], [1, 1], False, [0, 0], 1), {}
    yield "convolution", (x, m.x(4, 2, 3, 3), None, [1, 1], [1, 1], [2, 1], False, [0, 0], 2), {}
    yield "convolution", (m.x(2, 4, 7), m.x(4, 1, 3), m.x(4), [1], [1], [1], False, [0], 4), {}
    yield "convolution", (m.x(1, 2, 3, 4, 3), m.x(2, 2, 2, 2, 2), None, [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1), {}
    yield "convolution", (x, m.x(4, 3, 3, 2), m.x(6), [2, 1], [1, 0], [1, 1], True, [1, 0], 2), {}
    for size, stride, padding, ceil in (
        ([3, 2], [2, 1], [1, 1], False),
        ([3, 3], [2, 2], [1, 1], True),
        ([2, 2], [], [0, 0], False),
    ):
        yield "max_pool2d_with_indices", (x, size, stride, padding, [1, 1], ceil), {}
        for counted in (True, False):
            yield "avg_pool2d", (x, size, stride, padding, ceil, counted), {}
    yield "max_pool2d_with_indices", (x, [2, 2], [1, 1], [0, 0], [2, 2]), {}
    yield "avg_pool2d", (x, [2, 2], [], [0, 0], False, True, 3), {}
    yield "max_pool3d_with_indices", (m.x(1, 2, 4, 5, 4), [2, 2, 2], [2, 1, 2], [1, 0, 0]), {}
    yield "avg_pool1d", (m.x(2, 3, 7), [3], [2], [1]), {}
    yield "avg_pool3d", (m.x(1, 2, 4, 5, 4), [2, 2, 2], [2, 1, 2], [1, 0, 0]), {}
    yield "adaptive_avg_pool1d", (m.x(2, 3, 7), [3]), {}
    yield "_adaptive_avg_pool2d", (x, [3, 1]), {}
    yield "_adaptive_avg_pool2d", (x, [1, 1]), {}
    yield "_adaptive_avg_pool3d", (m.x(1, 2, 4, 5, 4), [2, 3, 2]), {}
    yield "upsample_nearest2d.vec", (x, [9, 3], None), {}
    yield "upsample_nearest2d.vec", (x, None, [1.7, 2.0]), {}
    for corners in (False, True):
        yield "upsample_bilinear2d.vec", (x, [9, 4], corners, None), {}
        yield "upsample_bilinear2d.vec", (x, None, corners, [1.7, 0.6]), {}
    grid = torch.rand(2, 3, 5, 2, generator=m.g).to(m.dtype) * 2.4 - 1.2 if m.dtype.is_floating_point else m.x(2, 3, 5, 2)
    for mode, padding, corners in ((0, 0, False), (1, 1, True), (2, 2, False)):
        yield "grid_sampler_2d", (x, grid, mode, padding, corners), {}
    if not m.dtype.is_floating_point:
        return
    grid = torch.rand(2, 3, 2, 4, 3, generator=m.g).to(m.dtype) * 2.4 - 1.2
    for mode, padding, corners in ((0, 0, False), (1, 1, True), (0, 2, False)):
        yield "grid_sampler_3d", (m.x(2, 2, 3, 4, 5), grid, mode, padding, corners), {}
    for way in ("bilinear", "bicubic"):
        yield f"_upsample_{way}2d_aa", (x, [3, 4], False), {}
        yield f"_upsample_{way}2d_aa.vec", (x, None, False, [3.0, 0.5]), {}
    yield "convolution_backward", (
        m.x(2, 3, 5, 4), x, m.x(3, 4, 3, 3), [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True],
    ), {}  # fmt: skip
    yield "_adaptive_avg_pool2d_backward", (m.x(2, 4, 3, 2), x), {}
    yield "avg_pool2d_backward", (m.x(2, 4, 3, 3), x, [3, 2], [2, 2], [0, 0], False, True, None), {}
    yield "col2im", (m.x(2, 12, 16), [5, 6], [2, 2], [1, 2], [0, 0], [1, 1]), {}
    d = m.distinct(2, 4, 7, 6)
    places = torch.ops.aten.max_pool2d_with_indices(d, [3, 2], [2, 2])[1]
    yield "max_pool2d_with_indices_backward", (m.x(2, 4, 3, 3), d, [3, 2], [2, 2], [0, 0], [1, 1], False, places), {}


def normalisations(m):
    """Normalisations, their gradients, bags of embeddings."""
    x, w, b = m.x(3, 4, 5), m.x(4), m.x(4)
    mean, var = m.x(4), m.unit(4)
    yield "_native_batch_norm_legit_no_training", (x, w, b, mean, var, 0.1, 1e-5), {}
    yield "_native_batch_norm_legit.no_stats", (x, w, b, True, 0.1, 1e-5), {}
    yield "_native_batch_norm_legit", (x, w, b, mean.clone(), var.clone(), True, 0.1, 1e-5), {}
    yield "_native_batch_norm_legit", (x, None, None, mean.clone(), var.clone(), True, 0.2, 1e-3), {}
    yield "_batch_norm_with_update_functional", (x, w, b, mean.clone(), var.clone(), 0.1, 1e-5), {}
    yield "embedding_renorm", (m.x(6, 3), torch.tensor([[1, 4], [4, 0]]), 1.0, 2.0), {}
    yield "native_layer_norm", (x, [4, 5], m.x(4, 5), m.x(4, 5), 1e-5), {}
    yield "native_layer_norm", (x, [5], None, None, 1e-5), {}
    yield "native_group_norm", (x, w, b, 3, 4, 5, 2, 1e-5), {}
    for mode in (0, 1, 2):
        yield "_embedding_bag", (m.x(6, 3), m.i(6, 7), torch.tensor([0, 3, 3]), False, mode), {}
    if m.dtype.is_floating_point:
        _, mu, r = torch.ops.aten.native_layer_norm(x, [5], None, None, 1e-5)
        yield "native_layer_norm_backward", (m.x(3, 4, 5), x, [5], mu, r, m.x(5), m.x(5), [True, True, True]), {}
        _, mu, r = torch.ops.aten.native_group_norm(x, w, b, 3, 4, 5, 2, 1e-5)
        yield "native_group_norm_backward", (m.x(3, 4, 5), x, mu, r, w, 3, 4, 5, 2, [True, True, True]), {}
        yield "embedding_dense_backward", (m.x(2, 3, 4), m.i(5, 2, 3), 5, 1, False), {}
        yield "embedding_dense_backward", (m.x(2, 3, 4), m.i(5, 2, 3), 5, -1, True), {}


def matrices(m):
    """Linear algebra, of matrices that are far from singular."""
    if not m.dtype.is_floating_point:
        return
    a = m.x(2, 4, 4) + 4 * torch.eye(4, dtype=m.dtype)
    good = a @ a.mT + torch.eye(4, dtype=m.dtype)
    for name in "_linalg_det _linalg_slogdet linalg_inv_ex linalg_matrix_exp".split():
        yield name, (a / 4,), {}
    yield "_linalg_det", (m.x(4, 4),), {}
    for left in (True, False):
        yield "_linalg_solve_ex", (a, m.x(2, 4, 4)), {"left": left}
        for upper in (True, False):
            yield "linalg_solve_triangular", (a, m.x(2, 4, 4)), {"upper": upper, "left": left}
    yield "_linalg_solve_ex", (a, m.x(2, 4)), {}
    yield "linalg_solve_triangular", (a, m.x(2, 4, 3)), {"upper": True, "unitriangular": True}
    for upper in (True, False):
        factor = torch.linalg.cholesky(good, upper=upper)
        yield "linalg_cholesky_ex", (good,), {"upper": upper}
        yield "cholesky", (good, upper), {}
        yield "cholesky_solve", (m.x(2, 4, 3), factor, upper), {}
        yield "cholesky_inverse", (factor, upper), {}
    for mode in ("reduced", "complete", "r"):
        yield "linalg_qr", (m.x(2, 5, 3), mode), {}
    yield "_linalg_svd", (m.x(2, 4, 3), False, False), {}
    yield "_linalg_eigh", (good, "U", False), {}
    yield "linalg_lu", (a,), {}
    for matrix in (a, m.x(2, 5, 3), m.x(2, 3, 5)):
        yield "linalg_lu_factor_ex", (matrix,), {}
        factors, pivots, _ = torch.linalg.lu_factor_ex(matrix)
        yield "lu_unpack", (factors, pivots), {}
    yield "lu_unpack", (factors, pivots, False), {}
    factors, pivots, _ = torch.linalg.lu_factor_ex(a)
    for left, adjoint in ((True, False), (True, True), (False, False), (False, True)):
        yield "linalg_lu_solve", (factors, pivots, m.x(2, 4, 4)), {"left": left, "adjoint": adjoint}
    indefinite = a.mT + a
    indefinite[0].diagonal().zero_()
    factors, pivots, _ = torch.linalg.ldl_factor_ex(indefinite)
    yield "linalg_ldl_factor_ex", (indefinite,), {}
    yield "linalg_ldl_factor_ex", (torch.zeros_like(a),), {"hermitian": True}
    yield "linalg_ldl_solve", (factors, pivots, m.x(2, 4, 3)), {}
    reflectors, tau = torch.geqrf(m.x(5, 3))
    yield "geqrf", (m.x(2, 5, 3),), {}
    yield "linalg_householder_product", (reflectors, tau), {}
    yield "ormqr", (reflectors, tau, m.x(5, 2)), {}
    yield "ormqr", (reflectors, tau, m.x(2, 5), False, True), {}
    for upper, transpose in ((True, False), (False, True)):
        yield "triangular_solve", (m.x(2, 4, 3), a, upper, transpose, upper), {}
    yield "linalg_pinv.atol_rtol_tensor", (a + 3 * good,), {"hermitian": True}
    yield "linalg_pinv.atol_rtol_tensor", (a[:, :0, :0],), {"atol": torch.tensor(0.5, dtype=m.dtype), "hermitian": True}
    yield "linalg_pinv.atol_rtol_tensor", (m.x(2, 4, 3),), {}
    yield "linalg_pinv.atol_rtol_tensor", (m.x(2, 4, 3),), {"rtol": torch.tensor(0.3, dtype=m.dtype)}
    yield "linalg_pinv.atol_rtol_tensor", (m.x(2, 4, 3),), {"atol": torch.tensor(0.5, dtype=m.dtype)}
    yield "linalg_lstsq", (m.x(2, 5, 3), m.x(2, 5, 2)), {}


def recurrent(m):
    """Layers over steps."""
    if not m.dtype.is_floating_point:
        return
    for name, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
        for layers, directions, biases, first in ((1, 1, True, False), (2, 2, True, True), (1, 2, False, False)):
            params = []
            for i in range(layers):
                for _ in range(directions):
                    width = 3 if not i else 4 * directions
                    params += [m.x(gates * 4, width) / 2, m.x(gates * 4, 4) / 2, *([m.x(gates * 4), m.x(gates * 4)] if biases else [])]
            state = [m.x(layers * directions, 2, 4) for _ in range(1 + (name == "lstm"))]
            x = m.x(2, 5, 3) if first else m.x(5, 2, 3)
            hx = state if name == "lstm" else state[0]
            yield f"{name}.input", (x, hx, params, biases, layers, 0.0, False, directions == 2, first), {}


def special(m):
    """Functions of probability and physics."""
    if m.dtype is torch.bool:
        return
    x = m.x(3, 7) * 3
    names = "i0 i0e i1 i1e bessel_j0 bessel_j1 modified_bessel_i0 modified_bessel_i1 spherical_bessel_j0 airy_ai erfcx"
    for name in names.split():
        yield name if name == "i0" else f"special_{name}", (x,), {}
    positive = m.unit(3, 7) * 9
    for name in "bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1".split():
        yield f"special_{name}", (positive,), {}
    polynomials = [f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"]
    for name in (*polynomials, "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"):
        yield f"special_{name}", (m.unit(7), torch.tensor([[-1], [0], [3], [5]]).to(m.dtype)), {}
        yield f"special_{name}.n_scalar", (m.unit(7), 4), {}
    yield "erfinv", (m.unit(3, 7) * 2 - 1,), {}
    yield "special_ndtri", (m.unit(3, 7),), {}
    yield "special_zeta", (positive + 1.5, m.unit(7) + 1), {}
    yield "special_zeta.other_scalar", (positive + 1.5, 2.0), {}
    yield "special_zeta.self_scalar", (2.0, positive), {}
    yield "polygamma", (2, positive), {}
    if m.dtype.is_floating_point:
        yield "igamma", (positive, m.unit(7) * 5), {}
        yield "igammac", (positive, m.unit(7) * 5), {}


def ordered(m):
    """What sorts, counts, and writes at places."""
    x, gaps = m.x(4, 6), m.distinct(4, 6)
    if m.dtype.is_floating_point:
        gaps[[0, 2, 3], [1, 1, 5]] = math.nan
    for dim, keep in ((0, False), (1, True)):
        yield "mode", (x if m.dtype is torch.bool else x.round(), dim, keep), {}
        if m.dtype is not torch.bool:
            yield "nanmedian.dim", (gaps, dim, keep), {}
    if m.dtype.is_floating_point:
        yield "nanmedian", (gaps,), {}
        yield "dist", (x, m.x(6), 3.0), {}
        yield "_unique2", (torch.tensor([2, math.nan, 1, 2, math.nan], dtype=m.dtype), True, True, True), {}
    rows = m.x(5, 2, 3).round().clamp(-1, 1)[[0, 1, 1, 0, 3]] if m.dtype is not torch.bool else m.x(5, 2, 3)
    yield "_unique", (rows, True, True), {}
    for dim in (0, -1):
        yield "unique_dim", (rows, dim, True, True, True), {}
        yield "unique_dim_consecutive", (rows, dim, True, True), {}
    yield "unique_consecutive", (rows, True, True), {}
    yield "unique_consecutive", (rows[:0], True, True), {}
    yield "unique_consecutive", (rows, True, True, 0), {}
    yield "put", (x, torch.tensor([[1, 7], [20, 0]]), m.x(2, 2)), {}
    if m.dtype is not torch.bool:
        yield "put", (x, torch.tensor([[1, 7], [1, 0]]), m.x(2, 2), True), {}
        yield "index_reduce", (x, 1, torch.tensor([1, 1, 5]), m.x(4, 3), "amax"), {}
        yield "index_reduce", (x, 0, torch.tensor([1, 1, 3]), m.x(3, 6), "prod"), {"include_self": False}
    yield "diagonal_scatter", (x, m.x(4)), {}
    yield "diagonal_scatter", (m.x(3, 4, 6), m.x(4, 2), 1, -1, 0), {}
    yield "nonzero_static", (x,), {"size": 30}
    yield "nonzero_static", (x.new_tensor([[0, 1], [1, 0]]),), {"size": 1, "fill_value": 7}
    yield "nonzero_static", (x[:0],), {"size": 2}
    yield "narrow_copy", (x, 1, 2, 3), {}
    if m.dtype is not torch.bool:
        for reduce in ("amin", "mean"):
            yield "index_reduce", (m.x(), 0, torch.tensor([0]), m.x(), reduce), {}
    yield "as_strided_scatter", (x, m.x(2, 3), [2, 3], [1, 5], 2), {}
    if m.dtype.is_floating_point:
        edges = torch.tensor([-1.5, -0.25, 0.0, 0.75, 1.25], dtype=m.dtype)
        inside = torch.cat([m.x(40), edges, edges[[0, -1]] * 2])
        for weight, density in ((None, False), (m.x(47), False), (None, True)):
            yield "histogram.bins_tensor", (inside, edges), {"weight": weight, "density": density}
            given = {"weight": None if weight is None else m.x(4, 10), "density": density}
            yield "histogram.bin_ct", (m.x(4, 10), 7), {"range": [-1.03, 0.97], **given}
        yield "histogram.bin_ct", (m.x(30), 4), {}
        yield "histogram.bin_ct", (m.x(5) * 0 + 2, 3), {}
        yield "histogram.bin_ct", (m.x(0), 3), {}
        points, sides = m.x(40, 3), [edges, torch.tensor([-9.0, 0.5, 9.0], dtype=m.dtype), edges[1:3]]
        for weight, density in ((None, False), (m.x(40), False), (None, True)):
            given = {"weight": weight, "density": density}
            yield "_histogramdd_from_bin_tensors", (points, sides), given
            yield "_histogramdd_from_bin_cts", (points, [4, 1, 3]), {"range": [-1.03, 0.97, -0.5, 0.7, -2.1, 2.3], **given}
        for args in ((points, [2, 3, 4]), (m.x(2, 5, 2), [3, 2]), (m.x(0, 2), [1, 2])):
            yield "_histogramdd_bin_edges", args, {}
            yield "_histogramdd_from_bin_cts", args, {}
        runs = torch.tensor([2, 0, 3])
        for reduce in ("sum", "mean", "max", "min", "prod"):
            yield "segment_reduce", (m.x(5, 3), reduce), {"lengths": runs}
            yield "segment_reduce", (m.x(5), reduce), {"lengths": runs, "initial": 0.5}
        yield "segment_reduce", (m.x(2, 5, 3), "max"), {"lengths": torch.stack([runs, runs.flip(0)]), "axis": 1}
        yield "segment_reduce", (m.x(5, 2), "sum"), {"offsets": torch.tensor([0, 2, 5])}
        yield "fractional_max_pool2d", (m.x(2, 3, 7, 6), [2, 3], [3, 2], torch.rand(2, 3, 2, dtype=m.dtype)), {}
        yield "fractional_max_pool3d", (m.x(2, 3, 7, 6, 5), [2, 3, 1], [3, 2, 4], torch.rand(2, 3, 3, dtype=m.dtype)), {}
    yield "tril_indices", (3, 5, 1), {}
    yield "triu_indices", (5, 3, -1), {"dtype": torch.int32}
    if m.dtype.is_floating_point:
        labels, steps, many = m.i(4, 2, 3) + 1, torch.tensor([7, 6]), torch.tensor([3, 2])
        yield "_ctc_loss.Tensor", (m.x(7, 2, 5).log_softmax(2), labels, steps, many), {}
        yield "_ctc_loss", (m.x(7, 2, 5).log_softmax(2), labels, [7, 6], [3, 2], 0, True), {}


FAMILIES = (elementwise, reductions, shapes, indexing, creation, products, images, normalisations, matrices, recurrent, special, ordered)
