"""Scenes with their objects: COCO and Objects365 (JSON), Pascal VOC (XML, palette images) and Cityscapes (PNG)."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tengen.base.errors import FileFormatError
from tengen.base.files import read_regular
from tengen.data.images import VisionDataset, needed, read_image, read_indices


class COCO(VisionDataset):
    """Images with boxes and key points, described by a JSON file in COCO's format.

    Args:
        root: the folder of the images. ann_file: the JSON file. remove_images_without_annotations: leave out images without boxes of
            more than one pixel's width and height (of objects that are no crowds), and with "keypoints" in `order` those with fewer than 10
            visible key points. order: of "image", "boxes" (N x 4, corners x0 y0 x1 y1, float32), "boxes_category" (N, int32: classes from
            1 in the order of their ids), "keypoints" (N x K x 3), "polygons" (for each object a list of P x 2 arrays), "info" ([height,
            width, file name]).

    Attributes: ids: of the images, ascending. class_names. json_category_id_to_contiguous_id and back.
    Errors: FileFormatError for a file in another format.
    Source: https://cocodataset.org/#format-data
    Errors: ValueError for annotations of what is not there, FileFormatError for a file of another kind
    """

    supported_order: tuple[str, ...] = ("image", "boxes", "boxes_category", "keypoints", "polygons", "info")
    keypoint_names: tuple[str, ...] = (
        "nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder", "right_shoulder", "left_elbow", "right_elbow",
        "left_wrist", "right_wrist", "left_hip", "right_hip", "left_knee", "right_knee", "left_ankle", "right_ankle",
    )  # fmt: skip
    LEAST_VISIBLE = 10

    def __init__(self, root: Any, ann_file: Any, remove_images_without_annotations: bool = False, *, order: Sequence[str] | None = None):
        super().__init__(root, order=order)
        try:
            found = json.loads(read_regular(ann_file))
            self.imgs = {i["id"]: {"height": i["height"], "width": i["width"], "file_name": i["file_name"], **i} for i in found["images"]}
            self.cats = {c["id"]: c for c in sorted(found["categories"], key=lambda c: c["id"])}
            self.img_to_anns: dict[Any, list[dict]] = defaultdict(list)
            for a in found["annotations"]:
                if a["category_id"] not in self.cats or a["image_id"] not in self.imgs:
                    raise ValueError(f"annotation {a.get('id')} names a category or an image that is not there")
                if len(a["bbox"]) != 4:
                    raise ValueError(f"annotation {a.get('id')} has a box of {len(a['bbox'])} numbers")
                self.img_to_anns[a["image_id"]].append(a)
            self.class_names = tuple(c["name"] for c in self.cats.values())
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise FileFormatError(f"{os.fspath(ann_file)}: it is not in COCO's format ({type(e).__name__}: {e})") from e
        self.json_category_id_to_contiguous_id = {c: i for i, c in enumerate(self.cats, 1)}
        self.contiguous_category_id_to_json_id = {i: c for c, i in self.json_category_id_to_contiguous_id.items()}
        self.ids = sorted(self.imgs)
        if remove_images_without_annotations:
            for i in self.ids:
                self.img_to_anns[i] = [
                    a for a in self.img_to_anns[i] if not a.get("iscrowd") and a["bbox"][2] > 0 and a["bbox"][3] > 0
                ]
            self.ids = [i for i in self.ids if self._worth_it(self.img_to_anns[i])]

    def _worth_it(self, objects: list[dict]) -> bool:
        if not any(a["bbox"][2] > 1 and a["bbox"][3] > 1 for a in objects):
            return False
        visible = sum(v > 0 for a in objects for v in a.get("keypoints", ())[2::3])
        return "keypoints" not in self.order or visible >= self.LEAST_VISIBLE

    def __len__(self) -> int:
        return len(self.ids)

    def get_img_info(self, index: int) -> dict[str, Any]:
        """What the file says of an image."""
        return self.imgs[self.ids[index]]

    def _objects(self, index: int) -> list[dict]:
        return self.img_to_anns.get(self.ids[index], [])

    def _image(self, index: int) -> np.ndarray:
        return read_image(Path(str(self.root)) / self.get_img_info(index)["file_name"])

    def _boxes(self, index: int) -> np.ndarray:
        boxes = np.array([a["bbox"] for a in self._objects(index)], np.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        return boxes

    def _boxes_category(self, index: int) -> np.ndarray:
        return np.array([self.json_category_id_to_contiguous_id[a["category_id"]] for a in self._objects(index)], np.int32)

    def _keypoints(self, index: int) -> np.ndarray:
        try:
            return np.array([a["keypoints"] for a in self._objects(index)], np.float32).reshape(-1, len(self.keypoint_names), 3)
        except (KeyError, ValueError) as e:
            raise FileFormatError(f"image {self.ids[index]}: an object has no {len(self.keypoint_names)} key points ({e})") from e

    def _polygons(self, index: int) -> list[list[np.ndarray]]:
        parts = (a.get("segmentation") or [] for a in self._objects(index))
        return [[np.array(p, np.float32).reshape(-1, 2) for p in part] if isinstance(part, list) else [] for part in parts]

    def _info(self, index: int) -> list[Any]:
        about = self.get_img_info(index)
        return [about["height"], about["width"], about["file_name"]]


class Objects365(COCO):
    """Objects365's images, whose JSON files are in COCO's format; without key points. See `COCO`.

    Source: https://www.objects365.org
    """

    supported_order = ("image", "boxes", "boxes_category", "info")


class PascalVOC(VisionDataset):
    """Pascal VOC: images with boxes, or with a class for each pixel.

    Args:
        root: the folder with JPEGImages, Annotations, ImageSets and SegmentationClass, as VOCdevkit/VOC2012. image_set: the name of a list
            in ImageSets/Main (with boxes) or ImageSets/Segmentation (with a mask), as "trainval"; one with "aug" in its name reads masks of
            SegmentationClass_aug. order: of "image", "boxes" (N x 4, corners as the file has them, float32), "boxes_category" (N, int32:
            classes from 1), "mask" (height x width x 1, uint8: 0 background, 255 border), "info" ([height, width, name]); boxes and mask
            exclude each other.

    Errors: FileNotFoundError for what is not in the local copy; FileFormatError for damaged files.
    Source: http://host.robots.ox.ac.uk/pascal/VOC
    Errors: ValueError for an `order` with both boxes and a mask, whose lists of images differ
    """

    supported_order = ("image", "boxes", "boxes_category", "mask", "info")
    class_names = (
        "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog", "horse", "motorbike",
        "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
    )  # fmt: skip

    def __init__(self, root: Any, image_set: str, *, order: Sequence[str] | None = None):
        super().__init__(root, order=order)
        boxes = any(k.startswith("boxes") for k in self.order)
        if boxes and "mask" in self.order:
            raise ValueError("PascalVOC: order has boxes and a mask, whose lists of images differ; help: one of them")
        folder = needed(Path(root).expanduser(), "PascalVOC", "the folder with JPEGImages")
        kind = "Segmentation" if "mask" in self.order else "Main"
        listed = needed(folder / "ImageSets" / kind / f"{image_set}.txt", "PascalVOC", "the list of images")
        self.image_set, self._top = image_set, folder
        self.file_names = [line.split()[0] for line in read_regular(listed).decode().splitlines() if line.strip()]

    def __len__(self) -> int:
        return len(self.file_names)

    def _image(self, index: int) -> np.ndarray:
        return read_image(self._top / "JPEGImages" / f"{self.file_names[index]}.jpg")

    def _objects(self, index: int) -> list[tuple[str, list[float]]]:
        path = needed(self._top / "Annotations" / f"{self.file_names[index]}.xml", "PascalVOC", "what is in an image")
        try:
            found = []
            for node in ElementTree.fromstring(read_regular(path)).iter("object"):
                box = node.find("bndbox")
                sides = [float(box.findtext(k)) for k in ("xmin", "ymin", "xmax", "ymax")]  # type: ignore[union-attr, arg-type]  # caught
                found.append((str(node.findtext("name")), sides))
                if found[-1][0] not in self.class_names:
                    raise ValueError(f"{found[-1][0]!r} is no class of Pascal VOC")
            return found
        except (ElementTree.ParseError, TypeError, ValueError, AttributeError) as e:
            raise FileFormatError(f"{path}: it does not describe an image's objects ({type(e).__name__}: {e})") from e

    def _boxes(self, index: int) -> np.ndarray:
        return np.array([box for _, box in self._objects(index)], np.float32).reshape(-1, 4)

    def _boxes_category(self, index: int) -> np.ndarray:
        return np.array([self.class_names.index(name) + 1 for name, _ in self._objects(index)], np.int32)

    def _mask(self, index: int) -> np.ndarray:
        folder = "SegmentationClass_aug" if "aug" in self.image_set else "SegmentationClass"
        return read_indices(self._top / folder / f"{self.file_names[index]}.png")[..., None]

    def _info(self, index: int) -> list[Any]:
        return [*self._image(index).shape[:2], self.file_names[index]]


class Cityscapes(VisionDataset):
    """Cityscapes: streets with a class for each pixel.

    Args:
        root: the folder with leftImg8bit and gtFine or gtCoarse. image_set: "train", "val", "test" or "train_extra". mode: "gtFine" or
            "gtCoarse". order: of "image", "mask" (height x width x 1, uint8: the nineteen classes of the benchmark, 255 for all others),
            "info" ([height, width, path]). Images are in the order of cities and names.

    Errors: FileNotFoundError for what is not in the local copy; ValueError for a mode or a set that does not exist.
    Source: https://www.cityscapes-dataset.com
    """

    supported_order = ("image", "mask", "info")
    SETS = {"gtFine": ("train", "test", "val"), "gtCoarse": ("train", "train_extra", "val")}
    LABELS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)  # ids of the classes that are counted
    class_names = (
        "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation", "terrain", "sky", "person",
        "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
    )  # fmt: skip

    def __init__(self, root: Any, image_set: str, mode: str, *, order: Sequence[str] | None = None):
        super().__init__(root, order=order)
        if image_set not in self.SETS.get(mode, ()):
            raise ValueError(f"Cityscapes: mode={mode!r} and image_set={image_set!r}; help: one of {self.SETS}")
        top = needed(Path(root).expanduser(), "Cityscapes", "the folder with leftImg8bit")
        images = needed(top / "leftImg8bit" / image_set, "Cityscapes", "the folder of cities")
        self.mode, self.images, self.masks = mode, [], []
        for city in sorted(d.name for d in images.iterdir() if d.is_dir()):
            for path in sorted((images / city).glob("*_leftImg8bit.png")):
                self.images.append(str(path))
                name = path.name.removesuffix("_leftImg8bit.png")
                self.masks.append(str(top / mode / image_set / city / f"{name}_{mode}_labelIds.png"))
        self._ids = np.full(256, 255, np.uint8)
        self._ids[list(self.LABELS)] = np.arange(len(self.LABELS))

    def __len__(self) -> int:
        return len(self.images)

    def _image(self, index: int) -> np.ndarray:
        return read_image(self.images[index])

    def _mask(self, index: int) -> np.ndarray:
        return self._ids[read_indices(self.masks[index])][..., None]

    def _info(self, index: int) -> list[Any]:
        return [*self._image(index).shape[:2], self.images[index]]
