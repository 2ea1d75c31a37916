"""The ops of `nn.py`, for editors and type checkers. `python docs/generate.py` writes this file again."""

from tengen.functional import affine_grid as affine_grid
from tengen.functional import correlation as correlation
from tengen.functional import cvt_color as cvt_color
from tengen.functional import deformable_conv2d as deformable_conv2d
from tengen.functional import grid_sample as grid_sample
from tengen.functional import interpolate as interpolate
from tengen.functional import local_conv2d as local_conv2d
from tengen.functional import log_softmax as log_softmax
from tengen.functional import logsoftmax as logsoftmax
from tengen.functional import logsumexp as logsumexp
from tengen.functional import region_restricted_conv as region_restricted_conv
from tengen.functional import remap as remap
from tengen.functional import roi_align as roi_align
from tengen.functional import roi_pooling as roi_pooling
from tengen.functional import softmax as softmax
from tengen.functional import warp_affine as warp_affine
from tengen.functional import warp_perspective as warp_perspective

__all__ = [
    "affine_grid", "correlation", "cvt_color", "deformable_conv2d", "grid_sample", "interpolate", "local_conv2d",
    "log_softmax", "logsoftmax", "logsumexp", "region_restricted_conv", "remap", "roi_align", "roi_pooling", "softmax",
    "warp_affine", "warp_perspective"
]
