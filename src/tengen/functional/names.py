"""Which module defines which of the functions of `tengen.functional` that are no ops. `python docs/generate.py` writes this file again."""

FUNCTIONS = {
    "tengen.functional.accumulated": """
        cummax cummin cumulative_trapezoid index_reduce logcumsumexp mode nanmedian nanquantile pdist scatter_reduce
        unique_consecutive
    """,
    "tengen.functional.activations": """
        bilinear celu channel_shuffle embedding_bag fold gumbel_softmax hardshrink hardtanh pixel_unshuffle softmin softshrink
        softsign tanhshrink threshold
    """,
    "tengen.functional.arranged": """
        atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod chunk column_stack combinations diag_embed
        diagflat dstack fliplr flipud hstack index_add index_copy index_fill isin masked_scatter movedim rot90 tensor_split
        tril_indices triu_indices unbind unravel_index vstack
    """,
    "tengen.functional.composed": """
        addcdiv addcmul addmm amax amin aminmax baddbmm bartlett_window blackman_window bucketize cdist corrcoef cov deg2rad
        fmax fmin fmod frac hamming_window hann_window heaviside histc inner isneginf isposinf kaiser_window kron kthvalue
        logaddexp2 logit logspace msort nanmean nansum pairwise_distance rad2deg sinc std_mean tensordot trapezoid vander
        var_mean xlogy
    """,
    "tengen.functional.control": """
        cond fori_loop scan while_loop
    """,
    "tengen.functional.loss": """
        binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy cross_entropy_with_softmax
        ctc_loss focal_loss gaussian_nll_loss hinge_embedding_loss hinge_loss huber_loss kl_div l1_loss margin_ranking_loss
        mse_loss multi_margin_loss multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
        square_loss triplet_margin_loss triplet_margin_with_distance_loss
    """,
    "tengen.functional.math": """
        bmm cosine_similarity cross dot matinv matmul norm normalize outer svd
    """,
    "tengen.functional.metric": """
        topk_accuracy
    """,
    "tengen.functional.nn": """
        alpha_dropout batch_norm conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d dropout embedding
        general_norm glu group_norm indexing_one_hot instance_norm layer_norm linear local_response_norm multi_head_attention
        pixel_shuffle rms_norm scaled_dot_product_attention softplus sync_batch_norm
    """,
    "tengen.functional.pooling": """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
        avg_pool1d avg_pool2d avg_pool3d fractional_max_pool2d fractional_max_pool3d lp_pool1d lp_pool2d lp_pool3d max_pool1d
        max_pool2d max_pool3d max_unpool1d max_unpool2d max_unpool3d
    """,
    "tengen.functional.vision": """
        nms nvof
    """,
}
