"""Fourier transforms, windows, mel weights, random numbers."""

from __future__ import annotations

import numpy as np

import tengen.functional as F
from tengen import fft, random
from tengen.interop.networks.places import modest
from tengen.interop.onnx.ops.elementwise import warn_of_seed
from tengen.interop.onnx.ops.shapes import shape_of
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, ints, known
from tengen.tensor import Tensor


def joined(t: Tensor) -> Tensor:
    """(..., 2) -> complex numbers (...), and (..., 1) -> real ones."""
    return t[..., 0] if t.shape[-1] == 1 else F.complex(t[..., 0], t[..., 1])


def parts(t: Tensor) -> Tensor:
    """Complex numbers (...) -> (..., 2)."""
    return F.stack([F.real(t), F.imag(t)], -1)


@op("DFT")
def dft(n: NodeOf, x: Value, length: Value = None, axis: Value = None) -> Value:
    """Of real or complex numbers, whose parts are the last axis; `onesided` gives half of it, and takes it for a real inverse."""
    t = as_tensor(x)
    along = n.get("axis", 1) if n.since < 20 else (ints(axis)[0] if axis is not None else -2)
    along %= len(t.shape)
    count = ints(length)[0] if length is not None else None
    inverse, half = bool(n["inverse"]), bool(n["onesided"])
    if inverse and half:
        return F.expand_dims(fft.irfft(joined(t), count, axis=along), -1)
    if inverse:
        return parts(fft.ifft(joined(t), count, axis=along))
    if half and t.shape[-1] == 1:
        return parts(fft.rfft(t[..., 0], count, axis=along))
    found = parts(fft.fft(joined(t), count, axis=along))
    return found[(slice(None),) * along + (slice(0, found.shape[along] // 2 + 1),)] if half else found


@op("STFT")
def stft(n: NodeOf, x: Value, step: Value, window: Value = None, length: Value = None) -> Value:
    """Transforms of windows: (batch, samples) or (batch, samples, 1 or 2) -> (batch, windows, frequencies, 2)."""
    t, by = as_tensor(x), ints(step)[0]
    size = ints(length)[0] if length is not None else int(t.shape[1] if window is None else as_tensor(window).shape[0])
    t, w = joined(t) if len(t.shape) == 3 else t, None if window is None else as_tensor(window)
    half, real = bool(n["onesided"]), not t.dtype.is_complex
    made = parts(F.swapaxes(fft.stft(t, size, by, window=w, center=False, onesided=half and real), 1, 2))
    return made[:, :, : size // 2 + 1] if half and not real else made


@op("MelWeightMatrix")
def mel_weights(n: NodeOf, bins: Value, size: Value, rate: Value, low: Value, high: Value) -> Value:
    """Triangles of equal width on the mel scale: (size // 2 + 1, bins)."""
    import onnx

    count, length, sampling = ints(bins)[0], ints(size)[0], ints(rate)[0]
    bottom, top = (float(known(v).reshape(-1)[0]) for v in (low, high))
    modest((length // 2 + 1) * max(count, 1))
    mel = lambda hz: 2595 * np.log10(1 + hz / 700)
    lines = mel(bottom) + np.arange(count + 2) * ((mel(top) - mel(bottom)) / (count + 2))
    edges = ((length + 1) * (700 * (10 ** (lines / 2595) - 1)) // sampling).astype(np.int64)
    found = np.zeros((length // 2 + 1, count))
    for i in range(count):
        lo, mid, hi = edges[i : i + 3]
        if mid == lo:
            found[mid, i] = 1
        else:
            found[lo : mid + 1, i] = (np.arange(lo, mid + 1) - lo) / (mid - lo)
        if hi > mid:
            found[mid:hi, i] = (hi - np.arange(mid, hi)) / (hi - mid)
    return as_tensor(found.astype(onnx.helper.tensor_dtype_to_np_dtype(n["output_datatype"])))


def window_of(n: NodeOf, size: Value, terms: tuple[float, ...]) -> Value:
    """A sum of cosines."""
    import onnx

    modest(count := ints(size)[0])
    over = count if n["periodic"] else count - 1
    at = np.arange(count) / max(over, 1)
    found = sum(c * np.cos(2 * np.pi * i * at) for i, c in enumerate(terms))
    return as_tensor(np.asarray(found).astype(onnx.helper.tensor_dtype_to_np_dtype(n["output_datatype"])))


op("HannWindow")(lambda n, size: window_of(n, size, (0.5, -0.5)))
op("HammingWindow")(lambda n, size: window_of(n, size, (25 / 46, -21 / 46)))
op("BlackmanWindow")(lambda n, size: window_of(n, size, (0.42, -0.5, 0.08)))


# -- random numbers: Tengen's generator, so a `seed` of another's means nothing here ---------------------------------------------
def dtype_of(n: NodeOf, x: Value = None):
    """The dtype that a node asks for, else its input's."""
    import onnx

    warn_of_seed(n)
    code = n.get("dtype")
    if code:
        return onnx.helper.tensor_dtype_to_np_dtype(code)
    return np.float32 if x is None else as_tensor(x).dtype.numpy


op("RandomUniform")(lambda n: random.uniform(n["low"], n["high"], size=tuple(n["shape"])).astype(dtype_of(n)))
op("RandomUniformLike")(lambda n, x: random.uniform(n["low"], n["high"], size=shape_of(x)).astype(dtype_of(n, x)))
op("RandomNormal")(lambda n: random.normal(n["mean"], n["scale"], size=tuple(n["shape"])).astype(dtype_of(n)))
op("RandomNormalLike")(lambda n, x: random.normal(n["mean"], n["scale"], size=shape_of(x)).astype(dtype_of(n, x)))


@op("Bernoulli")
def bernoulli(n: NodeOf, x: Value) -> Value:
    """One with the probability that is given."""
    t = as_tensor(x)
    return F.less(random.uniform(0, 1, size=t.shape), t.astype("float32")).astype(dtype_of(n, x))


@op("Multinomial")
def multinomial(n: NodeOf, x: Value) -> Value:
    """Draws of classes from logarithms of weights: (batch, classes) -> (batch, sample_size)."""
    import onnx

    warn_of_seed(n)
    t = as_tensor(x).astype("float32")
    noise = random.uniform(1e-20, 1, size=(t.shape[0], n["sample_size"], t.shape[1]))
    drawn = F.argmax(F.expand_dims(t, 1) - F.log(-F.log(noise)), 2)
    return drawn.astype(onnx.helper.tensor_dtype_to_np_dtype(n["dtype"]))
