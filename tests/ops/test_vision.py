"""Images against MegEngine's saved results, PyTorch where it is installed, and at their edges."""

import functools

import numpy as np
import pytest
import vision_megengine as saved
from exhaustive import but, exhaustive
from recorded import graph_of

import tengen
from tengen import Tensor, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import vjp
from tengen.base.errors import DeviceError, IndexOutOfRange, TraceError
from tengen.ops.vision_color import CHANNELS, cvt_color
from tengen.ops.vision_resample import np_resample
from tengen.ops.vision_taps import tap_sum

SAVED = np.load(saved.SAVED)
NAN, INF = float("nan"), float("inf")


@but(every=6)
@pytest.mark.parametrize("i", range(len(saved.CALLS)), ids=lambda i: f"{i}-{saved.CALLS[i][0]}")
def test_as_megengine(i):
    path, names, arguments = saved.CALLS[i]
    function = functools.reduce(getattr, path.split("."), F)
    got, want = function(*(Tensor(SAVED[n]) for n in names), **arguments).numpy(), SAVED[saved.name(i)]
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype == np.uint8:
        # the fixed-point numbers of its BT601 are not known; interpolated pixels may lie half-way between two numbers
        near = 2 if "BT601" in arguments.get("mode", "") else int("size" in arguments)
        assert np.abs(got.astype(int) - want.astype(int)).max() <= near
    else:  # some ten roundings of numbers up to the largest
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=3e-6 * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_interpolate_as_torch(mode):
    torch = pytest.importorskip("torch")

    x = np.random.default_rng(0).normal(size=(2, 3, 5, 4))
    for align in (False, True) if "nearest" not in mode else (None,):
        for size in ((7, 3), (1, 1), (10, 8), (4, 13)):
            t = torch.tensor(x, requires_grad=True)
            want = torch.nn.functional.interpolate(t, size, mode=mode, align_corners=align)
            weights = np.random.default_rng(1).normal(size=want.shape)
            want.backward(torch.tensor(weights))
            got, pull = vjp(lambda t, s=size, a=align: F.vision.interpolate(t, s, None, mode, a), Tensor(x, dtype="float64"))
            np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(pull(Tensor(weights, dtype="float64"))[0].numpy(), t.grad.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_as_torch(mode, padding, align):
    torch = pytest.importorskip("torch")

    r = np.random.default_rng(0)
    x, grid = r.normal(size=(2, 3, 5, 4)), r.uniform(-2, 2, (2, 6, 7, 2))
    grid[0, 0, :2, 0] = NAN  # counts as -1
    a, b = torch.tensor(x, requires_grad=True), torch.tensor(np.nan_to_num(grid, nan=-1), requires_grad=True)
    want = torch.nn.functional.grid_sample(a, b, mode, padding, align)
    weights = r.normal(size=want.shape)
    want.backward(torch.tensor(weights))
    got, pull = vjp(
        lambda x, g: F.vision.grid_sample(x, g, mode, padding, align), Tensor(x, dtype="float64"), Tensor(grid, dtype="float64")
    )
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-12, atol=1e-12)
    gx, gg = pull(Tensor(weights, dtype="float64"))
    np.testing.assert_allclose(gx.numpy(), a.grad.numpy(), rtol=1e-12, atol=1e-12)
    if mode != "nearest":
        where = ~np.isnan(grid)
        np.testing.assert_allclose(gg.numpy()[where], b.grad.numpy()[where], rtol=1e-11, atol=1e-11)


def test_affine_grid_as_torch():
    torch = pytest.importorskip("torch")

    theta = np.random.default_rng(0).normal(size=(2, 2, 3))
    for align in (False, True):
        got = F.vision.affine_grid(Tensor(theta, dtype="float64"), (2, 1, 4, 5), align).numpy()
        want = torch.nn.functional.affine_grid(torch.tensor(theta), (2, 1, 4, 5), align).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def row(xs, mode, interp="linear", dtype="float32"):
    at = np.stack([np.array(xs, np.float32), np.zeros(len(xs), np.float32)], -1)[None, None]
    x = Tensor(np.array([[[[10, 20, 40]]]], dtype))
    return F.vision.remap(x, Tensor(at), mode, 5.0, interp).numpy().ravel().tolist()


def test_colours_of_pictures_of_any_width():
    """Around whole vectors of pixels, and of pairs of them; eager and traced; uint8 as the definition says."""
    r = np.random.default_rng(0)
    modes = ["RGB2BGR", "RGBA2BGR", "GRAY2RGB", "RGB2GRAY", "RGB2YUV", "YUV2RGB", "BT601_YUV2RGB_NV12", "YUV2BGR_NV21", "YUV2RGB_I420"]
    for mode in modes:
        planes, few = "_" in mode, CHANNELS[mode.removeprefix("BT601_").split("2")[0]]
        for rows, width in ((2, 2), (4, 30), (2, 32), (6, 34), (2, 66)) if planes else ((1, 1), (2, 15), (1, 16), (3, 17), (2, 33)):
            x = r.integers(0, 256, (2, rows * 3 // 2, width, 1) if planes else (2, rows, width, few)).astype(np.uint8)
            want = cvt_color.rules.reference(x, mode)
            got = F.vision.cvt_color(Tensor(x), mode).numpy()
            assert got.dtype == np.uint8 and (got == want).all(), (mode, width)
        assert trace(lambda x, m=mode: F.vision.cvt_color(x, m))(Tensor(x)).numpy().tobytes() == got.tobytes()
        turned = F.vision.cvt_color(Tensor(x.transpose(0, 3, 1, 2)), mode, "NCHW").numpy()
        assert (turned == want.transpose(0, 3, 1, 2)).all()


@exhaustive
def test_whole_steps_have_the_bits_of_all_others():
    """A trace knows that each pixel is the mean of a block, and reads blocks; an eager call, whose extents are open, weighs taps."""
    r, info = np.random.default_rng(0), {"uint8": (0, 256), "int16": (-(2**15), 2**15)}
    for dtype, filter, size, steps, channels in (
        ("uint8", "linear", (3, 17), (2, 2), 3), ("uint8", "area", (2, 16), (2, 2), 3), ("int16", "area", (3, 18), (1, 2), 4),
        ("int16", "linear", (2, 33), (4, 2), 1), ("uint8", "area", (2, 3), (3, 3), 16), ("uint8", "linear", (1, 1), (2, 2), 2),
        ("uint8", "area", (2, 5), (4, 4), 3),
    ):  # fmt: skip
        h, w = size[0] * steps[0], size[1] * steps[1]
        x = r.integers(*info[dtype], (2, h, w, channels)).astype(dtype)
        run = lambda x, format, f=filter, size=size: F.vision.resample(x, size, f, format, f == "area")
        for format, a in (("NHWC", x), ("NCHW", x.transpose(0, 3, 1, 2).copy())):
            got = trace(run)(Tensor(a), format).numpy()
            assert got.tobytes() == run(Tensor(a), format).numpy().tobytes(), (dtype, filter, size, steps, format)
            want = np_resample(a.astype("f8"), size, filter, format, filter == "area")
            assert np.abs(got - want).max() <= 0.5 + 2**-6  # weights and terms of float32 are rounded


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_means_of_few_bytes_are_exact_and_halves_go_to_even(dtype):
    """Every sum that four bytes can have, and so every remainder beside every quotient, odd and even; blocks of other sizes from the same."""
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    sums = np.arange(4 * low, 4 * high + 1)
    quads = np.stack([(sums + i) // 4 for i in range(4)], -1)  # four bytes of each sum
    assert quads.min() == low and quads.max() == high
    x = np.zeros((1, 2, 2 * 1024, 3), dtype)
    x[0, :, : 2 * len(sums)] = quads.reshape(-1, 2, 2).transpose(1, 0, 2).reshape(2, -1)[..., None]
    for rows, columns in ((2, 2), (1, 2), (2, 1), (1, 1), (1, 4)):
        size = 2 // rows, x.shape[2] // columns
        exact = x.reshape(1, size[0], rows, size[1], columns, 3).astype("f8").mean((2, 4))
        for format, order in (("NHWC", (0, 1, 2, 3)), ("NCHW", (0, 3, 1, 2))):
            a = Tensor(np.ascontiguousarray(x.transpose(order)))
            got = trace(lambda a, size=size, f=format: F.vision.resample(a, size, "area", f))(a).numpy()
            assert got.dtype == dtype and np.array_equal(got, np.rint(exact).transpose(order)), (rows, columns, format)


def test_every_second_pixel_is_a_view():
    x = np.random.default_rng(0).integers(0, 256, (2, 6, 68, 3)).astype(np.uint8)
    for (sy, sx), exact in (((2, 2), False), ((1, 2), True), ((3, 4), False), ((3, 17), True)):
        size = 6 // sy, 68 // sx
        run = lambda x, size=size, mode="nearest-exact" if exact else "nearest": F.vision.resize(x, size, "NHWC", mode)
        got = trace(run)(Tensor(x)).numpy()
        assert got.tobytes() == run(Tensor(x)).numpy().tobytes()
        assert (got == (x[:, sy // 2 :: sy, sx // 2 :: sx] if exact else x[:, ::sy, ::sx])).all()


def test_coordinates_that_are_no_numbers():
    for interp in ("linear", "nearest", "cubic"):
        assert np.isnan(row([NAN], "replicate", interp)).all() and np.isnan(row([NAN], "constant", interp)).all()
        for mode in ("wrap", "reflect", "reflect_101"):
            assert np.isnan(row([NAN, INF, -INF], mode, interp)).all()
            assert np.isfinite(row([1e30, -1e30, 3e9], mode, interp)).all()
        assert row([INF, -INF, 1e30, -1e30], "constant", interp) == [5.0] * 4
        assert row([INF, -INF, 1e30, -1e30], "replicate", interp) == [40.0, 10.0, 40.0, 10.0]
    assert row([NAN, 0.25, 0.75, -INF], "replicate", dtype="uint8") == [0, 12, 18, 10]  # 12.5 and 17.5 to even


def test_a_nan_in_the_image_stays_where_it_is():
    x = Tensor(np.array([[[[1, 2, NAN, 4]]]], np.float32))
    for mode in ("nearest", "bilinear", "bicubic"):
        assert np.isnan(F.vision.interpolate(x, (1, 4), None, mode).numpy()).ravel().tolist() == [False, False, True, False]
    rois = Tensor(np.array([[0, 0, 0, 1, 0]], np.float32))
    assert F.vision.roi_pooling(x, rois, 1, "average").item() == 1.5 and F.vision.roi_pooling(x, rois, 1).item() == 2.0


def test_constants_stay_constant_in_uint8():
    x = Tensor(np.full((1, 3, 5, 7), 255, np.uint8))
    for mode in ("nearest", "bilinear", "bicubic"):
        assert (F.vision.interpolate(x, (9, 4), None, mode).numpy() == 255).all()


def test_pictures_of_integers_are_resized_by_rows_then_columns():
    """Beside the matrices of both axes in float64; in both formats, and from the pixels as they are: no copy of them as floats."""
    r = np.random.default_rng(1)
    for d, shape in (("uint8", (2, 9, 20, 3)), ("int8", (1, 5, 7, 17)), ("int16", (1, 3, 4, 1))):
        x = r.integers(np.iinfo(d).min, np.iinfo(d).max, shape, d, endpoint=True)
        first = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
        for mode, size in (("linear", (4, 33)), ("cubic", (12, 5)), ("linear", (1, 1)), ("cubic", (2, 3))):
            got = F.vision.resize(Tensor(x), size, "NHWC", mode).numpy()
            exact = np_resample(x.astype("f8"), size, mode, "NHWC", False).clip(np.iinfo(d).min, np.iinfo(d).max)
            assert got.dtype == x.dtype and np.abs(got - exact).max(initial=0) <= 0.5 + 1e-6 * np.abs(exact).max(initial=0)
            planar = F.vision.interpolate(Tensor(first), size, mode=f"bi{mode}" if mode == "linear" else "bicubic")
            assert planar.numpy().tobytes() == np.ascontiguousarray(got.transpose(0, 3, 1, 2)).tobytes()
        for mode in ("nearest", "nearest-exact"):
            y = F.vision.interpolate(Tensor(first), (4, 9), mode=mode)
            assert y.dtype == d and (y.numpy() == F.vision.interpolate(Tensor(first.astype("f4")), (4, 9), mode=mode).numpy()).all()
    graph = graph_of(lambda x: F.vision.resize(x, (2, 3), "NHWC"), Tensor(x))
    readers = [n.op for n in graph.nodes if any(v is not None and v.type.dtype == "int16" for v in n.inputs)]
    assert readers == ["window_sums"], readers
    graph = graph_of(lambda x: F.vision.resize(x, (2, 3), "NHWC", "cubic"), Tensor(x))
    readers = [n.op for n in graph.nodes if any(v is not None and v.type.dtype == "int16" for v in n.inputs)]
    assert "tap_sum" in readers and "astype" not in readers, readers


def test_taps_of_integers_are_those_of_floats():
    r = np.random.default_rng(2)
    x, at, w = r.integers(0, 256, (2, 3, 9), np.uint8), r.integers(-1, 9, (2, 4, 20)), r.normal(size=(2, 4, 20)).astype("f4")
    for order in ((0, 1, 2), (0, 2, 1)):  # pixels in a row, and the colours of one
        image = Tensor(np.ascontiguousarray(x.transpose(order))).transpose(order)
        got, as_floats = (trace(tap_sum)(i, None, Tensor(at), Tensor(w)).numpy() for i in (image, image.astype("float32")))
        assert got.dtype == np.float32 and got.tobytes() == as_floats.tobytes()
        y, pull = vjp(lambda w, image=image: tap_sum(image, None, Tensor(at), w), Tensor(w))
        taps = np.where(at[:, None] >= 0, x[np.arange(2)[:, None, None, None], np.arange(3)[:, None, None], at.clip(0)[:, None]], 0)
        assert np.array_equal(pull(Tensor(np.ones(y.shape, "f4")))[0].numpy(), taps.sum(1))


def np_linear(x, at, mode):
    """The sums of the four pixels (N, H, W, C) around each place (N, PH, PW, 2), in float64; a NaN stands at 0."""
    (n, h, w, _), zeros = x.shape, mode == "constant"
    at = np.nan_to_num(at).clip(*((-1, [w, h]) if zeros else (0, [w - 1, h - 1])))
    first = np.floor(at).astype(int)
    far = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)), "constant" if zeros else "edge").astype("f8")
    pixel = lambda dy, dx: far[np.arange(n)[:, None, None], first[..., 1] + dy + 2, first[..., 0] + dx + 2]
    right, low = np.moveaxis((at - first)[..., None], 3, 0)
    upper, lower = (pixel(dy, 0) * (1 - right) + pixel(dy, 1) * right for dy in (0, 1))
    return upper * (1 - low) + lower * low


def test_pixels_of_few_bytes_are_read_as_words():
    """At quarters of pixels all sums are exact; up to the last byte of a picture."""
    r = np.random.default_rng(3)
    for d, shape, size, mode in (
        ("uint8", (2, 5, 7, 3), (3, 67), "constant"), ("int8", (1, 3, 2, 4), (2, 16), "replicate"),
        ("uint8", (1, 2, 3, 2), (1, 131), "constant"), ("int8", (1, 1, 1, 4), (1, 17), "constant"),
    ):  # fmt: skip
        (n, h, w, _), info = shape, np.iinfo(d)
        x = r.integers(info.min, info.max, shape, d, endpoint=True)
        at = (r.integers(-8, 4 * max(h, w) + 8, (n, *size, 2)) / 4).astype("f4")
        at[:, -1, -1] = at[:, 0, 0] = w - 1, h - 1
        at[0, 0, 1] = NAN
        run = lambda x, at, mode=mode: F.vision.remap(x.transpose(0, 3, 1, 2), at, mode).transpose(0, 2, 3, 1)
        got, want = trace(run)(Tensor(x), Tensor(at)).numpy(), np.round(np_linear(x, at, mode))
        want[0, 0, 1] = 0  # of the NaN
        assert got.dtype == d and np.array_equal(got, want), (d, shape, size, mode)
        assert run(Tensor(x), Tensor(at)).numpy().tobytes() == got.tobytes()


def test_a_warp_is_a_few_kernels():
    """The coordinates of rows, of columns and of both, and the sums of the pixels around them; the matrix is not known before it runs."""
    x, mat = Tensor(np.zeros((1, 8, 20, 3), np.uint8)), Tensor(np.eye(3, dtype="f4")[None, :2])
    run = trace(lambda x, m: F.vision.warp_affine(x, m, (6, 20), "constant"))
    run(x, mat)
    with tengen.profile() as p:
        run(x, mat)
    assert sum(row.calls for row in p.rows) <= 5, p.table()


def test_threads_layouts_and_batches_change_no_bit():
    r = np.random.default_rng(0)
    x, at = r.normal(size=(3, 20, 9, 8)).astype("f4"), r.uniform(-2, 10, (3, 7, 6, 2)).astype("f4")
    g = Tensor(r.normal(size=(3, 20, 7, 6)).astype("f4"))

    def run(x):
        y, pull = vjp(lambda a, b: F.vision.remap(a, b, "reflect"), x, Tensor(at))
        return [t.numpy().tobytes() for t in (y, *pull(g))]

    plain = run(Tensor(x))
    last = Tensor(np.ascontiguousarray(x.transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2)
    assert run(last) == plain
    tengen.set_threads(1)
    assert run(Tensor(x)) == plain
    tengen.set_threads(2)
    alone = F.vision.remap(Tensor(x[1:2]), Tensor(at[1:2]), "reflect").numpy()
    assert F.vision.remap(Tensor(x), Tensor(at), "reflect").numpy()[1:2].tobytes() == alone.tobytes()


def test_pictures_of_open_sizes():
    for mode in ("linear", "nearest"):
        run = trace(lambda x, mode=mode: F.vision.resize(x, (5, 7), "NHWC", mode), dynamic_axes={0: "batch", 1: "height", 2: "width"})
        for shape in ((1, 9, 8, 3), (2, 30, 21, 3)):
            x = Tensor(np.random.default_rng(0).integers(0, 256, shape, np.uint8))
            assert run(x).numpy().tobytes() == F.vision.resize(x, (5, 7), "NHWC", mode).numpy().tobytes()
        assert len(run.stats()) == 1


def test_an_open_batch():
    run = trace(lambda x: F.vision.interpolate(x, scale_factor=2.0), dynamic_axes={0: "batch"})
    for n in (1, 3):
        x = Tensor(np.random.default_rng(n).normal(size=(n, 2, 3, 4)).astype("f4"))
        assert run(x).numpy().tobytes() == F.vision.interpolate(x, scale_factor=2.0).numpy().tobytes()
    assert len(run.stats()) == 1


def test_empty_batches_and_single_pixels():
    empty = Tensor(np.zeros((0, 2, 4, 5), np.float32))
    assert F.vision.interpolate(empty, (3, 3)).shape == (0, 2, 3, 3)
    assert F.vision.grid_sample(empty, Tensor(np.zeros((0, 3, 3, 2), np.float32))).shape == (0, 2, 3, 3)
    assert F.vision.roi_align(Tensor(np.ones((1, 2, 4, 5), np.float32)), Tensor(np.zeros((0, 5), np.float32)), 2).shape == (0, 2, 2, 2)
    assert F.vision.nms(Tensor(np.zeros((0, 4), np.float32)), Tensor(np.zeros(0, np.float32)), 0.5).shape == (0,)
    one = Tensor(np.full((1, 1, 1, 1), 3, np.float32))
    for mode in ("nearest", "bilinear", "bicubic"):
        np.testing.assert_allclose(F.vision.interpolate(one, (2, 3), None, mode).numpy(), np.full((1, 1, 2, 3), 3), rtol=1e-6)


def test_non_maximum_suppression():
    r = np.random.default_rng(0)
    corners = r.uniform(0, 20, (60, 2)).astype("f4")
    boxes, scores = np.concatenate([corners, corners + r.uniform(1, 12, (60, 2)).astype("f4")], 1), r.uniform(size=60).astype("f4")
    from tengen.ops.vision_regions import np_overlap

    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if all(np_overlap(boxes[j], boxes[i]) <= 0.4 for j in kept):
            kept.append(int(i))
    assert F.vision.nms(Tensor(boxes), Tensor(scores), 0.4).tolist() == kept and len(kept) > 5
    assert F.nn.nms(Tensor(boxes), Tensor(scores), 0.4, 3).tolist() == kept[:3]
    with pytest.raises(TraceError, match="known only when the program runs"):
        trace(F.vision.nms, symbolic=True)(Tensor(boxes), Tensor(scores), 0.4)


def test_regions_outside_of_the_image_and_boxes_that_are_no_numbers():
    """Outside is 0, what has no place is NaN, and nothing reads beyond the image."""
    nan, inf = float("nan"), float("inf")
    x = Tensor(np.arange(1, 33, dtype="f4").reshape(1, 2, 4, 4))
    outside = [[0, -50, -50, -40, -40], [0, 100, 100, 120, 120], [0, 1e30, 1e30, 2e30, 2e30], [0, -9, 1, -7, 2]]
    odd = [[0, nan, 0, 2, 2], [0, 0, 0, 2, nan], [0, nan, nan, nan, nan], [0, 0, inf, 1, 2], [0, 0, 0, -inf, 2]]
    regions, good = Tensor(np.array([*outside, *odd, [0, 1, 1, 2, 2]], "f4")), Tensor(np.array([[0, 1, 1, 2, 2]], "f4"))
    trans = F.zeros((10, 2, 2, 2))
    pools = [
        lambda r: F.vision.roi_pooling(x, r, 2), lambda r: F.vision.roi_pooling(x, r, 2, "average"),
        lambda r: F.deformable_psroi_pooling(x, r, trans[: r.shape[0]], False, 2, 2, 2, 2, 1.0),
    ]  # fmt: skip
    for pool in pools:
        got = pool(regions).numpy()
        assert (got[:4] == 0).all() and np.isnan(got[4:9]).all() and got[9:].tobytes() == pool(good).numpy().tobytes()
    for mode in ("average", "max"):
        got, alone = (F.vision.roi_align(x, r, 2, mode).numpy() for r in (regions, good))
        assert (got[:4] == 0).all() and np.isnan(got[[4, 6]]).all() and got[9:].tobytes() == alone.tobytes()
    nms = lambda boxes, scores: F.vision.nms(Tensor(np.array(boxes, "f4")), Tensor(np.array(scores, "f4")), 0.5).tolist()
    assert nms([[0, 0, 1, 1], [nan, 0, 1, 1], [0, 0, 1, 1]], [0, 1, 2]) == [2, 1]
    assert nms([[0, 0, 1, 1], [5, 5, 6, 6], [0, 0, 1, 1]], [1, nan, 2]) == [1, 2] and nms([[nan] * 4] * 3, [1, 2, 3]) == [2, 1, 0]
    assert nms([[2, 2, 1, 1], [0, 0, inf, inf]], [0, 1]) == [1, 0]
    assert nms([[5, 1, 4, 3], [0, 0, 1, 1], [0, 0, 1, 1]], [3, 2, 1]) == [0, 1]  # a union of less than nothing


def test_turning_and_resizing():
    r = np.random.default_rng(0)
    x = r.normal(size=(2, 4, 5, 3)).astype("f4")
    t = Tensor(x)
    np.testing.assert_array_equal(F.vision.flip(t).numpy(), x[:, ::-1, ::-1])
    assert F.vision.flip(t, False, False).numpy().tobytes() == x.tobytes()
    np.testing.assert_array_equal(F.vision.rot90(t, False).numpy(), np.rot90(x, axes=(1, 2)))
    np.testing.assert_array_equal(F.vision.rot90(t).numpy(), np.rot90(x, -1, (1, 2)))
    square = Tensor(x[:, :, :4])
    np.testing.assert_allclose(F.vision.rotate(square, 90, "NHWC").numpy(), np.rot90(x[:, :, :4], axes=(1, 2)), atol=1e-5)
    channels_first = F.vision.resize(t.transpose(0, 3, 1, 2), (3, 7)).numpy()
    assert F.vision.resize(t, (3, 7), "NHWC").numpy().tobytes() == channels_first.transpose(0, 2, 3, 1).tobytes()


def test_modules():
    r = np.random.default_rng(0)
    x = Tensor(r.normal(size=(2, 4, 6, 7)).astype("f4"))
    net = M.DeformableConv2d(4, 6, 3, padding=1)
    none, all_ = Tensor(np.zeros((2, 18, 6, 7), np.float32)), Tensor(np.ones((2, 9, 6, 7), np.float32))
    plain = F.conv2d(x, net.weight, net.bias, padding=1, algorithm="direct").numpy()
    np.testing.assert_allclose(net(x, none, all_).numpy(), plain, rtol=1e-4, atol=1e-5)  # nothing is moved
    net = M.RegionRestrictedConv(4, 6, 3, padding=1)
    one = Tensor(np.ones((2, 6, 7), np.int32))
    plain = F.conv2d(x, net.weight[0], net.bias, padding=1, algorithm="direct").numpy()
    np.testing.assert_allclose(net(x, one, one).numpy(), plain, rtol=1e-4, atol=1e-5)  # one region
    with pytest.raises(ValueError, match="padding_mode"):
        M.RegionRestrictedConv(4, 6, 3, padding_mode="reflect")
    regions, offsets = Tensor(np.array([[0, 1, 1, 4, 4], [1, 0, 2, 5, 5]], "f4")), Tensor(r.normal(size=(2, 2, 3, 3)).astype("f4"))
    settings = (False, 3, 3, 3, 2, 0.5, 0.2)
    want = F.deformable_psroi_pooling(x, regions, offsets, *settings)
    assert M.DeformablePSROIPooling(*settings)(x, regions, offsets).numpy().tobytes() == want.numpy().tobytes()
    columns, rows = (Tensor(r.uniform(0, 5, (2, 3, 3)).astype("f4")) for _ in range(2))
    both = F.stack([columns, rows], 3)
    assert M.Remap()(x, columns, rows).numpy().tobytes() == F.vision.remap(x, both).numpy().tobytes()
    assert M.Upsample(size=(3, 3), mode="bilinear")(x).numpy().tobytes() == F.vision.interpolate(x, (3, 3)).numpy().tobytes()


@pytest.mark.parametrize("call, error, message", [
    (lambda x: F.vision.interpolate(x), ValueError, "one of size and scale_factor"),
    (lambda x: F.vision.interpolate(x, 4, mode="linear"), ValueError, r"mode 'linear' takes images \(N, C, L\)"),
    (lambda x: F.vision.interpolate(x, 4, mode="nearest", align_corners=True), ValueError, "no meaning for mode 'nearest'"),
    (lambda x: F.vision.interpolate(x, (4, 4, 4)), ValueError, "must have 2 extents"),
    (lambda x: F.vision.interpolate(x.astype("int32"), 4), TypeError, "integers of up to 16 bits"),
    (lambda x: F.vision.interpolate(F.zeros((1, 2, 0, 3)), 4), ValueError, "without pixels"),
    (lambda x: F.vision.remap(x, F.zeros((2, 3, 3, 2))), ValueError, "takes a map"),
    (lambda x: F.vision.remap(x, F.zeros((1, 3, 3, 2), "int32")), TypeError, "must be floats"),
    (lambda x: F.vision.warp_perspective(x, F.zeros((1, 2, 3)), (3, 3)), ValueError, "takes matrices"),
    (lambda x: F.vision.warp_perspective(x, F.zeros((1, 3, 3)), (3, 3), Tensor([1])), IndexOutOfRange, "index 1 is out of range"),
    (lambda x: F.vision.roi_align(x, F.ones((1, 5)), 2), IndexOutOfRange, "index 1 is out of range"),
    (lambda x: F.vision.roi_align(x, F.full((1, 5), float("nan")), 2), IndexOutOfRange, "index -1 is out of range"),
    (lambda x: F.vision.roi_pooling(x, F.ones((1, 4)), 2), ValueError, "regions"),
    (lambda x: F.vision.nms(F.ones((2, 4)), F.ones((3,)), 0.5), ValueError, "nms takes boxes"),
    (lambda x: F.deformable_psroi_pooling(x, F.ones((1, 5)), F.ones((1, 2, 2, 3)), False, 2, 2, 2, 2, 1.0), ValueError, "takes offsets"),
    (lambda x: F.deformable_psroi_pooling(x, F.ones((1, 5)), F.ones((2, 2, 2, 2)), False, 2, 2, 2, 2, 1.0), ValueError, "not as many"),
    (lambda x: F.vision.cvt_color(F.ones((1, 2, 2, 3)), "RGB2BGR"), TypeError, "takes uint8"),
    (lambda x: F.vision.cvt_color(Tensor(np.ones((1, 4, 2, 1), np.uint8)), "YUV2RGB_NV12"), ValueError, "takes planes"),
    (lambda x: F.vision.correlation(x, x, 2), ValueError, "odd kernel_size"),
    (lambda x: F.vision.correlation(x, x, 3, 5), ValueError, "no pixel"),
    (lambda x: F.deformable_conv2d(x, F.ones((1, 2, 2, 2)), F.ones((1, 8, 3, 3)), F.ones((1, 3, 3, 3))), ValueError, "the mask has"),
    (lambda x: F.local_conv2d(x, F.ones((3, 3, 2, 3, 3, 1))), ValueError, "filter's first part"),
    (lambda x: F.vision.nvof(x), DeviceError, "NVIDIA"),
])  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(Tensor(np.ones((1, 2, 4, 4), np.float32)))
