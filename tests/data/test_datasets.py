"""Readers of published datasets, on tiny files in their formats that the tests write."""

import gzip
import io
import json
import pickle
import struct
import tarfile

import numpy as np
import pytest

from tengen.base.download import digest_of
from tengen.base.errors import DownloadError, FileFormatError
from tengen.data import ArrayDataset, DataLoader, dataset
from tengen.data.dataset import (
    CIFAR10,
    CIFAR100,
    COCO,
    MNIST,
    Cityscapes,
    ImageFolder,
    ImageNet,
    Objects365,
    PascalVOC,
    VisionDataset,
)

RNG = np.random.default_rng(0)
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: images are not read")


def picture(path, height=5, width=7):
    """Writes an image of random pixels without loss; gives them as blue, green, red."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rgb = RNG.integers(0, 256, (height, width, 3), np.uint8)
    with open(path, "wb") as f:
        Image.fromarray(rgb).save(f, "PNG")  # whatever the suffix says
    return rgb[..., ::-1]


def idx(array):
    code = {"uint8": 8, ">i4": 12, "int32": 12}[array.dtype.name]
    return struct.pack(">BBBB", 0, 0, code, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


# ---- MNIST ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def digits(tmp_path):
    images, labels = RNG.integers(0, 256, (6, 28, 28), np.uint8), np.arange(6, dtype=np.uint8)
    for which, n in (("train", 6), ("t10k", 2)):
        (tmp_path / f"{which}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images[:n])))
        (tmp_path / f"{which}-labels-idx1-ubyte").write_bytes(idx(labels[:n]))  # not packed
    return tmp_path, images, labels


def test_mnist(digits):
    folder, images, labels = digits
    train, test = MNIST(folder), MNIST(str(folder), train=False, download=False)
    assert len(train) == 6 and len(test) == 2 and train.meta == {"count": 6, "rows": 28, "columns": 28}
    image, label = train[3]
    assert image.shape == (28, 28, 1) and image.dtype == np.uint8 and (image[..., 0] == images[3]).all()
    assert label == 3 and label.dtype == np.int32 and (test[1][0][..., 0] == images[1]).all()
    batch = next(iter(DataLoader(train, batch_size=4)))
    assert batch[0].shape == (4, 28, 28, 1) and batch[1].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("damage, words", [
    (lambda b: b[:-1], "bytes of data"), (lambda b: b + b"x", "more bytes of data"), (lambda b: b[:10], "shape"),
    (lambda b: b"", "no file of the format"),
    (lambda b: b"\x01" + b[1:], "no file of the format"), (lambda b: b[:4] + b"\xff" * 12 + b[16:], "its header says"),
    (lambda b: b[:3] + b"\x00" + b[4:], "no file of the format"),
])  # fmt: skip
def test_damaged_digits(digits, damage, words):
    folder, images, _ = digits
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(damage(idx(images))))
    with pytest.raises(FileFormatError, match=words):
        MNIST(folder)
    path.write_bytes(gzip.compress(idx(images))[:-20])
    with pytest.raises(FileFormatError, match="cannot be unpacked|bytes of data"):
        MNIST(folder)
    path.write_bytes(b"not packed")
    with pytest.raises(FileFormatError, match="cannot be unpacked"):
        MNIST(folder)


def test_digits_that_do_not_belong_together_and_missing_ones(digits, tmp_path_factory):
    folder, _, labels = digits
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(labels[:3]))
    with pytest.raises(FileFormatError, match=r"\(6, 28, 28\) and labels of shape \(3,\)"):
        MNIST(folder)
    with pytest.raises(FileNotFoundError, match="train-images.*help: download=True"):
        MNIST(tmp_path_factory.mktemp("none"), download=False)


def test_a_download_is_checked(digits, tmp_path_factory, monkeypatch):
    folder, images, _ = digits
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress((folder / "train-labels-idx1-ubyte").read_bytes()))
    monkeypatch.setattr(MNIST, "URL", folder.as_uri() + "/")
    here = tmp_path_factory.mktemp("here")
    with pytest.raises(DownloadError, match="was expected; it was not kept"):
        MNIST(here)
    assert not list(here.iterdir())
    monkeypatch.setattr(MNIST, "FILES", {n: digest_of(folder / f"{n}.gz") for n in MNIST.FILES if n.startswith("train")})
    assert (MNIST(here)[5][0][..., 0] == images[5]).all()
    assert sorted(p.name for p in here.iterdir()) == ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]


# ---- CIFAR -----------------------------------------------------------------------------------------------------------------

PIXELS = RNG.integers(0, 256, (5, 4, 3072), np.uint8)  # batch, image, then red, green, blue rows


def bgr(row):
    return row.reshape(3, 32, 32)[::-1].transpose(1, 2, 0)


def test_cifar10_in_both_forms(tmp_path):
    python, binary = tmp_path / "a" / "cifar-10-batches-py", tmp_path / "b" / "cifar-10-batches-bin"
    python.mkdir(parents=True), binary.mkdir(parents=True)
    labels = RNG.integers(0, 10, (5, 4))
    for i in range(5):
        made = {b"data": PIXELS[i], b"labels": labels[i].tolist(), b"batch_label": b"training", b"filenames": [b"x"] * 4}
        (python / f"data_batch_{i + 1}").write_bytes(pickle.dumps(made, protocol=2))
        (binary / f"data_batch_{i + 1}.bin").write_bytes(np.concatenate([labels[i][:, None].astype(np.uint8), PIXELS[i]], 1).tobytes())
    (python / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"plane", b"car"]}))
    (binary / "batches.meta.txt").write_text("plane\ncar\n\n")
    for data in (CIFAR10(tmp_path / "a", download=False), CIFAR10(tmp_path / "b", download=False)):
        assert len(data) == 20 and data.meta == {"label_names": ["plane", "car"]}
        image, label = data[6]
        assert image.shape == (32, 32, 3) and (image == bgr(PIXELS[1, 2])).all() and label == labels[1, 2] and label.dtype == np.int32
    (binary / "data_batch_2.bin").write_bytes(b"x" * 3072)
    with pytest.raises(FileFormatError, match="3072 bytes are no whole number of images of 3073"):
        CIFAR10(tmp_path / "b")
    with pytest.raises(FileNotFoundError, match="cifar-10-batches-py or .*help: download=True"):
        CIFAR10(tmp_path, download=False)


class Evil:
    def __reduce__(self):
        return print, ("run!",)


@pytest.mark.parametrize("made, words", [
    ({b"data": Evil()}, "builtins.print"), ({b"data": np.zeros((4, 3), np.uint8), b"labels": [0] * 4}, r"pixels of shape \(4, 3\)"),
    ({b"data": np.zeros((4, 3072)), b"labels": [0] * 4}, "float64"), ([1], "a list"), ({b"labels": [1]}, "KeyError"),
])  # fmt: skip
def test_pickles_are_data(tmp_path, capsys, made, words):
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(made))
    with pytest.raises(FileFormatError, match=words):
        CIFAR10(tmp_path, train=False)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(made)[:-9])
    with pytest.raises(FileFormatError):
        CIFAR10(tmp_path, train=False)
    assert "run!" not in capsys.readouterr().out


def test_cifar100_and_its_download(tmp_path, monkeypatch):
    fine, coarse = RNG.integers(0, 100, 4).astype(np.uint8), RNG.integers(0, 20, 4).astype(np.uint8)
    raw = np.concatenate([coarse[:, None], fine[:, None], PIXELS[0]], 1).tobytes()
    with tarfile.open(tmp_path / "cifar-100-binary.tar.gz", "w:gz") as tar:
        names = ("fine_label_names.txt", b"apple\nbear\n"), ("coarse_label_names.txt", b"fruit\n")
        for name, data in (("train.bin", raw), ("../escaped.bin", b"x"), *names):
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    monkeypatch.setattr(CIFAR100, "URL", (tmp_path / "cifar-100-binary.tar.gz").as_uri())
    monkeypatch.setattr(CIFAR100, "SHA256", digest_of(tmp_path / "cifar-100-binary.tar.gz"))
    data = CIFAR100(tmp_path / "here")
    image, label, group = data[3]
    assert (image == bgr(PIXELS[0, 3])).all() and (label, group) == (fine[3], coarse[3])
    assert data.meta == {"fine_label_names": ["apple", "bear"], "coarse_label_names": ["fruit"]}
    assert sorted(p.name for p in (tmp_path / "here").iterdir()) == ["cifar-100-binary", "cifar-100-binary.tar.gz"]
    (tmp_path / "here" / "cifar-100-binary" / "train.bin").unlink()  # as where it was killed while it unpacked
    with pytest.raises(FileNotFoundError, match=r"cifar-100-python or .*train\.bin; help: download=True"):
        CIFAR100(tmp_path / "here", download=False)
    assert len(CIFAR100(tmp_path / "here")) == 4
    python = tmp_path / "py" / "cifar-100-python"
    python.mkdir(parents=True)
    made = {b"data": PIXELS[0], b"fine_labels": fine.tolist(), b"coarse_labels": coarse.tolist()}
    (python / "train").write_bytes(pickle.dumps(made))
    assert [x.tolist() for x in CIFAR100(tmp_path / "py")[3]] == [x.tolist() for x in data[3]]


# ---- folders ------------------------------------------------------------------------------------------------------------------


def test_image_folder(tmp_path):
    want = {n: picture(tmp_path / n) for n in ("dog/b.png", "dog/a.JPG", "cat/x/y.png")}
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    data = ImageFolder(tmp_path)
    assert len(data) == 3 and list(data.class_dict) == ["cat", "dog", "empty"]
    for i, (name, label) in enumerate((("cat/x/y.png", 0), ("dog/a.JPG", 1), ("dog/b.png", 1))):
        image, number = data[i]
        assert (image == want[name]).all() and image.flags.c_contiguous and number == label and number.dtype == np.int32
    assert [data[1] for data in [ImageFolder(str(tmp_path), lambda p: p.endswith(".png"), class_name=True)]][0][1] == "dog"
    (tmp_path / "dog" / "b.png").write_bytes((tmp_path / "dog" / "b.png").read_bytes()[:60])
    with pytest.raises(FileFormatError, match="b.png cannot be read as an image"):
        data[2]
    (tmp_path / "dog" / "b.png").unlink()
    with pytest.raises(FileNotFoundError, match="there is no image .*b.png"):
        data[2]
    for folder, words in ((tmp_path / "none", "there is no .*none"), (tmp_path / "empty", "no folders")):
        with pytest.raises(FileNotFoundError, match=words):
            ImageFolder(folder)


def test_imagenet(tmp_path):
    want = picture(tmp_path / "val" / "n01440764" / "ILSVRC2012_val_00000293.JPEG")
    data = ImageNet(tmp_path, train=False)
    assert len(data) == 1 and (data[0][0] == want).all() and data[0][1] == 0
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="is packed; help: unpack"):
        ImageNet(tmp_path)
    picture(tmp_path / "train" / "flat.JPEG")
    with pytest.raises(FileNotFoundError, match="no folders of classes; help: move"):
        ImageNet(tmp_path)
    truth = tmp_path / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt"
    truth.parent.mkdir(parents=True)
    truth.write_text("490\n361\n")
    assert data.valid_ground_truth == [490, 361]


# ---- scenes ---------------------------------------------------------------------------------------------------------------------

SCENE = {
    "images": [{"id": 7, "height": 5, "width": 7, "file_name": "b.jpg", "license": 1}, {"id": 3, "height": 5, "width": 7, "file_name": "a.jpg"},
               {"id": 9, "height": 1, "width": 1, "file_name": "c.jpg"}],
    "categories": [{"id": 44, "name": "bottle"}, {"id": 1, "name": "person"}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 44, "bbox": [1, 2, 3, 2.5], "iscrowd": 0, "segmentation": [[1, 2, 4, 2, 4, 4]],
         "keypoints": [1, 2, 2] * 17},
        {"id": 2, "image_id": 7, "category_id": 1, "bbox": [0, 0, 2, 2], "iscrowd": 1, "segmentation": {"counts": [], "size": [5, 7]},
         "keypoints": [0, 0, 0] * 17},
        {"id": 3, "image_id": 9, "category_id": 1, "bbox": [0, 0, 1, 1], "iscrowd": 0},
    ],
}  # fmt: skip


def written(path, value):
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("kind", [COCO, Objects365])
def test_coco(tmp_path, kind):
    want = {n: picture(tmp_path / "images" / n) for n in ("a.jpg", "b.jpg")}
    order = ("image", "boxes", "boxes_category", "info") + (("keypoints", "polygons") if kind is COCO else ())
    data = kind(tmp_path / "images", written(tmp_path / "x.json", SCENE), order=order)
    assert len(data) == 3 and data.ids == [3, 7, 9] and data.class_names == ("person", "bottle")
    image, boxes, classes, info, *more = data[1]
    assert (image == want["b.jpg"]).all() and boxes.tolist() == [[1, 2, 4, 4.5], [0, 0, 2, 2]] and boxes.dtype == np.float32
    assert classes.tolist() == [2, 1] and classes.dtype == np.int32 and info == [5, 7, "b.jpg"]
    assert data[0][1].shape == (0, 4) and data[0][2].shape == (0,) and data.get_img_info(1)["id"] == 7
    if kind is COCO:
        points, polygons = more
        assert points.shape == (2, 17, 3) and points[0, 0].tolist() == [1, 2, 2]
        assert [p.tolist() for p in polygons[0]] == [[[1, 2], [4, 2], [4, 4]]] and polygons[1] == []
    else:
        with pytest.raises(ValueError, match="has no 'keypoints'"):
            Objects365(tmp_path, tmp_path / "x.json", order=("keypoints",))
    few = kind(tmp_path, tmp_path / "x.json", True, order=("boxes",))
    assert few.ids == [7] and few[0][0].tolist() == [[1, 2, 4, 4.5]]
    with pytest.raises(IndexError):
        data[3]


@pytest.mark.parametrize("change, words", [
    (lambda s: s.pop("images"), "KeyError: 'images'"), (lambda s: s["annotations"][0].update(category_id=5), "annotation 1 names a category"),
    (lambda s: s["annotations"][0].update(bbox=[1, 2]), "a box of 2 numbers"), (lambda s: s["images"][0].pop("file_name"), "file_name"),
    (lambda s: s.update(annotations=5), "TypeError"), (lambda s: s["annotations"][2].update(image_id=55), "annotation 3"),
])  # fmt: skip
def test_files_that_are_not_cocos(tmp_path, change, words):
    made = json.loads(json.dumps(SCENE))
    change(made)
    with pytest.raises(FileFormatError, match=f"x.json: it is not in COCO's format .*{words}"):
        COCO(tmp_path, written(tmp_path / "x.json", made))
    for text in ("{", "[]", "\udcff", "[" * 100_000):
        (tmp_path / "x.json").write_text(text, errors="surrogateescape")
        with pytest.raises(FileFormatError):
            COCO(tmp_path, tmp_path / "x.json")


def palette(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(values)
    image.putpalette(list(range(256)) * 3)
    image.save(path)


XML = "<annotation><size/>{}</annotation>"
BOX = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>{}</xmax><ymax>4.5</ymax></bndbox>"
OBJECT = "<object><name>{}</name>" + BOX + "<part><name>head</name></part></object>"


def test_pascal_voc(tmp_path):
    want = picture(tmp_path / "JPEGImages" / "2007_1.jpg")
    for kind in ("Main", "Segmentation"):
        (tmp_path / "ImageSets" / kind).mkdir(parents=True)
        (tmp_path / "ImageSets" / kind / "val.txt").write_text("2007_1\n\n")
    (tmp_path / "Annotations").mkdir()
    xml = tmp_path / "Annotations" / "2007_1.xml"
    xml.write_text(XML.format(OBJECT.format("person", 3) + OBJECT.format("cat", 9)))
    data = PascalVOC(tmp_path, "val", order=("image", "boxes", "boxes_category", "info"))
    image, boxes, classes, info = data[0]
    assert len(data) == 1 and (image == want).all() and boxes.tolist() == [[1, 2, 3, 4.5], [1, 2, 9, 4.5]] and classes.tolist() == [15, 8]
    assert info == [5, 7, "2007_1"]
    mask = RNG.integers(0, 21, (5, 7), np.uint8)
    mask[0, 0] = 255
    palette(tmp_path / "SegmentationClass" / "2007_1.png", mask)
    assert (PascalVOC(tmp_path, "val", order=("mask",))[0][0] == mask[..., None]).all()
    for text, words in (
        (XML.format(OBJECT.format("person", "x")), "x.*"), (XML.format(OBJECT.format("unicorn", 1)), "'unicorn' is no class"),
        ("<a>", "ParseError"), (XML.format("<object><name>cat</name></object>"), ""),
    ):  # fmt: skip
        xml.write_text(text)
        with pytest.raises(FileFormatError, match=f"2007_1.xml: it does not describe.*{words}"):
            data[0]
    picture(tmp_path / "SegmentationClass" / "2007_1.png")
    with pytest.raises(FileFormatError, match="a mask is a grey or palette image"):
        PascalVOC(tmp_path, "val", order=("mask",))[0]
    with pytest.raises(ValueError, match="boxes and a mask"):
        PascalVOC(tmp_path, "val", order=("boxes", "mask"))
    with pytest.raises(FileNotFoundError, match="train.txt"):
        PascalVOC(tmp_path, "train", order=("boxes",))


def test_cityscapes(tmp_path):
    want = {}
    for city in ("ulm", "bonn"):
        want[city] = picture(tmp_path / "leftImg8bit" / "val" / city / f"{city}_1_2_leftImg8bit.png")
        palette(tmp_path / "gtFine" / "val" / city / f"{city}_1_2_gtFine_labelIds.png", np.array([[7, 33, 0], [26, 34, 11]], np.uint8))
    data = Cityscapes(tmp_path, "val", "gtFine", order=("image", "mask", "info"))
    image, mask, info = data[0]
    assert len(data) == 2 and (image == want["bonn"]).all() and mask[..., 0].tolist() == [[0, 18, 255], [13, 255, 2]]
    assert info[:2] == [5, 7] and info[2].endswith("bonn_1_2_leftImg8bit.png") and data.class_names[13] == "car"
    for image_set, mode in (("val", "gtBest"), ("train_extra", "gtFine")):
        with pytest.raises(ValueError, match="Cityscapes: mode="):
            Cityscapes(tmp_path, image_set, mode)
    with pytest.raises(FileNotFoundError, match="the folder of cities"):
        Cityscapes(tmp_path, "train", "gtFine")


def test_orders_and_names():
    for order, words in (
        ("image", "a sequence of names"), (("image", "sound"), "Plain has no 'sound' among image"), ((1,), "sequence of names"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            Plain(None, order=order)
    assert dataset.ArrayDataset is ArrayDataset and "MNIST" in dir(dataset)
    with pytest.raises(AttributeError, match="no attribute 'MINST'"):
        dataset.MINST  # noqa: B018  (only its error counts)


class Plain(VisionDataset):
    def __len__(self):
        return 0
