"""Programs with a mistake, a line each, and what they are told: `errors.txt`. ``python tests/robustness/golden.py`` writes the texts anew:
read each as somebody who has never seen Tengen."""

import re
import sys
import warnings
from pathlib import Path

TEXT = str(Path(__file__).parents[2] / "LICENSE")
FILE = Path(__file__).parent / "errors.txt"
SETTING = """
import numpy as np
import tengen
from tengen import functional as F, module as M, random, Tensor, trace
from tengen.autodiff import GradManager, grad, vmap
from tengen.data import DataLoader, random_split
from tengen.data.dataset import ArrayDataset, Dataset
from tengen.optimizer import SGD, Adam, ExponentialLR, MultiStepLR, clip_grad_norm as clip_grad_norm_
x23, x43, v4, net = F.ones((2, 3)), F.ones((4, 3)), F.ones(4), M.Linear(3, 1)
dataset = ArrayDataset(np.ones((4, 2)), np.ones(4))
class Broken(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        raise KeyError(f"image {i}")
class Ragged(Broken):
    def __getitem__(self, i):
        return np.ones(i + 1)
broken, ragged, not_a_file = Broken(), Ragged(), __file__  # __file__ is the license: a text
"""


def setting() -> dict:
    """The names that the programs use."""
    scope = {"__name__": "program", "__file__": TEXT}
    exec(compile(SETTING, "<setting>", "exec"), scope)
    return scope


def text(program: str, scope: dict) -> str:
    """What a program's mistake is told, in one line; without places that differ from machine to machine."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(program, "program.py", "exec"), scope)
    except Exception as e:
        said = f"{type(e).__name__}: {e}".replace(TEXT, "FILE")
        return re.sub(r"0x[0-9a-f]+", "0x...", re.sub(r" +", " ", said.replace("\n", " / ")))
    return "no error"


def programs() -> list[tuple[str, str]]:
    """(program, expected text) of the file."""
    lines = FILE.read_text().splitlines()
    return [(lines[i], lines[i + 1].strip()) for i in range(0, len(lines), 2)]


if __name__ == "__main__":
    sources = Path(sys.argv[1]).read_text().splitlines() if len(sys.argv) > 1 else [p for p, _ in programs()]
    scope = setting()
    FILE.write_text("".join(f"{p}\n    {text(p, scope)}\n" for p in sources if p.strip()))
