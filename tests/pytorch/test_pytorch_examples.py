"""The programs of `examples/pytorch/`, written for PyTorch with its name changed, run and learn."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but

FOLDER = Path(__file__).parents[2] / "examples" / "pytorch"


@but(every=4)
@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("*.py")))
def test_a_program_learns(name, capsys):
    losses = runpy.run_path(str(FOLDER / f"{name}.py"))["losses"]
    assert np.isfinite(losses).all() and np.mean(losses[-5:]) < 0.75 * np.mean(losses[:5]), losses
    assert capsys.readouterr().out


def test_there_are_some():
    assert len(list(FOLDER.glob("*.py"))) >= 3
