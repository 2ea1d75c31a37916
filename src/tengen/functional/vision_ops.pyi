"""The ops of `vision.py`, for editors and type checkers. `python docs/generate.py` writes this file again."""

from tengen.functional import affine_grid as affine_grid
from tengen.functional import correlation as correlation
from tengen.functional import cvt_color as cvt_color
from tengen.functional import grid_sample as grid_sample
from tengen.functional import interpolate as interpolate
from tengen.functional import remap as remap
from tengen.functional import resample as resample
from tengen.functional import roi_align as roi_align
from tengen.functional import roi_pooling as roi_pooling
from tengen.functional import warp_affine as warp_affine
from tengen.functional import warp_perspective as warp_perspective

__all__ = [
    "affine_grid", "correlation", "cvt_color", "grid_sample", "interpolate", "remap", "resample", "roi_align", "roi_pooling",
    "warp_affine", "warp_perspective"
]
