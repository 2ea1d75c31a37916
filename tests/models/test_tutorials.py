"""The programs of `examples/tutorials/` run, and learn: their losses fall."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but

FOLDER = Path(__file__).parents[2] / "examples" / "tutorials"


@but(every=3)
@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("*.py")))
def test_a_tutorial_learns(name, capsys):
    losses = runpy.run_path(str(FOLDER / f"{name}.py"))["losses"]
    assert np.isfinite(losses).all() and np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5]), losses
    assert " -> " in capsys.readouterr().out


def test_there_are_some():
    assert len(list(FOLDER.glob("*.py"))) >= 4
