"""A camera's pictures: colours, sizes and warps beside OpenCV and PyTorch, and whole chains from a frame to what a network takes.

Frames have 1280 x 720 pixels, three bytes each as OpenCV has them (H, W, 3), or NV12. Tengen's calls are traced. PyTorch stands for
torchvision too, whose `resize` of tensors is PyTorch's `interpolate(antialias=True)`, and whose `normalize` is its subtraction and division.
Results agree within 1 of 255 where pixels are bytes: OpenCV rounds weights, and PyTorch rounds between the passes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import compare
import numpy as np
from compare import Case, Cell, Goal

import tengen
from tengen import Tensor
from tengen.functional import vision

cv2, torch = compare.peer("cv2"), compare.peer("torch")
HEIGHT, WIDTH, SIDE = 720, 1280, 224
HALF, SMALL, LARGE = (360, 640), (SIDE, SIDE), (1080, 1920)
MEAN, STD = (np.array(a, "f4") for a in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
MY_MEAN, MY_STD = Tensor(MEAN), Tensor(STD)
SCALE, SHIFT = 1 / (255.0 * STD.astype("f8")), -MEAN / STD.astype("f8")  # the same as a product and a sum
TURN = np.array([[0.98, -0.17, 120.0], [0.17, 0.98, -60.0]], "f4")  # result to source, as WARP_INVERSE_MAP takes it
TILT = np.array([[0.98, -0.17, 120.0], [0.17, 0.98, -60.0], [1e-4, 5e-5, 1.0]], "f4")
if cv2:
    cv2.setNumThreads(compare.THREADS)


def smooth(height: int, width: int) -> np.ndarray:
    """A picture (height, width, 3) of bytes, smooth as photographs are, with some noise."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (30 + 10 * c) + c) + np.cos(y / (40 - 7 * c)) for c in range(3)]
    noise = np.random.default_rng(0).normal(0, 6, (height, width, 3))
    return np.clip(128 + 50 * np.stack(waves, -1) + noise, 0, 255).astype("u1")


def pixels(result) -> np.ndarray:
    """A result as (H, W, C)."""
    a = result.numpy() if hasattr(result, "numpy") else np.asarray(result)
    a = a[0] if a.ndim == 4 else a
    return a if a.ndim == 3 else a[..., None]


def case(name: str, x: np.ndarray, mine: Callable, peers: dict[str, Callable], apart: float = 1.0, share: float = 0.0) -> Case:
    """A call on one picture. Results differ by `apart` at most, but for `share` of the numbers."""
    run, image = tengen.trace(mine, capture_as_const=True), Tensor(x[None])
    peers = {who: call for who, call in peers.items() if (cv2 if who == "opencv" else torch)}

    def check() -> None:
        got = pixels(run(image)).astype("f8")
        assert run(image).numpy().tobytes() == mine(image).numpy().tobytes(), "the traced and the eager call differ"
        for who, call in peers.items():
            far = np.abs(got - pixels(call())) > apart
            assert far.mean() <= share, f"{far.mean():.4f} of the numbers differ from {who}'s by more than {apart}"

    goal = Goal(1.0, "fastest")
    return Case(name, {"tengen": lambda: run(image), **peers}, goal, check=check, torch_block=torch.inference_mode if torch else None)


def resized(kind: str, dtype: str, size: tuple[int, int]) -> Case:
    """kind: an interpolation, with "antialias " before it where the filter is as wide as a step."""
    wide, mode = kind.startswith("antialias"), kind.split()[-1]
    x = smooth(HEIGHT, WIDTH).astype(dtype)
    peers: dict[str, Callable] = {}
    if cv2 and not wide:
        code = getattr(cv2, f"INTER_{mode.upper()}")
        peers["opencv"] = lambda: cv2.resize(x, size[::-1], interpolation=code)
    if torch and mode in ("linear", "cubic"):
        t = torch.from_numpy(x[None]).permute(0, 3, 1, 2)
        call = partial(torch.nn.functional.interpolate, t, size, mode=f"bi{mode}", antialias=wide)
        peers["torch"] = lambda: call().permute(0, 2, 3, 1)
    mine = lambda image: vision.resize(image, size, "NHWC", mode, wide)
    share = 0.02 if mode == "cubic" else 0.001  # PyTorch clips between the passes, where a cubic overshoots
    return case(f"resize, {kind}, {dtype}, to {size[1]} x {size[0]}", x, mine, peers, 1.0 if dtype == "uint8" else 0.2, share)


def colours(mode: str) -> Case:
    planes = mode.endswith("NV12")
    x = np.random.default_rng(0).integers(16, 236, (HEIGHT * 3 // 2, WIDTH, 1), "u1") if planes else smooth(HEIGHT, WIDTH)
    code = getattr(cv2, f"COLOR_{mode}") if cv2 else 0
    mine = lambda image: vision.cvt_color(image, f"BT601_{mode}" if planes else mode)
    return case(f"cvt_color, {mode}", x, mine, {"opencv": lambda: cv2.cvtColor(x, code)})


def warped(kind: str, dtype: str = "uint8") -> Case:
    x, size = smooth(HEIGHT, WIDTH).astype(dtype), (HEIGHT, WIDTH)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP if cv2 else 0
    border = {"borderMode": cv2.BORDER_REPLICATE} if cv2 else {}
    turn = Tensor((TURN if kind == "warp_affine" else TILT)[None])
    if kind == "warp_affine":
        mine = lambda image: vision.warp_affine(image, turn, size, "replicate", format="NHWC")
        theirs = lambda: cv2.warpAffine(x, TURN, (WIDTH, HEIGHT), flags=flags, **border)
    elif kind == "warp_perspective":
        mine = lambda image: vision.warp_perspective(image, turn, size, border_mode="replicate", format="NHWC")
        theirs = lambda: cv2.warpPerspective(x, TILT, (WIDTH, HEIGHT), flags=flags, **border)
    else:
        y0, x0 = np.mgrid[:HEIGHT, :WIDTH].astype("f4")
        places = np.stack([x0 + 5 * np.sin(y0 / 20), y0 + 5 * np.cos(x0 / 30)], -1)
        at = Tensor(places[None])
        mine = lambda image: vision.remap(image.transpose(0, 3, 1, 2), at).transpose(0, 2, 3, 1)
        theirs = lambda: cv2.remap(x, places, None, cv2.INTER_LINEAR, **border)
    # OpenCV rounds places to 1/32 of a pixel
    return case(f"{kind}, linear, {dtype}", x, mine, {"opencv": theirs}, 3.0, 0.001)


def scaled(picture: np.ndarray) -> np.ndarray:
    """OpenCV's way from bytes (H, W, 3) to normalised floats (3, H, W)."""
    return np.stack(cv2.split(cv2.add(cv2.multiply(picture, (*SCALE, 0.0), dtype=cv2.CV_32F), (*SHIFT, 0.0))))


def normalised(crop: bool) -> Case:
    """Bytes (H, W, 3) to floats (3, H, W), the middle of the picture or all."""
    x = smooth(HEIGHT, WIDTH)
    y0, x0 = ((HEIGHT - SIDE) // 2, (WIDTH - SIDE) // 2) if crop else (0, 0)
    y1, x1 = (y0 + SIDE, x0 + SIDE) if crop else (HEIGHT, WIDTH)
    mine = lambda image: ((image[:, y0:y1, x0:x1].astype("float32") / 255.0 - MY_MEAN) / MY_STD).transpose(0, 3, 1, 2)
    peers: dict[str, Callable] = {}
    if cv2:
        peers["opencv"] = lambda: scaled(x[y0:y1, x0:x1])
    if torch:
        t, mean, std = torch.from_numpy(x), torch.from_numpy(MEAN)[:, None, None], torch.from_numpy(STD)[:, None, None]
        peers["torch"] = lambda: ((t[y0:y1, x0:x1].permute(2, 0, 1).contiguous().float() / 255.0 - mean) / std)
    return case(f"normalise {'a crop' if crop else 'a frame'}, to float32 (C, H, W)", x, mine, peers, 1e-4)


def turned(kind: str) -> Case:
    x = smooth(HEIGHT, WIDTH)
    if kind == "flip":
        return case("flip, left to right", x, lambda i: vision.flip(i, False, True), {"opencv": lambda: cv2.flip(x, 1)}, 0)
    return case("rot90", x, vision.rot90, {"opencv": lambda: cv2.rotate(x, cv2.ROTATE_90_CLOCKWISE)}, 0)


def chain(wide: bool) -> Case:
    """An NV12 frame to what a network takes: float32 (1, 3, 224, 224)."""
    x = np.concatenate([smooth(HEIGHT, WIDTH)[..., :1].clip(16, 235), smooth(HEIGHT // 2, WIDTH)[..., 1:2].clip(16, 240)])

    def mine(frame):
        picture = vision.cvt_color(frame, "BT601_YUV2RGB_NV12")
        small = vision.resize(picture, SMALL, "NHWC", "area" if wide else "linear")
        return ((small.astype("float32") / 255.0 - MY_MEAN) / MY_STD).transpose(0, 3, 1, 2)

    def theirs():
        picture = cv2.cvtColor(x, cv2.COLOR_YUV2RGB_NV12)
        small = cv2.resize(picture, SMALL, interpolation=cv2.INTER_AREA if wide else cv2.INTER_LINEAR)
        return scaled(small)

    name = f"NV12 to RGB, resize ({'area' if wide else 'linear'}), normalise, to float32 (3, {SIDE}, {SIDE})"
    return case(name, x, mine, {"opencv": theirs}, 0.04)


RESIZES = [
    ("linear", "uint8", HALF), ("linear", "uint8", SMALL), ("linear", "uint8", LARGE), ("linear", "float32", HALF), ("nearest", "uint8", HALF),
    ("cubic", "uint8", HALF), ("area", "uint8", SMALL), ("area", "uint8", HALF), ("antialias linear", "uint8", SMALL),
    ("antialias linear", "float32", SMALL), ("antialias cubic", "uint8", SMALL),
]  # fmt: skip
WARPS = ("warp_affine", "warp_perspective", "remap")
COLOURS = ("RGB2GRAY", "RGB2BGR", "YUV2RGB_NV12")

if __name__ == "__main__":
    cells = [Cell(f"resize {kind} {dtype} {size}", partial(resized, kind, dtype, size)) for kind, dtype, size in RESIZES]
    cells += [Cell(f"colours {mode}", partial(colours, mode), quick=mode == "RGB2GRAY") for mode in COLOURS]
    cells += [Cell(f"{kind} {d}", partial(warped, kind, d)) for kind in WARPS for d in ("uint8", "float32")]
    cells += [Cell(f"normalise {crop}", partial(normalised, crop)) for crop in (False, True)]
    cells += [Cell(kind, partial(turned, kind)) for kind in ("flip", "rot90")]
    cells += [Cell(f"chain {wide}", partial(chain, wide)) for wide in (False, True)]
    compare.main("camera", "A camera's pictures", cells)
