"""Augmentations on the device, against their definitions in NumPy; `multi_head_attention`, against `MultiHeadAttention`."""

import numpy as np
import pytest

from tengen import Tensor, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.base.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 255, (4, 3, 6, 5)).astype("f4")


def filtered(x, kernel, mode="reflect"):
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)), mode)
    h, w = x.shape[2:]
    return sum(kernel[i, j] * padded[:, :, i : i + h, j : j + w] for i in range(3) for j in range(3))


def test_filters():
    same = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    emboss = np.array([[-1.7, -0.7, 0], [-0.7, 1, 0.7], [0, 0.7, 1.7]])
    np.testing.assert_allclose(M.Emboss(0.6, 0.7)(Tensor(X)).numpy(), filtered(X, 0.4 * same + 0.6 * emboss), rtol=1e-4, atol=1e-3)
    sharpen = np.full((3, 3), -1.0)
    sharpen[1, 1] = 8.8
    np.testing.assert_allclose(M.Sharpen(0.3, 0.8)(Tensor(X)).numpy(), filtered(X, 0.7 * same + 0.3 * sharpen), rtol=1e-4, atol=1e-2)
    got = M.Sharpen(0.3, 0.8)(Tensor(X.astype("u1"))).numpy()
    want = filtered(X.astype("u1"), 0.7 * same + 0.3 * sharpen).clip(0, 255)
    assert got.dtype == np.uint8 and np.abs(got - want).max() < 1.01
    a, b = (M.Sharpen((0.1, 0.9), (0.5, 2.0), seed=s) for s in (1, 2))
    assert not np.array_equal(a(Tensor(X)).numpy(), b(Tensor(X)).numpy())
    a.seed = 2
    assert a(Tensor(X)).numpy().tobytes() != a(Tensor(X)).numpy().tobytes() and a.seed == 2
    blur = M.GaussianBlur((3, 5), 1.0, 1.5)
    wx, wy = (np.exp(-((np.arange(n) - n // 2) ** 2) / (2 * s * s)) for n, s in ((5, 1.0), (3, 1.5)))
    padded = np.pad(X.astype("f8"), ((0, 0), (0, 0), (1, 1), (2, 2)), "edge")
    k = np.outer(wy / wy.sum(), wx / wx.sum())
    want = sum(k[i, j] * padded[:, :, i : i + 6, j : j + 5] for i in range(3) for j in range(5))
    np.testing.assert_allclose(blur(Tensor(X.transpose(0, 2, 3, 1))).numpy(), want.transpose(0, 2, 3, 1), rtol=1e-5)
    for mode, pad in (("REFLECT", "symmetric"), ("REFLECT_101", "reflect"), ("CONSTANT", "constant")):
        got = M.GaussianBlur(3, 1.0, border_mode=mode)(Tensor(X.transpose(0, 2, 3, 1))).numpy()[0, 0, 0]
        w = np.exp([-0.5, 0, -0.5])
        want = (np.outer(w, w) / w.sum() ** 2 * np.pad(X[0].astype("f8"), ((0, 0), (1, 1), (1, 1)), pad)[:, :3, :3]).sum((1, 2))
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_noise():
    zero = F.zeros((8, 4, 32, 32))
    for net, mean, std in (
        (M.AdditiveGaussianNoise(0.5, 2.0, True, 1), 0.5, 2.0), (M.AdditiveLaplaceNoise(-1.0, 0.5, True, 2), -1.0, 0.5 * 2**0.5),
        (M.AdditivePoissonNoise(3.0, True, 3), 3.0, 3**0.5),
    ):  # fmt: skip
        y = net(zero).numpy()
        assert abs(y.mean() - mean) < 0.05 and abs(y.std() - std) < 0.05 and np.isfinite(y).all()
        assert not np.array_equal(y[:, 0], y[:, 1])
        net.per_channel = False
        y = trace(net)(zero).numpy()
        assert np.array_equal(y[:, 0], y[:, 1]) and not np.array_equal(y[0], y[1])


def test_contrast_and_mixtures():
    np.testing.assert_allclose(M.LinearContrast(0.5)(Tensor(X)).numpy(), 0.5 * X, rtol=1e-6)
    got = M.LinearContrast(3.0)(Tensor(X.astype("u1"))).numpy()
    assert np.array_equal(got, (127 + 3.0 * (X.astype("u1") - 127.0)).clip(0, 255).astype("u1"))
    y = M.LinearContrast((0.5, 0.9), True, 3)(Tensor(X)).numpy() / X
    assert np.ptp(y.reshape(12, -1), axis=1).max() < 1e-5 and len(np.unique(y.round(4))) >= 12 and 0.5 <= y.min() <= y.max() < 0.9001
    a, b = F.zeros((64, 2, 8, 6)), F.ones((64, 2, 8, 6))
    data, label = M.Mixup(2.0, seed=1)(a, F.zeros(64), b, F.ones(64))
    np.testing.assert_allclose(data.numpy(), np.broadcast_to(label.numpy()[:, None, None, None], data.shape), rtol=1e-6)
    data, label = M.Cutmix(1.0, seed=1)(a, F.zeros(64), b, F.ones(64))
    area = data.numpy()[:, 0].mean((1, 2))
    assert set(np.unique(data.numpy())) == {0, 1} and np.all(area <= label.numpy() + 1e-6) and np.corrcoef(area, label.numpy())[0, 1] > 0.6
    for box in data.numpy()[:, 0]:
        rows, columns = box.any(1), box.any(0)
        assert np.array_equal(box, np.outer(rows, columns)), "a box"


def test_crop_and_pad():
    x = Tensor(np.arange(64, dtype="f4").reshape(1, 1, 8, 8))
    assert M.CropAndPad()(x, Tensor([0.0])).tolist() == x.tolist()
    cropped = M.CropAndPad("nearest")(x, Tensor([-0.25])).numpy()[0, 0]
    assert cropped.min() == 18 and cropped.max() == 45 and np.array_equal(np.unique(cropped), np.unique(x.numpy()[0, 0, 2:6, 2:6]))
    padded = M.CropAndPad("nearest")(x, Tensor([0.5]), Tensor([-3.0])).numpy()[0, 0]
    assert (padded == -3).sum() == 48 and np.array_equal(padded[2:6, 2:6], x.numpy()[0, 0, 1::2, 1::2])
    corners = M.CropAndPad(align_corners=True)(x, Tensor([-0.25])).numpy()[0, 0]
    assert corners[0, 0] == 18 and corners[-1, -1] == 45


@pytest.mark.parametrize("call, words", [
    (lambda: M.Emboss(True, 1.0), r"Emboss: alpha=True must be a number"), (lambda: M.Sharpen(1.0, (1, 2, 3)), "two ends"),
    (lambda: M.GaussianBlur(4), "kernel_size=4"), (lambda: M.GaussianBlur(3, border_mode="x"), "must be 'REPLICATE' or"),
    (lambda: M.CropAndPad("cubic"), "mode='cubic'"),
    (lambda: M.AdditiveGaussianNoise()(F.ones((3, 4))), r"images \(N, C, H, W\), got f32\[3,4\]"),
    (lambda: M.AdditiveElemwise(0.5), "per_channel=0.5"), (lambda: M.CropAndPad()(F.ones((2, 1, 4, 4)), F.ones(3)), r"percent \(3,\)"),
])  # fmt: skip
def test_mistakes(call, words):
    with pytest.raises((ArgumentError, ShapeError, TypeError, ValueError), match=words):
        call()


def test_settings_may_be_changed():
    for a, b, names in (
        (M.Emboss(0.1, 0.2), M.Emboss(0.6, 0.7), {"alpha": 0.6, "strength": (0.7, 0.7)}),
        (M.Sharpen(0.1, 0.2), M.Sharpen(0.6, 0.7), {"alpha": 0.6, "lightness": 0.7}),
        (M.LinearContrast(0.1, False, 3), M.LinearContrast((0.2, 0.7), True, 3), {"alpha": (0.2, 0.7), "per_channel": True}),
        (M.GaussianBlur(3, 1.0), M.GaussianBlur((1, 3), 2.0, 1.0, "CONSTANT"), {"kernel_size": (1, 3), "sigma_x": 2.0, "sigma_y": 1.0,
                                                                                "border_mode": "CONSTANT"}),
        (M.AdditiveGaussianNoise(seed=1), M.AdditiveGaussianNoise(1.0, 2.0, True, 1), {"mean": 1.0, "std": 2.0, "per_channel": True}),
        (M.AdditivePoissonNoise(seed=1), M.AdditivePoissonNoise(5.0, seed=1), {"lam": 5.0}),
    ):  # fmt: skip
        for name, value in names.items():
            setattr(a, name, value)
        assert a(Tensor(X)).numpy().tobytes() == b(Tensor(X)).numpy().tobytes(), a
    with pytest.raises(ArgumentError, match="alpha='a'"):
        M.Emboss(0.1, 0.2).alpha = "a"


def packed(m):
    maps = (m.query_map, m.key_map, m.value_map, m.out_map)
    return F.concat([x.weight.T.flatten() for x in maps] + [x.bias.flatten() for x in maps])


def test_multi_head_attention():
    net = M.MultiHeadAttention(8, 2, kdim=6, vdim=4)
    for p in net.parameters():
        p._reset(Tensor(RNG.standard_normal(p.shape).astype("f4")))
    q, k, v = (Tensor(RNG.standard_normal(s).astype("f4")) for s in ((3, 5, 8), (3, 7, 6), (3, 7, 4)))
    has = dict.fromkeys(("qbias", "kbias", "vbias", "obias"), True)
    call = lambda *a, **more: F.multi_head_attention(*a, 8, 2, 0.0, 0.0, packed(net), **has, **more)
    near = lambda a, b: np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
    want = net(q, k, v)
    near(call(q, k, v)[0], want)
    y, weights = call(q, k, v, need_weights=True)
    near(y, want)
    assert weights.shape == (6, 5, 7) and np.allclose(weights.numpy().sum(-1), 1)
    near(call(q, k, v, need_weights=True, average_attn_weights=True)[1], weights.reshape(3, 2, 5, 7).mean(1))
    near(call(q[0], k[0], v[0])[0], want[0])
    padding = Tensor(np.arange(7) >= np.array([[7], [4], [2]]))
    near(call(q, k, v, key_padding_mask=padding)[0][2], net(q[2:], k[2:, :2], v[2:, :2])[0])
    near(call(q, k, v, key_padding_mask=Tensor([[5, 5, 5], [7, 4, 2]]).astype("int32"), maybe_cudnn_style_mask=True)[0][2],
         net(q[2:], k[2:, :2], v[2:, :2])[0])  # fmt: skip
    seen = F.tril(F.ones((5, 7)))
    near(call(q, k, v, is_causal=True)[0], net(q, k, v, is_causal=True))
    near(call(q, k, v, attn_mask=seen == 0)[0], net(q, k, v, is_causal=True))
    near(call(q, k, v, attn_mask=F.stack([F.zeros(5), F.arange(1, 6)]), maybe_cudnn_style_mask=True)[0], net(q, k, v, is_causal=True))
    near(call(q, k, v, attn_mask=F.broadcast_to(F.where(seen == 0, -np.inf, 0.0), (6, 5, 7)))[0], net(q, k, v, is_causal=True))
    same = Tensor(RNG.standard_normal((2, 4, 8)).astype("f4"))
    plain = F.multi_head_attention(same, same, same, 8, 2, 0.0, 0.0, None, 0, 0, 0, 0)[0]
    heads = same.reshape(2, 4, 2, 4).transpose(0, 2, 1, 3)
    near(plain, F.scaled_dot_product_attention(heads, heads, heads, scale=8**-0.5).transpose(0, 2, 1, 3).reshape(2, 4, 8))
    random.seed(0)
    assert (F.multi_head_attention(same, same, same, 8, 2, 0.5, 0.9, None, 0, 0, 0, 0)[0].numpy() == 0).mean() > 0.7
    for more, words in (
        ({"bias_k": same}, "bias_k must be left"), ({"kproj_size": 6}, "io_weight_bias has .* numbers"),
        ({"attn_mask": F.ones((2, 2))}, r"attn_mask \(2, 2\)"), ({"oproj_size": 0}, "output has a bias and no map"),
        ({"key_padding_mask": F.ones((2, 2))}, r"key_padding_mask \(2, 2\)"),
    ):  # fmt: skip
        with pytest.raises((ArgumentError, ShapeError), match=words):
            call(q, k, v, **more)
