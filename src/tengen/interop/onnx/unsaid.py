"""Ops that ONNX cannot say, with the reason: what an error tells, and what the test of all ops leaves out."""

_FACTORS = "ONNX has no factorisations of matrices"
_DRAWN = "numbers of Tengen's generator; ONNX's has others"
_STEP = "a step of training, which is not written"
_COMPLEX = "ONNX has no complex numbers"
UNSAID = {
    **dict.fromkeys(
        ("triangular_solve", "lu", "lu_solve", "cholesky", "qr", "geqrf", "eigh", "eigvalsh", "svd", "svdvals", "complex_lu", "complex_qr",
         "complex_geqrf", "complex_hessenberg", "complex_bidiagonal", "general_eig"), _FACTORS),
    **dict.fromkeys(
        ("random_uniform", "random_normal", "random_bits", "random_gamma", "random_poisson", "random_binomial"), _DRAWN),
    **dict.fromkeys(
        ("attention_grad", "conv_weight_grad", "avg_pool_grad", "max_pool_grad", "max_pool_gather", "lstm_grad", "ctc", "ctc_grad",
         "tap_scatter", "tap_products"), _STEP),
    **dict.fromkeys(("real_part", "imag_part", "view_as_real", "view_as_complex", "complex"), _COMPLEX),
    **dict.fromkeys(("lgamma", "digamma"), "ONNX has no gamma function"),
    "nextafter": "ONNX cannot see the bits of a float",
    "nms_keep": "ONNX's NonMaxSuppression takes boxes and scores, and gives as many numbers as it keeps",
}  # fmt: skip
