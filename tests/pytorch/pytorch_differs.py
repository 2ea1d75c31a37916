"""Where `tengen.pytorch` is meant to differ from PyTorch's samples, with the reason of each; for `pytorch_samples.py`."""

from __future__ import annotations

from typing import Any

# numbers are drawn or left unset: structure, dtypes and shapes are compared
DRAWN = set(
    "bernoulli multinomial normal rand randn randint randperm rand_like randn_like randint_like nn.functional.dropout nn.functional.dropout2d "
    "nn.functional.dropout3d nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.rrelu "
    "empty empty_like empty_permuted empty_strided new_empty new_empty_strided uniform cauchy exponential geometric log_normal "
    "pca_lowrank svd_lowrank "
    "nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.scaled_dot_product_attention_dropout"
    .split()
)
# results whose signs (or complex phases) are open
PHASE = set("svd linalg.svd linalg.eigh linalg.eig linalg.qr qr symeig".split())

MODULES_SKIPPED = {"nn.LinearCrossEntropyLoss"}
# what PyTorch's own compiler and layers are made of, and what hardly a program calls
RARE = set(
    "as_strided_scatter native_batch_norm native_layer_norm native_group_norm native_dropout_backward "
    "constant_pad_nd slice empty_permuted empty_strided new_empty_strided nonzero_static hash_tensor histogramdd grid_sampler_2d "
    "grid_sampler_3d fill chalf resize_as_ zero_ max_pool2d_with_indices_backward "
    "nn.functional.linear_cross_entropy nn.functional.multi_head_attention_forward fft.hfft2 fft.hfftn fft.ihfft2 fft.ihfftn"
    .split()
)


def SKIPPED(name: str) -> bool:
    """Operators that are outside of the dialect: sparse, quantised, private, and Python's references of others."""
    last = name.rpartition(".")[2]
    if name.endswith("_copy") or name in RARE:
        return True
    if name.startswith("__"):
        return name == "__rdiv__"  # of Python 2
    return last.startswith("_") or name.startswith((
        "sparse.", "torch.ops", "ops.", "_refs", "jiterator", "to_sparse", "masked.", "nested", "torch._", "_",
    ))


# (part of the name, class or "*", part of the text or of the call) -> why
EXPECTED: list[tuple[str, str, str, str]] = [
    ("", "not raised", "must be Tensor, not", "a number is taken where PyTorch wants a tensor"),
    ("", "not raised", "invalid combination of arguments", "a number is taken where PyTorch wants a tensor"),
    ("", "other error", "must be Tensor, not", "a number where PyTorch wants a tensor is another error"),
    ("", "other error", "invalid combination of arguments", "a number where PyTorch wants a tensor is another error"),
    ("", "not raised", "refer to a single memory location", "results are computed before out= is written"),
    ("", "not raised", "more than one element of the written-to tensor", "results are computed before out= is written"),
    ("", "refused", "has no meaning for complex numbers here", "no rule for complex numbers"),
    ("", "refused", "would lose the imaginary parts", "a complex tensor is not cast to a real dtype in silence"),
    ("", "refused", "which it cannot hold", "a method that writes does not round its result to integers"),
    ("as_strided", "*", "", "places are counted among the tensor's elements: docs/pytorch.md"),
    ("kthvalue", "numbers", "result 1", "which of equal elements is told is open"),
    ("topk", "numbers", "result 1", "which of equal elements is told is open"),
    ("sort", "numbers", "int64", "without stable=True the order of equal elements is open in PyTorch; here it is kept"),
    ("sort", "numbers", "bool", "without stable=True the order of equal elements is open in PyTorch; here it is kept"),
    ("ctc_loss", "gradient", "", "PyTorch's gradient is that of the scores before log_softmax, here it is that of log_probs"),
    ("CTCLoss", "gradient", "", "PyTorch's gradient is that of the scores before log_softmax, here it is that of log_probs"),
    ("cholesky_", "gradient", "", "the triangle that is not read has no gradient here"),
    ("cholesky", "gradient", "upper=True", "the gradient is Hermitian, as the matrix; PyTorch's has complex numbers on the diagonal"),
    ("istft", "refused", "would be lost", "the window's values are looked at, so it has no gradient"),
    ("pinv.hermitian", "gradient", "", "the sample is not Hermitian, where PyTorch's gradient is that of no function"),
    ("quantile", "refused", "no gradient flows to q", "no gradient of the shares"),
    ("lu", "refused", "have no gradient here", "no gradient of LU factors of matrices that are not square"),
    ("linalg.eig", "numbers", "", "the order of eigenvalues is open"),
    ("linalg.lu_factor", "refused", "", "no gradient of LU factors of matrices that are not square"),
    ("special.bessel_", "numbers", "", "PyTorch's are off by up to 1e-7: mpmath gives ours"),
    ("special.airy_ai", "numbers", "", "PyTorch's are off by up to 1e-9: mpmath gives ours"),
    ("polygamma", "numbers", "", "PyTorch's trigamma is off by 4e-11, and by 2e-5 near poles in float32: mpmath gives ours"),
    ("max_unpool", "gradient", "", "of elements that go to one place the one that is written has a gradient, in PyTorch all"),
    ("hardsigmoid", "gradient", "float64", "PyTorch's 1/6 is of float32"),
    ("optim.", "other error", "'NoneType' object is not iterable", "the parameters are looked at first"),
    ("svd", "refused", "have no gradient", "no gradient of the full matrices, which are not unique"),
    ("scatter_reduce.prod", "refused", "has no gradient in mode", "no gradient of products at places"),
    ("istft", "numbers", "", "of spectra that no real signal has, both halves count here"),
    ("add", "dtype", "beta=0.", "PyTorch rounds beta and alpha to integers; here integers times floats are floats"),
    ("addr", "dtype", "bool", "sums of bools are int64"),
    ("scaled_dot_product_attention", "numbers", "dropout_p=0.5", "elements that are dropped are drawn"),
    ("nn.BatchNorm", "not raised", "eps must be positive", "eps=0 divides by the deviation itself"),
    ("nn.RNN", "not raised", "", "dtypes are promoted; bias=0 is False"),
    ("nn.GRU", "not raised", "", "dtypes are promoted; bias=0 is False"),
    ("nn.LSTM", "not raised", "", "dtypes are promoted; bias=0 is False"),
    ("nn.CircularPad1d", "not raised", "", "the last axis is padded, whatever axes stand before it"),
    ("Cell", "*", "must be True or False", "an activation in the place of bias is told first"),
    ("nn.FractionalMaxPool3d", "structure", "", "Tengen's own layer, whose state dict holds arrays"),
    ("nn.FractionalMaxPool2d", "structure", "", "Tengen's own layer, whose state dict holds arrays"),
    ("optim.", "not raised", "invalid param type", "one parameter alone is taken, as in MegEngine"),
    ("nn.functional.conv", "not raised", "should be the same", "dtypes are promoted"),
    ("scatter", "refused", "mode 'add' does not take bool", "bools are not added; scatter_reduce takes them"),
    ("scatter", "not raised", "self.dtype to be equal to src.dtype", "the source is cast"),
    ("multinomial", "not raised", "", "probabilities may be integers; a result is cast to the dtype of out="),
    ("gather", "not raised", "Expected out tensor", "a result is cast to the dtype of out="),
    ("cat", "not raised", "not resizable", "out= takes the shape of the result"),
    ("aminmax", "not raised", "Expected out tensor", "a result is cast to the dtype of out="),
    ("cov", "numbers", "aweights=float32", "weights are computed in the precision of the observations"),
    ("logspace", "numbers", "dtype=torch.", "powers are rounded, and not the ends of the exponents"),
    ("complex", "not raised", "argument 'out'", "a result is cast to the dtype of out="),
    ("arange", "not raised", "step must be nonzero", "a result is cast to the dtype of out="),
    ("upsample_bilinear", "numbers", "float32", "the coordinates of PyTorch are rounded: off by 1e-4, ours by 4e-7"),
    ("arange", "numbers", "uint8", "numbers below 0 are cut off at 0, in PyTorch they wrap"),
    ("interpolate", "numbers", "uint8", "PyTorch rounds integers after each axis, and its weights: up to 16 off; here once, at the end"),
    ("upsample_bilinear", "numbers", "uint8", "PyTorch rounds integers after each axis, and its weights; here once, at the end"),
    ("margin_ranking_loss", "numbers", "uint8", "PyTorch's differences of unsigned integers wrap"),
    ("cosine_embedding_loss", "numbers", "int8", "PyTorch's products of integers wrap"),
    ("cumulative_trapezoid", "numbers", "int8", "PyTorch's sums of integers wrap"),
    ("chebyshev_polynomial_u", "numbers", "uint8", "0 is exact; PyTorch's recurrence is off by 7e-7"),
    ("pow", "refused", "negative integers", "integers to negative powers are an error, in PyTorch 0 where powers are tensors"),
    ("unfold", "refused", "shape ()", "a tensor without axes has no windows"),
    ("tensordot", "refused", "differ in length", "axes of extent 1 are not broadcast"),
    ("matrix_exp", "numbers", "float16", "PyTorch's overflows"),
    ("soft_margin_loss", "numbers", "float16", "PyTorch's overflows"),
    ("logit", "numbers", "float16", "one rounding; PyTorch's are several"),
    ("special.ndtr", "numbers", "float16", "one rounding; PyTorch's are several"),
    ("grid_sample", "numbers", "float16", "one rounding; PyTorch's are several"),
    ("div.trunc", "numbers", "float16", "one rounding; PyTorch's are several"),
    ("hinge_embedding_loss", "numbers", "float16", "one rounding; PyTorch's are several"),
    ("histc", "numbers", "float16", "edges are computed in float32"),
    ("nextafter", "refused", "float16", "float16 and bfloat16 are computed in float32"),
    ("view_as_complex", "refused", "float16", "there are no complex numbers of two float16"),
    ("complex", "not compared", "ComplexHalf", "there are no complex numbers of two float16"),
    *((name, "numbers", "", "numbers that the integers do not have: saturated here, undefined in PyTorch") for name in (
        "byte", "char", "short", "int", "long")),
    ("igamma", "numbers", "PyTorch's np.float64(0.0)", "of NaN beside 0 or inf NaN here"),
    ("igammac", "numbers", "PyTorch's np.float64(1.0)", "of NaN beside 0 or inf NaN here"),
    ("digamma", "numbers", "", "PyTorch's float32 is off near its root: mpmath gives ours"),
    ("mvlgamma", "numbers", "", "PyTorch's float32 is off near its root: mpmath gives ours"),
    ("svd", "numbers", "some=False", "vectors of no singular value are any that are orthogonal"),
    ("grid_sample", "numbers", "'nearest'", "places half-way between two pixels, by roundings of the coordinates"),
    ("__r", "not raised", "doesn't apply to a 'int' object", "Python's own answer of such a call is NotImplemented"),
    ("__r", "structure", "NotImplementedType", "Python's own answer of such a call is NotImplemented"),
    ("addbmm_", "refused", "", "PyTorch's resizes the tensor that it writes"),
    ("max_pool", "not raised", "float32[0, 1", "no channels give no elements"),
    ("signal.windows", "not raised", "sparse_coo", "there are no sparse layouts"),
    ("signal.windows.kaiser", "numbers", "beta=100", "PyTorch's overflows"),
    ("special.zeta", "numbers", "PyTorch's np.float64(", "infinities of PyTorch where the sum has no value"),
    ("acos", "numbers", "inf", "parts beside an infinite one are compared whole"),
    ("add", "numbers", "inf", "PyTorch's factor 1 times an infinite part is NaN"),
    ("sub", "numbers", "inf", "PyTorch's factor 1 times an infinite part is NaN"),
    ("mode", "numbers", "result 1", "which of equal elements is told is open"),
    ("linspace", "numbers", "dtype=torch.int", "numbers are cut off once, at the end; in PyTorch the ends, and then each number"),
    *((name, "numbers", "complex", "beside infinite parts") for name in ("log", "reciprocal", "rsqrt")),
    ("batch_norm", "refused", "shape (0,)", "an empty tensor needs an axis of channels, too"),
    ("cov", "dtype", "aweights=float32", "weights are computed in the precision of the observations"),
    ("full_like", "crash", "out of bounds for uint8", "a number that an integer does not hold is an error"),
    ("sum_to_size", "dtype", "()", "a tensor that is summed along nothing keeps its dtype"),
    ("local_response_norm", "dtype", "[0,", "empty integers give floats, as others do"),
    ("index_reduce.prod", "refused", "has no gradient in mode", "no gradient of products at places"),
    ("optim.ASGD", "numbers", "", "PyTorch keeps eta and mu in float32 for parameters of float64"),
    ("optim.NAdam", "numbers", "", "PyTorch keeps mu_product in float32 for parameters of float64"),
    ("optim.Muon", "other error", "an optimizer updates Parameters", "a tensor that requires no gradient is told first"),
    ("nn.Embedding", "other error", "must be at least 1", "an extent that cannot be is a ValueError"),
    ("optim.", "not raised", "should be with/without names. cannot add", "a group keeps no names of its parameters"),
    ("optim.Muon", "numbers", "", "its iteration is in the parameter's dtype: docs/pytorch.md"),
]

def reason_of(name: str, found: Any) -> str | None:
    """Why a difference is meant, or None where it is a defect."""
    for of, kind, part, reason in EXPECTED:
        if of in name and kind in (found.kind, "*") and (part in found.text or part in found.call):
            return reason
    return None
