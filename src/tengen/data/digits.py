"""MNIST and CIFAR: small images in one array, from files in their authors' formats, downloaded where they are missing."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from tengen.base.download import fetch
from tengen.base.errors import FileFormatError
from tengen.base.files import read_regular, replacing
from tengen.data.images import VisionDataset, folder_of


class _Arrays(VisionDataset):
    """A dataset whose items are rows of arrays."""

    supported_order = ("image", "image_category")
    arrays: tuple[np.ndarray, ...]

    def __init__(self, root: Any, train: bool):
        super().__init__(root, order=("image", "image_category"))
        self.train = train

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(a[index] for a in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])


class MNIST(_Arrays):
    """Handwritten digits (LeCun et al.): (image, class), images 28 x 28 x 1 of uint8, classes 0 to 9 of int32.

    Args:
        root: the folder with the four files ``train-images-idx3-ubyte.gz`` and so on, packed or not; default: one of the name MNIST
            among the user's caches. train: the 60,000 to train with, or the 10,000 to test. download: bring missing files there, checked
            by their SHA-256. timeout: seconds for which the server may be silent.

    Errors: FileNotFoundError where a file is missing and not downloaded; DownloadError; FileFormatError for a damaged file.
    Source: http://yann.lecun.com/exdb/mnist, the format IDX.
    """

    URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    FILES = {  # name -> SHA-256 of the packed file
        "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    }

    def __init__(self, root: Any = None, train: bool = True, download: bool = True, timeout: float = 500):
        folder = folder_of("MNIST", root)
        super().__init__(folder, train)
        which = "train" if train else "t10k"
        found = [self._file(folder, n, download, timeout) for n in self.FILES if n.startswith(which)]
        images, labels = (read_idx(path) for path in found)
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise FileFormatError(f"{found[0]}: images of shape {images.shape} and labels of shape {labels.shape} do not belong together")
        self.arrays = images[..., None], labels.astype(np.int32)

    def _file(self, folder: Path, name: str, download: bool, timeout: float) -> Path:
        for path in (folder / f"{name}.gz", folder / name):
            if path.exists():
                return path
        if not download:
            raise FileNotFoundError(f"MNIST: there is no {folder / name}.gz; help: download=True, or root='folder'")
        return fetch(f"{self.URL}{name}.gz", folder / f"{name}.gz", self.FILES[name], timeout=timeout)

    @property
    def meta(self) -> dict[str, int]:
        """The number of images, and their height and width."""
        n, rows, columns, _ = self.arrays[0].shape
        return {"count": n, "rows": rows, "columns": columns}


_IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
MOST = 1 << 33  # bytes of an array in a packed file


def read_idx(path: Path) -> np.ndarray:
    """The array in a file of the format IDX, packed by gzip where its name ends with .gz.

    Errors: FileFormatError for a file of another kind, a cut one, or one that goes on behind the array.
    """
    raw = read_regular(path)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) if path.suffix == ".gz" else io.BytesIO(raw) as f:
            head = f.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX_TYPES or not head[3]:
                raise FileFormatError(f"{path}: it is no file of the format IDX")
            extents = f.read(4 * head[3])
            shape = tuple(int.from_bytes(extents[i : i + 4], "big") for i in range(0, len(extents), 4))
            dtype = np.dtype(_IDX_TYPES[head[2]])
            size = dtype.itemsize * math.prod(shape)
            if len(extents) < 4 * head[3] or size > MOST:
                raise FileFormatError(f"{path}: its header says shape {shape}")
            data = f.read(size + 1)  # no more than it says is unpacked
    except (OSError, EOFError, gzip.zlib.error) as e:  # type: ignore[attr-defined]  # gzip imports zlib
        raise FileFormatError(f"{path}: it cannot be unpacked: {e}") from e
    if len(data) != size:
        raise FileFormatError(f"{path}: {'more' if len(data) > size else len(data)} bytes of data, {size} belong to shape {shape}")
    return np.frombuffer(data, dtype).reshape(shape)


class _PlainUnpickler(pickle.Unpickler):
    """Reads pickles of dicts, lists, texts, numbers and arrays of numbers; anything else in them is an error, and nothing is run."""

    ALLOWED = {
        ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"),
        ("_codecs", "encode"),
    }  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise FileFormatError(f"it holds {module}.{name}, and only arrays and plain data are read")
        return super().find_class(module.replace("numpy.core", "numpy._core") if hasattr(np, "_core") else module, name)


def _plain_pickle(path: Path) -> dict[bytes, Any]:
    try:
        found = _PlainUnpickler(io.BytesIO(read_regular(path)), encoding="bytes").load()
    except FileFormatError as e:
        raise FileFormatError(f"{path}: {e}") from None
    except Exception as e:  # a damaged one may raise anything
        raise FileFormatError(f"{path}: it is damaged ({type(e).__name__}: {e})") from e
    if not isinstance(found, dict):
        raise FileFormatError(f"{path}: it holds a {type(found).__name__}, and a dict is needed")
    return found


class CIFAR10(_Arrays):
    """Small photographs of ten classes (Krizhevsky, 2009): (image, class), images 32 x 32 x 3 of uint8, blue, green and red; classes of
    int32.

    Args:
        root: the folder that holds ``cifar-10-batches-py`` or ``cifar-10-batches-bin``, the authors' two forms; default: one of the name
            CIFAR10 among the user's caches. Others as of `MNIST`; what is downloaded is the binary form.

    The Python form is a pickle: only arrays and plain data are taken from it, and nothing in it is run.
    Errors: as `MNIST`.
    Source: https://www.cs.toronto.edu/~kriz/cifar.html
    """

    URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
    PYTHON, BINARY = "cifar-10-batches-py", "cifar-10-batches-bin"
    TRAIN, TEST = [f"data_batch_{i}" for i in range(1, 6)], ["test_batch"]
    LABELS = ["labels"]
    META = {"label_names": ("batches.meta", "batches.meta.txt")}  # what -> the file in each form

    def __init__(self, root: Any = None, train: bool = True, download: bool = True, timeout: float = 500):
        self._folder = folder_of(type(self).__name__, root)
        super().__init__(self._folder, train)
        names = self.TRAIN if train else self.TEST
        if (python := self._folder / self.PYTHON).is_dir():
            parts = [self._python_batch(python / n) for n in names]
        else:
            files = [self._folder / self.BINARY / f"{n}.bin" for n in names]
            if missing := [f for f in files if not f.exists()]:  # all, or some where an earlier download was cut short
                self._fetch(missing[0], download, timeout)
            parts = [self._binary_batch(f) for f in files]
        pixels, *labels = (np.concatenate(p) for p in zip(*parts))
        images = pixels.reshape(-1, 3, 32, 32)[:, ::-1].transpose(0, 2, 3, 1)
        self.arrays = np.ascontiguousarray(images), *(x.astype(np.int32) for x in labels)

    def _fetch(self, missing: Path, download: bool, timeout: float) -> None:
        folder = self._folder
        if not download:
            where = f"{folder / self.PYTHON} or {missing}"
            raise FileNotFoundError(f"{type(self).__name__}: there is no {where}; help: download=True, or root='folder'")
        packed = fetch(self.URL, folder / self.URL.rpartition("/")[2], self.SHA256, timeout=timeout)
        with tarfile.open(packed) as tar:
            for member in tar.getmembers():
                name = Path(member.name)
                if member.isfile() and name.parent.name == self.BINARY and (source := tar.extractfile(member)) is not None:
                    (folder / self.BINARY).mkdir(exist_ok=True)
                    with source, replacing(folder / self.BINARY / name.name) as f:
                        f.write(source.read())

    def _python_batch(self, path: Path) -> list[np.ndarray]:
        found = _plain_pickle(path)
        try:
            pixels = np.asarray(found[b"data"])
            labels = [np.asarray(found[n.encode()], np.int64) for n in self.LABELS]
            if pixels.dtype != np.uint8 or pixels.shape != (len(labels[0]), 3072):
                raise ValueError(f"pixels of shape {pixels.shape} and {pixels.dtype}")
        except (KeyError, ValueError, TypeError) as e:
            raise FileFormatError(f"{path}: it is no batch of {type(self).__name__} ({type(e).__name__}: {e})") from e
        return [pixels, *labels]

    def _binary_batch(self, path: Path) -> list[np.ndarray]:
        n = len(self.LABELS)
        data = np.frombuffer(read_regular(path), np.uint8)
        if not len(data) or len(data) % (n + 3072):
            raise FileFormatError(f"{path}: {len(data)} bytes are no whole number of images of {n + 3072} bytes")
        rows = data.reshape(-1, n + 3072)
        # of CIFAR-100 the coarse class comes first
        return [rows[:, n:], *(rows[:, i] for i in reversed(range(n)))]

    @property
    def meta(self) -> dict[str, list[str]]:
        """The names of the classes, in their order."""
        found = {}
        for what, (python, binary) in self.META.items():
            if (self._folder / self.PYTHON).is_dir():
                names = [n.decode() for n in _plain_pickle(self._folder / self.PYTHON / python)[what.encode()]]
            else:
                names = read_regular(self._folder / self.BINARY / binary).decode().split()
            found[what] = names
        return found


class CIFAR100(CIFAR10):
    """Small photographs of a hundred classes in twenty groups: (image, class, group). See `CIFAR10`; the folders are
    ``cifar-100-python`` and ``cifar-100-binary``."""

    URL = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
    SHA256 = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
    PYTHON, BINARY = "cifar-100-python", "cifar-100-binary"
    TRAIN, TEST = ["train"], ["test"]
    LABELS = ["fine_labels", "coarse_labels"]
    META = {
        "fine_label_names": ("meta", "fine_label_names.txt"), "coarse_label_names": ("meta", "coarse_label_names.txt"),
    }  # fmt: skip
