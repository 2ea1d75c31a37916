"""What MegEngine 1.13.0 gives for images: writes vision_megengine.npz, which test_vision.py compares with.

    python tests/ops/vision_megengine.py        in an environment with MegEngine (Python 3.10)

`CALLS` names each result: the function below `functional`, the operands (names of `operands()`), and the other arguments.
"""

from pathlib import Path

import numpy as np

SAVED = Path(__file__).with_name("vision_megengine.npz")
BORDERS = ("replicate", "constant", "reflect", "reflect_101", "wrap")
PLANES = [f"YUV2{to}_{planes}" for to in ("RGB", "BGR", "GRAY") for planes in ("NV12", "NV21", "YU12", "YV12")]
PACKED = {
    "bytes": ["RGB2GRAY", "BGR2GRAY", "RGB2BGR", "BGR2RGB", "RGB2YUV", "YUV2RGB"], "bytes1": ["GRAY2RGB"],
    "bytes4": ["RGBA2RGB", "RGBA2BGR", "RGBA2GRAY"], "floats": ["RGB2GRAY", "BGR2GRAY", "RGB2YUV", "YUV2RGB"],
    "planes": [*PLANES, "YCrCb2RGB", "YCrCb2BGR", "BT601_YUV2RGB_NV12", "BT601_YUV2BGR_YV12"],
}  # fmt: skip
CORRELATIONS = (
    {}, {"kernel_size": 3, "max_displacement": 2, "pad_size": 2},
    {"kernel_size": 1, "max_displacement": 2, "stride1": 2, "stride2": 2, "pad_size": 2, "is_multiply": False},
    {"kernel_size": 3, "max_displacement": 2, "stride1": 2, "stride2": 2, "pad_size": 3},
)  # fmt: skip
CALLS = [
    *[("vision.remap", ("row", "map"), {"border_mode": m, "scalar": 7.0, "interp_mode": i}) for m in BORDERS for i in ("linear", "nearest")],
    *[("vision.warp_perspective", ("x", "mat"), {"out_shape": (3, 4), "border_mode": m, "border_val": 2.0}) for m in BORDERS],
    ("vision.warp_affine", ("x", "mat2"), {"out_shape": (3, 4), "format": "NCHW"}),
    *[("vision.interpolate", (x, ), {"size": s, "mode": m}) for x in ("x", "pixels") for s in ((7, 3), (2, 9))
      for m in ("nearest", "bilinear", "bicubic")],
    ("vision.interpolate", ("x",), {"size": (7, 3), "align_corners": True}),
    *[("vision.cvt_color", (x,), {"mode": m}) for x, modes in PACKED.items() for m in modes],
    *[("vision.roi_align", ("x", "rois"), {"output_shape": (2, 2), "mode": m, "spatial_scale": 0.5, "sample_points": s, "aligned": a})
      for m in ("max", "average") for s in (2, (1, 3)) for a in (True, False)],
    *[("vision.roi_pooling", ("x", "rois"), {"output_shape": (2, 3), "mode": m, "scale": 0.5}) for m in ("max", "average")],
    *[("vision.correlation", ("x", "y"), k) for k in CORRELATIONS],
    ("deformable_conv2d", ("x", "filters", "offset", "mask"), {}),
    ("deformable_conv2d", ("x", "grouped", "offset2", "mask2"), {"groups": 2}),
    ("local_conv2d", ("x", "local"), {}),
    ("region_restricted_conv", ("x", "grouped", "rin", "rout"), {"groups": 2}),
    *[("loss.ctc_loss", ("spoken", "steps", "labels", "lengths"), {"reduction": r}) for r in ("none", "mean", "sum")],
    ("loss.ctc_loss", ("spoken", "steps", "flat_labels", "lengths"), {"reduction": "none"}),
]  # fmt: skip


def name(i: int) -> str:
    return f"result{i}"


def operands() -> dict[str, np.ndarray]:
    r = np.random.default_rng(0)
    f = lambda *shape: r.normal(size=shape).astype("f4")
    u = lambda *shape: r.integers(0, 256, shape).astype("u1")
    xs = np.array([-7.3, -2.5, -1, -0.5, -0.25, 0, 0.5, 1.5, 2.5, 3.75, 4, 4.25, 4.5, 5, 6.5, 12.2], "f4")
    spoken = r.uniform(0.01, 1, (5, 3, 4)).astype("f4")
    return {
        "row": np.arange(5, dtype="f4").reshape(1, 1, 1, 5) * 10, "map": np.stack([xs, xs * 0], -1)[None, None],
        "x": f(2, 4, 6, 7), "y": f(2, 4, 6, 7), "pixels": u(1, 2, 5, 4),
        "mat": np.array([[[1, 0.2, 0.3], [0.1, 0.9, -0.4], [0.01, 0.02, 1]]] * 2, "f4"),
        "mat2": np.array([[[1, 0.2, 0.3], [0.1, 0.9, -0.4]]] * 2, "f4"),
        "rois": np.array([[0, 1.2, 0.7, 4.3, 5.1], [1, -1, -1, 8, 9], [0, 2, 2, 2, 2]], "f4"),
        "bytes": u(1, 2, 4, 3), "bytes1": u(1, 2, 4, 1), "bytes4": u(1, 2, 4, 4), "planes": u(1, 6, 4, 1),
        "floats": r.uniform(0, 1, (1, 2, 4, 3)).astype("f4"),
        "filters": f(6, 4, 3, 3), "grouped": f(2, 3, 2, 3, 3), "offset": f(2, 18, 4, 5), "mask": np.abs(f(2, 9, 4, 5)),
        "offset2": f(2, 36, 4, 5), "mask2": np.abs(f(2, 18, 4, 5)), "local": f(2, 4, 5, 2, 3, 3, 3),
        "rin": r.integers(0, 2, (2, 6, 7)).astype("i4"), "rout": r.integers(0, 2, (2, 4, 5)).astype("i4"),
        "spoken": spoken / spoken.sum(-1, keepdims=True), "steps": np.array([5, 4, 3], "i4"), "lengths": np.array([2, 2, 1], "i4"),
        "labels": np.array([[1, 2], [3, 3], [1, 0]], "i4"), "flat_labels": np.array([1, 2, 3, 3, 1], "i4"),
    }  # fmt: skip


if __name__ == "__main__":
    import megengine
    from megengine import Tensor, functional

    given = operands()
    found = {"version": np.array(megengine.__version__), **given}
    for i, (path, names, arguments) in enumerate(CALLS):
        function = functional
        for part in path.split("."):
            function = getattr(function, part)
        found[name(i)] = function(*(Tensor(given[n]) for n in names), **arguments).numpy()
    np.savez_compressed(SAVED, **found)
