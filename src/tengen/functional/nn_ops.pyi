"""The ops of `nn.py`, for editors and type checkers. `python docs/generate.py` writes this file again."""

from tengen.functional import affine_grid as affine_grid
from tengen.functional import attention_int as attention_int
from tengen.functional import centre_codes as centre_codes
from tengen.functional import conv_int as conv_int
from tengen.functional import correlation as correlation
from tengen.functional import cvt_color as cvt_color
from tengen.functional import deformable_conv2d as deformable_conv2d
from tengen.functional import deformable_psroi_pooling as deformable_psroi_pooling
from tengen.functional import dequantize_linear as dequantize_linear
from tengen.functional import fake_attention as fake_attention
from tengen.functional import fake_quantize as fake_quantize
from tengen.functional import gelu as gelu
from tengen.functional import grid_sample as grid_sample
from tengen.functional import hsigmoid as hsigmoid
from tengen.functional import hswish as hswish
from tengen.functional import interpolate as interpolate
from tengen.functional import leaky_relu as leaky_relu
from tengen.functional import linear_grouped as linear_grouped
from tengen.functional import local_conv2d as local_conv2d
from tengen.functional import log_softmax as log_softmax
from tengen.functional import logsigmoid as logsigmoid
from tengen.functional import logsoftmax as logsoftmax
from tengen.functional import logsumexp as logsumexp
from tengen.functional import lookup_codes as lookup_codes
from tengen.functional import matmul_int as matmul_int
from tengen.functional import one_hot as one_hot
from tengen.functional import pad as pad
from tengen.functional import prelu as prelu
from tengen.functional import quantize_linear as quantize_linear
from tengen.functional import region_restricted_conv as region_restricted_conv
from tengen.functional import relu as relu
from tengen.functional import relu6 as relu6
from tengen.functional import remap as remap
from tengen.functional import requantize_linear as requantize_linear
from tengen.functional import roi_align as roi_align
from tengen.functional import roi_pooling as roi_pooling
from tengen.functional import sigmoid as sigmoid
from tengen.functional import silu as silu
from tengen.functional import sliding_window as sliding_window
from tengen.functional import sliding_window_transpose as sliding_window_transpose
from tengen.functional import softmax as softmax
from tengen.functional import straight_through as straight_through
from tengen.functional import warp_affine as warp_affine
from tengen.functional import warp_perspective as warp_perspective

__all__ = [
    "affine_grid", "attention_int", "centre_codes", "conv_int", "correlation", "cvt_color", "deformable_conv2d",
    "deformable_psroi_pooling", "dequantize_linear", "fake_attention", "fake_quantize", "gelu", "grid_sample", "hsigmoid",
    "hswish", "interpolate", "leaky_relu", "linear_grouped", "local_conv2d", "log_softmax", "logsigmoid", "logsoftmax",
    "logsumexp", "lookup_codes", "matmul_int", "one_hot", "pad", "prelu", "quantize_linear", "region_restricted_conv", "relu",
    "relu6", "remap", "requantize_linear", "roi_align", "roi_pooling", "sigmoid", "silu", "sliding_window",
    "sliding_window_transpose", "softmax", "straight_through", "warp_affine", "warp_perspective"
]
