"""Whole programs written for PyTorch run with the dialect, and give the numbers that PyTorch gave (`saved_strangers.json`)."""

import json
from pathlib import Path

import numpy as np
import pytest
from every_stranger import COMPILED, PLAIN
from exhaustive import but

import tengen.pytorch as torch

# what these programs do on purpose: a setting of a group that the program itself reads, a step right behind new parameters
pytestmark = [
    pytest.mark.filterwarnings("ignore:AdamW. a group's 'lr_scale' is read by nothing"),
    pytest.mark.filterwarnings("ignore:Adam.step... no parameter that it was given has a gradient"),
]
SAVED = json.loads((Path(__file__).parent / "saved_strangers.json").read_text())["programs"]


@but(every=8)
@pytest.mark.parametrize("program", [*PLAIN, *COMPILED], ids=lambda f: f.__name__)
def test_a_program_gives_the_numbers_of_pytorch(program):
    _as_saved(program, program(torch))


@but(every=8)
@pytest.mark.parametrize("program", COMPILED, ids=lambda f: f.__name__)
def test_a_compiled_program_gives_the_numbers_of_pytorch(program):
    _as_saved(program, program(torch, compiled=True))


def _as_saved(program, values):
    found, saved = [float(v) for v in values], SAVED[program.__name__]
    assert len(found) == len(saved)
    # float32 through several steps of training: some hundred roundings of 6e-8
    np.testing.assert_allclose(found, saved, rtol=4e-5, atol=4e-6)
