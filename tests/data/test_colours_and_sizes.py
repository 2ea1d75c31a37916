"""Transforms of colours and sizes of random amount, beside their definitions."""

import colorsys

import numpy as np
import pytest

import tengen
from tengen.data import transform as T
from tengen.data.colour import LUMA, turn_hue
from tengen.data.draws import Draws, rng

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (6, 9, 3), np.uint8)


@pytest.fixture(autouse=True)
def drawing():
    tengen.random.seed(3)


def test_saturation(monkeypatch):
    t = T.SaturationTransform(0.7)
    got = t.apply(IMAGE)
    grey = (IMAGE.astype("f8") @ LUMA.astype("f8"))[..., None]
    want = np.clip(IMAGE * float(t._factor) + grey * (1 - float(t._factor)), 0, 255)
    assert got.dtype == np.uint8 and np.abs(got - want).max() <= 1 and 0.3 <= t._factor <= 1.7
    assert (T.SaturationTransform(0).apply(IMAGE) == IMAGE).all() and T.SaturationTransform(0.5).apply(IMAGE[..., 0]).shape == (6, 9)


@pytest.mark.parametrize("turn", [0.0, 0.1, -0.3, 0.5])
def test_hue(turn):
    got = turn_hue(IMAGE.astype("f8"), turn)
    for y in range(6):
        for x in range(9):
            b, g, r = IMAGE[y, x] / 255
            h, s, v = colorsys.rgb_to_hsv(r, g, b)
            want = np.array(colorsys.hsv_to_rgb((h + turn) % 1, s, v))[::-1] * 255
            np.testing.assert_allclose(got[y, x], want, atol=1e-9)


def test_hue_of_a_sample():
    t = T.HueTransform(0.4)
    got = t.apply(IMAGE)
    assert got.dtype == np.uint8 and -0.4 <= t._turn <= 0.4 and (got.max(-1) == IMAGE.max(-1)).all() and (got != IMAGE).any()
    grey = np.repeat(IMAGE[..., :1], 3, -1)
    assert (T.HueTransform(0.4).apply(grey) == grey).all() and T.HueTransform(0).apply(IMAGE) is IMAGE
    for bad in (-0.1, 0.6):
        with pytest.raises(ValueError, match="from 0 to 0.5"):
            T.HueTransform(bad)


def test_colour_jitter():
    sample = (IMAGE, np.array([[1, 2, 3, 4]]), 7)
    image, boxes, label = T.ColorJitter(0.3, 0.3, 0.3, 0.1, order=("image", "boxes", "image_category")).apply(sample)
    assert image.shape == IMAGE.shape and image.dtype == np.uint8 and (image != IMAGE).any() and boxes.tolist() == [[1, 2, 3, 4]] and label == 7
    assert (T.ColorJitter().apply(IMAGE) == IMAGE).all()
    one = T.ColorJitter(brightness=0.5)
    got = one.apply(IMAGE)
    factor = one.transforms.transforms[0]._factor
    assert (got == np.clip(IMAGE.astype("f4") * factor, 0, 255).astype(np.uint8)).all()
    with pytest.raises(ValueError):
        T.ColorJitter(brightness=-1)


def test_lighting_and_noise():
    t = T.Lighting(0.1)
    got = t.apply(IMAGE.astype("f4"))
    shift = t.VECTORS.astype("f8") @ (t._shares.astype("f8") * t.VALUES.astype("f8"))
    np.testing.assert_allclose(got, np.clip(IMAGE + shift, 0, 255), rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(t.VECTORS.T @ t.VECTORS, np.eye(3), atol=2e-3)  # they are orthogonal
    assert (T.Lighting(0).apply(IMAGE) == IMAGE).all()
    with pytest.raises(ValueError, match="three channels"):
        T.Lighting(0.1).apply(IMAGE[..., 0])
    flat = np.full((200, 200, 3), 128.0, np.float32)
    noise = (T.GaussianNoise(mean=(0.0, 0.1, 0.0), std=0.02).apply(flat) - flat) / 255
    np.testing.assert_allclose(noise.mean((0, 1)), [0, 0.1, 0], atol=1e-3)
    np.testing.assert_allclose(noise.std((0, 1)), 0.02, rtol=0.02)
    assert T.GaussianNoise(std=5).apply(IMAGE).dtype == np.uint8
    with pytest.raises(ValueError, match="std >= 0"):
        T.GaussianNoise(std=-1)


def test_random_sizes():
    sample, order = (IMAGE, IMAGE[..., :1], np.array([[0.0, 0.0, 9.0, 6.0]])), ("image", "mask", "boxes")
    image, mask, boxes = T.RandomResize((2, 2), order=order).apply(sample)
    assert image.shape == (12, 18, 3) and mask.shape == (12, 18, 1) and boxes.tolist() == [[0, 0, 18, 12]]
    assert (image == T.Resize((12, 18)).apply(IMAGE)).all()
    sizes = {T.RandomResize((0.5, 3)).apply(IMAGE).shape[:2] for _ in range(20)}
    assert len(sizes) > 5 and all(3 <= h <= 18 for h, _ in sizes)
    for short, most, shape in ((12, 100, (12, 18)), (12, 9, (6, 9)), ((4, 4), 100, (4, 6))):
        image, mask, boxes = T.ShortestEdgeResize(short, most, order=order).apply(sample)
        assert image.shape[:2] == mask.shape[:2] == shape and boxes.tolist() == [[0, 0, shape[1], shape[0]]]
    assert {T.ShortestEdgeResize((4, 8), 99, "choice").apply(IMAGE).shape[0] for _ in range(30)} == {4, 8}
    assert {T.ShortestEdgeResize((4, 8), 99).apply(IMAGE.transpose(1, 0, 2)).shape[1] for _ in range(60)} == {4, 5, 6, 7, 8}
    for make in (
        lambda: T.RandomResize((2, 1)), lambda: T.RandomResize((0, 1)), lambda: T.ShortestEdgeResize(3, 9, "all"),
        lambda: T.ShortestEdgeResize((), 9), lambda: T.ShortestEdgeResize(0, 9, "choice"),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            make()


def test_transforms_for_pillow():
    Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    seen = []

    def mirror(image):
        seen.append((image.size, image.getpixel((0, 0))))
        return image.transpose(Image.FLIP_LEFT_RIGHT)

    got = T.TorchTransformCompose([mirror, np.asarray]).apply(IMAGE)
    assert (got == IMAGE[:, ::-1]).all() and seen == [((9, 6), tuple(int(v) for v in IMAGE[0, 0, ::-1]))]
    first = T.TorchTransformCompose([lambda image: np.asarray(image).transpose(2, 0, 1)]).apply(IMAGE.transpose(2, 0, 1))
    assert (first == IMAGE.transpose(2, 0, 1)).all()


def test_draws_are_the_samples_own():
    jitter = T.Compose([T.ColorJitter(0.5, 0.5, 0.5, 0.2), T.GaussianNoise(std=0.1), T.RandomResize((1, 2))])
    with Draws(5, 0, [1]):
        one = jitter.apply(IMAGE)
        after = rng().random()
    with Draws(5, 0, [1]):
        two = jitter.apply(IMAGE)
        assert after == rng().random()
    assert one.tobytes() == two.tobytes()
