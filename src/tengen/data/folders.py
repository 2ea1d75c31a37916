"""Images in folders named by their classes: `ImageFolder`, and ImageNet in that layout."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tengen.base.files import read_regular
from tengen.data.images import SUFFIXES, VisionDataset, folder_of, needed, read_image


def _is_image(path: str) -> bool:
    return path.lower().endswith(SUFFIXES)


class ImageFolder(VisionDataset):
    """(image, class) of the images in ``root/CLASS/.../NAME.jpg``; classes are numbered in the order of their names.

    Args:
        root: the folder. check_valid_func: which paths are images; default: those with a usual suffix. class_name: the class's name in
            place of its number.
    Attributes: samples: pairs (path, class). class_dict: numbers of classes by name.
    Errors: FileNotFoundError where there is no folder, or no class in it. Of reading an image: see `tengen.data.images.read_image`.
    """

    supported_order = ("image", "image_category")

    def __init__(self, root: Any, check_valid_func: Callable[[str], bool] | None = None, class_name: bool = False):
        super().__init__(root, order=("image", "image_category"))
        folder = needed(Path(root).expanduser(), type(self).__name__, "the folder of classes")
        self.check_valid, self.class_name = check_valid_func or _is_image, class_name
        names = sorted(d.name for d in folder.iterdir() if d.is_dir())
        if not names:
            raise FileNotFoundError(f"{type(self).__name__}: {folder} has no folders, which are named by classes")
        self.class_dict = {name: np.int32(i) for i, name in enumerate(names)}
        self.samples = list(self._found(folder))

    def _found(self, folder: Path):
        for name, number in self.class_dict.items():
            for here, inner, files in os.walk(folder / name, followlinks=True):
                inner.sort()
                for file in sorted(files):
                    path = os.path.join(here, file)
                    if self.check_valid(path):
                        yield path, name if self.class_name else number

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        path, label = self.samples[index]
        return read_image(path), label

    def __len__(self) -> int:
        return len(self.samples)


class ImageNet(ImageFolder):
    """ImageNet's (ILSVRC2012) images: ``root/train/WNID/NAME.JPEG`` and ``root/val/WNID/NAME.JPEG``, a folder for each of the classes, as
    most programs keep it. See `ImageFolder`.

    Args: root: default: one of the name ImageNet among the user's caches. train: the images to train with, or those to validate.
    Errors: FileNotFoundError, with what to do, where the images are packed still, or lie in one folder.
    """

    def __init__(self, root: Any = None, train: bool = True, **kwargs: Any):
        top = folder_of("ImageNet", root)
        which = "train" if train else "val"
        folder = top / which
        if not folder.is_dir():
            packed = top / f"ILSVRC2012_img_{which}.tar"
            what = f"and {packed} is packed" if packed.exists() else "the folder of classes"
            raise FileNotFoundError(f"ImageNet: there is no {folder}, {what}; help: unpack it, a folder for each class: {which}/n01440764/...")
        if not any(d.is_dir() for d in list(folder.iterdir())):
            raise FileNotFoundError(f"ImageNet: {folder} has no folders of classes; help: move each image to its class's, n01440764/...")
        super().__init__(folder, **kwargs)
        self.train, self._top = train, top

    @property
    def valid_ground_truth(self) -> list[int]:
        """The classes (1 to 1000, in the order of the development kit) of the images to validate, in the order of their names."""
        path = self._top / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt"
        return [int(line) for line in read_regular(needed(path, "ImageNet", "of the development kit")).split()]
