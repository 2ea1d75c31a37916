"""Makes the environment in which TPU-MLIR runs: `python -m tengen.backends.tpu_mlir_environment FOLDER [--python python3.10]`.

TPU-MLIR 1.30.2 needs Python 3.10 and packages of its time, so it has an environment of its own: 1.7 GB, of which 0.6 are downloaded. Two
things keep it from running as it is packaged. It brings a C library of its own, with which its programs end by a fault where the system's
is a newer one: those files are removed. And it imports PyTorch, of which its way from ONNX uses two names: a small module stands for it.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

VERSION = "1.30.2"
PACKAGES = (
    "numpy==1.24.3", "scipy==1.11.1", "tqdm==4.65.0", "Pillow==10.0.0", "opencv-python-headless==4.8.0.74", "protobuf==3.20.3",
    "onnx==1.14.1", "onnxruntime==1.16.3", "onnxsim==0.4.17", "plotly==5.15.0", "scikit-learn==1.6.1", "graphviz==0.20.1", "psutil",
    "filelock", "setuptools<70",
)  # fmt: skip
C_LIBRARY = ("libc.so.6", "libm.so.6", "libpthread.so.0")
STAND_INS = {
    "torch.py": '''"""Stands for PyTorch, of which TPU-MLIR's way from ONNX uses these two names."""


class Tensor:
    """What nothing is an instance of."""


class _Array:
    def __init__(self, array):
        self.array = array

    def numpy(self):
        return self.array


def tensor(array):
    """The array, which `.numpy()` gives back."""
    return _Array(array)
''',
    "onnxruntime_extensions.py": '''"""Stands for onnxruntime_extensions, whose operators TPU-MLIR's way from ONNX does not use."""

PyOrtFunction = None


def onnx_op(*args, **kwargs):
    """A decorator that changes nothing."""
    return lambda function: function


class _Names(type):
    def __getattr__(cls, name):
        return 0


class PyOp(metaclass=_Names):
    """The dtypes, whatever they are called."""
''',
}


def make(folder: Path, python: str = "python3.10") -> None:
    """Makes the environment. Errors: CalledProcessError where Python or pip fail, after they said why."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install"]
    subprocess.run([*pip, "--no-deps", f"tpu_mlir=={VERSION}"], check=True)
    subprocess.run([*pip, *PACKAGES], check=True)
    site = folder / "lib" / "python3.10" / "site-packages"
    for name in C_LIBRARY:
        (site / "tpu_mlir" / "lib" / "third_party" / name).unlink(missing_ok=True)
    for name, text in STAND_INS.items():
        (site / name).write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="make the environment in which TPU-MLIR runs")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="python3.10", help="Python 3.10, which TPU-MLIR needs (default: python3.10)")
    args = parser.parse_args()
    make(args.folder, args.python)
    print(f"TPU-MLIR {VERSION} is in {args.folder}; TENGEN_TPU_MLIR={args.folder.absolute()} says so to Tengen")
