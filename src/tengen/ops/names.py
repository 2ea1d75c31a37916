"""Which file of this folder defines which op, and what users call it: it is loaded when one of them is first named.

`python docs/generate.py` writes this file again.
"""

from __future__ import annotations


def _table(words: str) -> dict[str, str]:
    pairs = [word.partition("=") for word in words.split()]
    return {name: op or name for name, _, op in pairs}


OPS = {
    "activation": """
        elu gelu hsigmoid hswish leaky_relu logsigmoid mish prelu relu relu6 selu sigmoid silu softplus
    """,
    "adaptive_update": """
        adadelta_update adagrad_update adamax_update lamb_update lion_update nadam_update radam_update rmsprop_update
        rprop_update sparse_adam_update
    """,
    "attention": """
        attention attention_grad attention_grad_of_scores attention_int attention_mask_grad attention_weights fake_attention
    """,
    "complex_numbers": """
        angle argument complex conj conjugate imag imag_part polar real real_part view_as_complex view_as_real
    """,
    "contract": """
        linear matmul
    """,
    "control": """
        cond own_gradient scan while_loop
    """,
    "conv": """
        conv conv_bias conv_transposed conv_weight_grad
    """,
    "creation": """
        arange even_steps eye fill full full_like iota linspace meshgrid ones ones_like triangle tril triu zeros zeros_like
    """,
    "ctc": """
        ctc ctc_grad
    """,
    "division": """
        floor_div mod pow
    """,
    "elementwise": """
        abs acos acosh add asin asinh astype atan atan2 atanh cbrt ceil clip copy cos cosh digamma div erf erfc exp exp2 expm1
        floor fma lgamma log log10 log1p log2 logaddexp maximum minimum mul neg reciprocal round rsqrt sign sin sinh sqrt
        square sub tan tanh trunc where
    """,
    "float_parts": """
        copysign hypot nextafter signbit
    """,
    "fourier": """
        dft
    """,
    "grouped_weights": """
        linear_grouped
    """,
    "indexing": """
        gather index index_grad index_put index_select one_hot outside scatter searchsorted set_slice take
    """,
    "joining": """
        concat pad repeat roll split stack tile
    """,
    "keys": """
        getitem setitem
    """,
    "linalg_complex": """
        complex_bidiagonal complex_det complex_eigh complex_hessenberg complex_log_det complex_lu complex_pinv complex_qr
        complex_svd general_eig hermitian
    """,
    "linalg_factor": """
        checked cholesky lu lu_det lu_log_det lu_solve mirrored ordered triangular_solve
    """,
    "linalg_spectra": """
        complex_geqrf eigh eigvalsh geqrf pinv qr significant svd svdvals
    """,
    "logic": """
        bitwise_and bitwise_not bitwise_or bitwise_xor equal greater greater_equal isfinite isinf isnan left_shift less
        less_equal logical_and logical_not logical_or logical_xor not_equal right_shift
    """,
    "masks": """
        cond_take masked_fill non_zero nonzero
    """,
    "nn": """
        batch_norm_eval batch_norm_grad batch_norm_train class_mask cross_entropy_each general_norm group_norm layer_norm
        logsoftmax logsoftmax_grad softmax softmax_grad
    """,
    "ordering": """
        argsort cumprod cumsum k_first running_max running_min sort topk
    """,
    "paging": """
        page_in page_out
    """,
    "pool": """
        avg_pool avg_pool_grad max_pool max_pool_gather max_pool_grad
    """,
    "quantized": """
        centre_codes conv_int dequantize_linear fake_quantize lookup_codes matmul_int quantize_linear requantize_linear
        straight_through
    """,
    "recurrent": """
        lstm lstm_grad lstm_grad_by_steps
    """,
    "reduce": """
        all any argmax argmin extent_op logsumexp max mean min prod std sum sum_to var
    """,
    "rejection": """
        random_binomial random_gamma random_poisson
    """,
    "rng": """
        random_bits random_normal random_uniform
    """,
    "selections": """
        reduce_selected selected
    """,
    "shape": """
        broadcast_to permute reshape slice_grad strided_slice
    """,
    "statistics": """
        allclose bincount count_nonzero diff histogram isclose lerp median nan_to_num quantile scatter_add take_along_axis
        unique
    """,
    "strided": """
        as_strided strided
    """,
    "update": """
        adam_update amsgrad_update sgd_update unscale
    """,
    "views": """
        diag diagonal expand_dims flatten flip last_diagonal moveaxis on_diagonal sliding_window sliding_window_transpose
        squeeze stop_gradient swapaxes transpose unfold windows windows_grad
    """,
    "vision_color": """
        cvt_color
    """,
    "vision_conv": """
        correlation deformable_conv2d local_conv2d region_restricted_conv
    """,
    "vision_regions": """
        deformable_psroi_pooling nms_keep roi_align roi_pooling
    """,
    "vision_resample": """
        resample
    """,
    "vision_resize": """
        interpolate
    """,
    "vision_samples": """
        linear_samples linear_samples_of_taps
    """,
    "vision_taps": """
        tap_products tap_scatter tap_sum window_sums window_sums_of_taps
    """,
    "vision_warp": """
        affine_grid grid_sample remap warp_affine warp_perspective
    """,
}

# Names of Tensor, and of the submodules of tengen.functional; behind "=" stands the op's own name, where it is another one.
ON_TENSOR = _table("""
    __abs__=abs __add__=add __and__=bitwise_and __eq__=equal __floordiv__=floor_div __ge__=greater_equal __gt__=greater
    __iadd__=add __iand__=bitwise_and __ifloordiv__=floor_div __ilshift__=left_shift __imatmul__=matmul __imod__=mod
    __imul__=mul __invert__=bitwise_not __ior__=bitwise_or __ipow__=pow __irshift__=right_shift __isub__=sub __itruediv__=div
    __ixor__=bitwise_xor __le__=less_equal __lshift__=left_shift __lt__=less __matmul__=matmul __mod__=mod __mul__=mul
    __ne__=not_equal __neg__=neg __or__=bitwise_or __pow__=pow __radd__=add __rand__=bitwise_and __rfloordiv__=floor_div
    __rlshift__=left_shift __rmatmul__=matmul __rmod__=mod __rmul__=mul __ror__=bitwise_or __rpow__=pow __rrshift__=right_shift
    __rshift__=right_shift __rsub__=sub __rtruediv__=div __rxor__=bitwise_xor __sub__=sub __truediv__=div __xor__=bitwise_xor
    abs all angle any argmax argmin argsort as_strided astype broadcast_to ceil clip conj cos cumsum exp expand_dims flip floor
    gather log log1p logsoftmax masked_fill matmul max maximum mean min minimum pow prod relu repeat rsqrt sigmoid sign sin
    softmax sort sqrt square squeeze std sum swapaxes tanh tile topk var view_as_complex view_as_real where
""")
IN_FUNCTIONAL = {name: _table(words) for name, words in {
    "elemwise": """
        abs acos acosh add asin asinh astype atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor cbrt ceil clip
        copy copysign cos cosh digamma div elu equal erf erfc exp exp2 expm1 floor floor_div fma gelu greater greater_equal
        hsigmoid hswish hypot isfinite isinf isnan leaky_relu left_shift lerp less less_equal lgamma log log10 log1p log2
        logaddexp logical_and logical_not logical_or logical_xor logsigmoid maximum minimum mish mod mul nan_to_num neg
        nextafter not_equal pow prelu reciprocal relu relu6 right_shift round rsqrt selu sigmoid sign signbit silu sin sinh
        sqrt square sub tan tanh trunc where
    """,
    "math": """
        all allclose any argmax argmin argsort bincount count_nonzero diff histogram isclose isinf isnan max mean median min
        prod quantile sign sort std sum topk unique var
    """,
    "nn": """
        affine_grid attention_int centre_codes conv_int correlation cvt_color deformable_conv2d deformable_psroi_pooling
        dequantize_linear fake_attention fake_quantize gelu grid_sample hsigmoid hswish interpolate leaky_relu linear_grouped
        local_conv2d log_softmax=logsoftmax logsigmoid logsoftmax logsumexp lookup_codes matmul_int one_hot pad prelu
        quantize_linear region_restricted_conv relu relu6 remap requantize_linear roi_align roi_pooling sigmoid silu
        sliding_window sliding_window_transpose softmax straight_through warp_affine warp_perspective
    """,
    "tensor": """
        angle arange argsort as_strided astype broadcast_to complex concat cond_take conj copy cumprod cumsum diag diagonal
        expand_dims eye flatten flip full full_like gather imag index_select linspace masked_fill meshgrid moveaxis non_zero
        nonzero one_hot ones ones_like pad permute polar real repeat reshape roll scatter scatter_add searchsorted
        sliding_window sliding_window_transpose sort split squeeze stack swapaxes take take_along_axis tile topk transpose tril
        triu unfold view_as_complex view_as_real where zeros zeros_like
    """,
    "vision": """
        affine_grid correlation cvt_color grid_sample interpolate remap resample roi_align roi_pooling warp_affine
        warp_perspective
    """,
}.items()}
