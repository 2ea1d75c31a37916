"""Transforms: shapes, values, items that move together, and errors."""

import zlib

import numpy as np
import pytest

import tengen
from tengen.data import transform as T
from tengen.data.draws import Draws

IMAGE = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)


def test_mode_and_normalize():
    chw = T.ToMode("CHW").apply(IMAGE)
    assert chw.shape == (3, 5, 7) and chw.flags.c_contiguous
    assert (T.ToMode("HWC").apply(chw) == IMAGE).all()
    assert T.ToMode().apply(np.zeros((4, 6))).shape == (1, 4, 6)
    out = T.Normalize(mean=[1, 2, 3], std=2).apply(IMAGE)
    assert out.dtype == np.float32 and np.array_equal(out, (IMAGE.astype(np.float32) - [1, 2, 3]) / 2)
    with pytest.raises(ValueError):
        T.Normalize(std=[1, 0])


def test_pad():
    assert T.Pad(2).apply(IMAGE).shape == (9, 11, 3)
    out = T.Pad((1, 2), value=(9, 8, 7)).apply(IMAGE)
    assert out.shape == (6, 9, 3) and out[5, 8].tolist() == [9, 8, 7] and (out[:5, :7] == IMAGE).all()
    out = T.Pad((1, 2, 3, 4)).apply(IMAGE[..., 0])
    assert out.shape == (8, 14) and (out[1:6, 3:10] == IMAGE[..., 0]).all() and out[0, 0] == 0
    for bad in (-1, (1, 2, 3), 1.5):
        with pytest.raises(ValueError, match="Pad"):
            T.Pad(bad)


def test_resize_values():
    """Against the definition, pixel by pixel."""
    rng = np.random.default_rng(0)
    for (h, w), (oh, ow) in [((5, 7), (9, 3)), ((1, 1), (3, 3)), ((4, 6), (2, 3)), ((2, 3), (1, 1)), ((8, 8), (32, 32))]:
        image = rng.random((h, w, 2))
        out = T.resize(image, (oh, ow))
        for i in range(oh):
            for j in range(ow):
                y = min(max((i + 0.5) * h / oh - 0.5, 0), h - 1)
                x = min(max((j + 0.5) * w / ow - 0.5, 0), w - 1)
                y0, x0 = int(y), int(x)
                y1, x1, fy, fx = min(y0 + 1, h - 1), min(x0 + 1, w - 1), y - y0, x - x0
                top = image[y0, x0] * (1 - fx) + image[y0, x1] * fx
                bottom = image[y1, x0] * (1 - fx) + image[y1, x1] * fx
                np.testing.assert_allclose(out[i, j], top * (1 - fy) + bottom * fy, rtol=1e-12)
        assert T.resize(image.astype(np.float32), (oh, ow)).dtype == np.float32


def test_resized_bytes_are_those_of_opencv():
    """Of `cv2.resize(image, (ow, oh), interpolation=cv2.INTER_LINEAR)` of OpenCV 4.11, which MegEngine's transforms call."""
    rng, checksum = np.random.RandomState(3), 0
    for _ in range(60):
        h, w, oh, ow = (int(n) for n in rng.randint(1, 40, 4))
        image = rng.randint(0, 256, (h, w, int(rng.choice([1, 3])))).astype(np.uint8)
        checksum = zlib.crc32(np.ascontiguousarray(T.resize(image, (oh, ow))).tobytes(), checksum)
        assert (T.resize(image[..., 0], (oh, ow)) == T.resize(image, (oh, ow))[..., 0]).all()
    assert checksum == 934806473


def test_resize():
    assert T.Resize(10).apply(IMAGE).shape == (10, 14, 3)
    assert T.Resize((4, 4)).apply(IMAGE).dtype == np.uint8
    assert T.Resize((10, 14), "nearest").apply(IMAGE)[::2, ::2].tolist() == IMAGE.tolist()
    assert T.resize(np.array([[0, 255]], np.uint8), (1, 4)).tolist() == [[0, 64, 191, 255]]
    both = T.Resize((10, 7), order=("image", "mask", "coords"))
    image, mask, coords = both.apply((IMAGE, IMAGE[..., 0], np.array([[7.0, 5.0]])))
    assert image.shape == (10, 7, 3) and mask.shape == (10, 7) and coords.tolist() == [[7, 10]]
    with pytest.raises(ValueError):
        T.Resize((0, 1))
    with pytest.raises(ValueError):
        T.Resize(4, "cubic")
    with pytest.raises(ValueError, match="no pixels"):
        T.resize(np.zeros((0, 3)), (2, 2))


def test_crops():
    assert (T.CenterCrop(3).apply(IMAGE) == IMAGE[1:4, 2:5]).all()
    with pytest.raises(ValueError, match="6 x 6 from an image of 5 x 7"):
        T.CenterCrop(6).apply(IMAGE)
    for i in range(20):
        with Draws(0, 0, [i]):
            out, coords = T.RandomCrop((5, 6), padding_size=2, order=("image", "coords")).apply((IMAGE, np.array([[3, 2]])))
            assert out.shape == (5, 6, 3)
            x, y = coords[0]
            if 0 <= x < 6 and 0 <= y < 5:
                assert (out[y, x] == IMAGE[2, 3]).all()
            assert T.RandomResizedCrop(4).apply(IMAGE).shape == (4, 4, 3)
    thin = np.zeros((1, 500, 3))
    assert T.RandomResizedCrop((3, 4)).apply(thin).shape == (3, 4, 3)


@pytest.mark.parametrize("make, axis", [(T.RandomHorizontalFlip, 1), (T.RandomVerticalFlip, 0)])
def test_flips(make, axis):
    boxes = np.array([[1, 0, 2, 4]])
    image, moved, label = make(1, order=("image", "boxes", "image_category")).apply((IMAGE, boxes, 7))
    assert (image == np.flip(IMAGE, axis)).all() and label == 7
    assert moved.tolist() == ([[5, 0, 6, 4]] if axis else [[1, 1, 2, 5]]) and boxes.tolist() == [[1, 0, 2, 4]]
    assert make(0).apply(IMAGE) is IMAGE
    with Draws(0, 0, range(200)) as d:
        flips = 0
        for i in range(200):
            d.select(i)
            flips += make().apply(IMAGE) is not IMAGE
    assert 70 < flips < 130
    with pytest.raises(ValueError):
        make(1.5)


def test_light():
    grey = np.full((4, 4, 3), 100, np.uint8)
    with Draws(0, 0, [0]):
        bright = T.BrightnessTransform(0.5).apply(grey)
        assert bright.dtype == np.uint8 and 50 <= bright[0, 0, 0] <= 150 and len(np.unique(bright)) == 1
        assert np.abs(T.ContrastTransform(0.9).apply(grey).astype(int) - 100).max() <= 1, "a flat image has no contrast"
    assert T.BrightnessTransform(0).apply(grey) is grey
    both = T.ContrastTransform(0.5, order=("image", "boxes", "mask")).apply((grey, "boxes", "mask"))
    assert both[1:] == ("boxes", "mask")


def test_compose():
    steps = [T.Resize(32), T.Normalize(), T.ToMode("CHW")]
    image, label = T.Compose(steps).apply((IMAGE, 3))
    assert image.shape == (3, 32, 44) and label == 3
    assert T.Compose(steps, batch_compose=True).apply_batch([(IMAGE, 1)])[0][0].tobytes() == image.tobytes()
    assert T.Compose([T.Pad(1)], order=("mask",)).transforms[0].order == ("mask",)

    class Add(T.Transform):
        def __init__(self, n):
            self.n = n

        def apply(self, input):
            return input + [self.n]

    shuffled = T.Compose([Add(1), Add(2), Add(3)], shuffle_indices=[(1, 3)])
    seen = set()
    for i in range(20):
        with Draws(0, 0, [i]):
            seen.add(tuple(shuffled.apply([])))
    assert seen == {(1, 2, 3), (3, 2, 1)}
    with pytest.raises(ValueError, match="from 1 to 1"):
        T.Compose([Add(1)], shuffle_indices=[(0, 1)])


def test_orders():
    for bad in ("image", (1,)):
        with pytest.raises(ValueError, match="order"):
            T.Pad(1, order=bad)
    with pytest.raises(ValueError, match="does not transform 'keypoints'"):
        T.Pad(1, order=("image", "keypoints"))

    class Mine(T.VisionTransform):
        def _apply_image(self, image):
            return image + 1

    assert (Mine().apply(IMAGE) == IMAGE + 1).all()
    with pytest.raises(ValueError, match="boxes"):
        Mine(("image", "boxes"))


def test_outside_a_loader_the_seed_decides():
    def once():
        tengen.random.seed(3)
        return [T.RandomCrop(3).apply(IMAGE) for _ in range(5)]

    first, second = once(), once()
    assert all((a == b).all() for a, b in zip(first, second))
