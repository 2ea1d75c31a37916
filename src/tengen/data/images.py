"""Images from files, and the base of datasets of images: readers of local copies in the layouts in which they are published.

In: folders and files. Out: arrays of height x width x channels, uint8, channels blue, green and red as OpenCV (and MegEngine) hold them.
Reading needs Pillow, which is loaded with the first image.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tengen.base.config import cache_home
from tengen.base.errors import FileFormatError
from tengen.data.dataset import Dataset

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def _opened(path: str | os.PathLike) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("images are read by Pillow, which is not installed; help: pip install pillow") from None
    return Image.open(path)


def read_image(path: str | os.PathLike) -> np.ndarray:
    """The pixels of an image file: height x width x 3, blue, green and red, uint8. A grey one has three equal channels.

    Errors: FileNotFoundError; FileFormatError for a file that is no image, or is cut off; ImportError without Pillow.
    """
    return np.ascontiguousarray(_pixels(path, "RGB")[..., ::-1])


def read_indices(path: str | os.PathLike) -> np.ndarray:
    """The values of a grey or palette image as they are stored, height x width: classes of pixels. Errors as `read_image`."""
    return _pixels(path, None)


def _pixels(path: str | os.PathLike, mode: str | None) -> np.ndarray:
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no image {os.fspath(path)}")
    try:
        with _opened(path) as image:
            if mode is None and image.mode not in ("P", "L", "1"):
                raise FileFormatError(f"{os.fspath(path)}: a mask is a grey or palette image, this one is {image.mode}")
            return np.array(image if mode is None else image.convert(mode), np.uint8)
    except FileFormatError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError) as e:  # what Pillow raises for damaged files
        raise FileFormatError(f"{os.fspath(path)} cannot be read as an image: {e}") from e


def folder_of(name: str, root: Any) -> Path:
    """The folder of a dataset: `root`, or for None one of its name among the user's caches."""
    if root is not None:
        return Path(root).expanduser()
    home = cache_home()
    if home is None:
        raise ValueError(f"{name}: this user has no home; help: root='folder'")
    return Path(home) / "tengen" / "datasets" / name


class VisionDataset(Dataset):
    """The base of datasets of images: `order` says which items a sample has.

    Args:
        root: the folder of the local copy. order: names of items, of those in `supported_order`; default: ("image",).

    Errors: ValueError for another name.
    """

    supported_order: tuple[str, ...] = (
        "image", "image_category", "mask", "boxes", "boxes_category", "keypoints", "polygons", "info",
    )  # fmt: skip

    def __init__(self, root: Any, *, order: Sequence[str] | None = None, supported_order: Sequence[str] | None = None):
        self.root = None if root is None else os.fspath(root)
        known = self.supported_order if supported_order is None else tuple(supported_order)
        wanted = ("image",) if order is None else order
        if isinstance(wanted, str) or not all(isinstance(k, str) for k in wanted):
            raise ValueError(f"{type(self).__name__}: order must be a sequence of names, got {order!r}")
        self.order = tuple(wanted)
        for kind in self.order:
            if kind not in known:
                raise ValueError(f"{type(self).__name__} has no {kind!r} among {', '.join(known)}")

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(getattr(self, f"_{kind}")(range(len(self))[index]) for kind in self.order)


def needed(path: Path, owner: str, what: str) -> Path:
    """The path, where it exists. Errors: FileNotFoundError that says what stands there in a local copy."""
    if not path.exists():
        raise FileNotFoundError(f"{owner}: there is no {path}, {what}; help: root is the folder of a local copy")
    return path
