"""Pictures beside OpenCV and PyTorch: colours, sizes and turns under the names that these give them."""

import numpy as np
import pytest

from tengen import Tensor
from tengen.base.errors import ArgumentError, ShapeError
from tengen.functional import vision


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def apart(a, b):
    return np.abs(np.asarray(a).astype("f8") - np.asarray(b).astype("f8")).max(initial=0)


def first(x):
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("planes, code", [("NV12", "NV12"), ("NV21", "NV21"), ("YU12", "I420"), ("I420", "I420"), ("YV12", "YV12")])
def test_frames_of_cameras_beside_opencv(planes, code):
    cv2 = pytest.importorskip("cv2")
    frame = pixels(1, 72, 66, 1)
    frame[:, :48] = np.maximum(frame[:, :48], 16)  # OpenCV takes darker ones for 16
    for target in ("RGB", "BGR", "GRAY"):
        want = cv2.cvtColor(frame[0], getattr(cv2, f"COLOR_YUV2{target}_{code}")).reshape(48, 66, -1)
        mode = f"{'' if target == 'GRAY' else 'BT601_'}YUV2{target}_{planes}"
        got = vision.cvt_color(Tensor(frame), mode).numpy()
        assert got.shape == (1, *want.shape) and apart(got[0], want) <= 1, (mode, apart(got[0], want))
        planar = vision.cvt_color(Tensor(frame.reshape(1, 1, 72, 66)), mode, "NCHW").numpy()
        assert planar.tobytes() == first(got).tobytes()


def test_colours_beside_opencv():
    cv2 = pytest.importorskip("cv2")
    for mode in ("RGB2GRAY", "BGR2GRAY", "RGB2BGR", "BGR2RGB", "GRAY2RGB", "RGBA2RGB", "RGBA2BGR", "RGBA2GRAY"):
        x = pixels(1, 9, 37, {"GRAY": 1, "RGBA": 4}.get(mode.split("2")[0], 3))
        want = cv2.cvtColor(x[0], getattr(cv2, f"COLOR_{mode}")).reshape(9, 37, -1)
        got = vision.cvt_color(Tensor(x), mode).numpy()
        assert apart(got[0], want) <= ("GRAY" in mode and "GRAY2" not in mode), mode
        assert vision.cvt_color(Tensor(first(x)), mode, "NCHW").numpy().tobytes() == first(got).tobytes()


@pytest.mark.parametrize("size", [(11, 16), (37, 53), (60, 90), (1, 1), (40, 20)])
def test_sizes_beside_opencv(size):
    cv2 = pytest.importorskip("cv2")
    modes = {"linear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST, "nearest-exact": cv2.INTER_NEAREST_EXACT, "cubic": cv2.INTER_CUBIC}
    if size[0] <= 37 and size[1] <= 53:
        modes["area"] = cv2.INTER_AREA
    for x in (pixels(1, 37, 53, 3), floats(1, 37, 53, 3)):
        for name, code in modes.items():
            want = cv2.resize(x[0], size[::-1], interpolation=code).reshape(*size, 3)
            got = vision.resize(Tensor(x), size, "NHWC", name).numpy()
            most = 0 if "nearest" in name else 1 if x.dtype == np.uint8 else 2e-3  # OpenCV's weights of floats have 11 bits in places
            assert got.dtype == x.dtype and apart(got[0], want) <= most, (name, x.dtype, apart(got[0], want))
            assert vision.resize(Tensor(first(x)), size, "NCHW", name).numpy().tobytes() == first(got).tobytes(), name


@pytest.mark.parametrize("size", [(11, 16), (37, 53), (60, 90), (1, 1), (40, 20)])
def test_sizes_beside_pytorch(size):
    torch = pytest.importorskip("torch")
    for x in (pixels(2, 3, 37, 53), floats(2, 3, 37, 53)):
        for mode in ("bilinear", "bicubic"):
            for antialias in (False, True):
                try:
                    want = torch.nn.functional.interpolate(torch.from_numpy(x), size, mode=mode, antialias=antialias).numpy()
                except RuntimeError as e:
                    assert "INTERNAL ASSERT" in str(e)  # PyTorch's own, for one pixel of uint8
                    continue
                got = vision.interpolate(Tensor(x), size, mode=mode, antialias=antialias).numpy()
                if x.dtype == np.uint8:  # PyTorch rounds between the passes, and clips what a cubic overshoots there
                    assert apart(got, want) <= 1 or mode == "bicubic" and np.mean(np.abs(got.astype(int) - want) > 1) < 0.05
                else:
                    assert apart(got, want) < 5e-5, (mode, antialias)


def test_sizes_of_edges_and_refusals():
    x = floats(1, 2, 8, 8)
    bad = x.copy()
    bad[0, 0, 7, 7] = np.nan
    got = vision.resample(Tensor(bad), (2, 2), "area").numpy()
    assert np.isnan(got[0, 0]).sum() == 1  # no other pixel covers it
    assert np.allclose(vision.resample(Tensor(x), (2, 2), "area").numpy(), x.reshape(1, 2, 2, 4, 2, 4).mean((3, 5)), atol=1e-6)
    assert vision.resample(Tensor(x), (8, 8), "area").numpy().tobytes() == x.tobytes()
    assert vision.resample(Tensor(x), (0, 3)).shape == (1, 2, 0, 3)
    for call, error, words in [
        (lambda: vision.resample(Tensor(x), (9, 8), "area"), ArgumentError, "makes images smaller"),
        (lambda: vision.resize(Tensor(x), (4, 4), imode="nearest", antialias=True), ArgumentError, "antialias=True is for"),
        (lambda: vision.interpolate(Tensor(x), (4, 4), mode="nearest", antialias=True), ArgumentError, "antialias=True is for"),
        (lambda: vision.resample(Tensor(x), (4, 4), "area", antialias=False), ArgumentError, "antialias=False has no meaning"),
        (lambda: vision.resample(Tensor(x[0]), (4, 4)), ShapeError, "takes images"),
        (lambda: vision.resample(Tensor(x[:, :, :0]), (4, 4)), ShapeError, "without pixels"),
    ]:
        with pytest.raises(error, match=words):
            call()


def test_turns_in_both_formats():
    x = pixels(2, 5, 7, 3)
    for got, want in [
        (lambda v, f: vision.flip(v, True, False, f), x[:, ::-1]), (lambda v, f: vision.flip(v, False, True, f), x[:, :, ::-1]),
        (lambda v, f: vision.flip(v, format=f), x[:, ::-1, ::-1]),
        (lambda v, f: vision.rot90(v, True, f), np.rot90(x, -1, (1, 2))), (lambda v, f: vision.rot90(v, False, f), np.rot90(x, 1, (1, 2))),
    ]:  # fmt: skip
        assert (got(Tensor(x), "NHWC").numpy() == want).all()
        assert (got(Tensor(first(x)), "NCHW").numpy() == first(want)).all()
