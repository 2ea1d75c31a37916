"""Whole programs written for PyTorch run with the dialect, and give the numbers that PyTorch gave (`saved_strangers.json`)."""

import json
from pathlib import Path

import numpy as np
import pytest
import strangers
import strangers_graphs
import strangers_masks
import strangers_modules
import strangers_public
import strangers_sampling
import strangers_science
import strangers_scripts
import strangers_sequences
import strangers_stumbled
import strangers_training
import strangers_vision
from exhaustive import but

import tengen.pytorch as torch

SAVED = json.loads((Path(__file__).parent / "saved_strangers.json").read_text())["programs"]


FILES = (
    strangers, strangers_stumbled, strangers_vision, strangers_sequences, strangers_sampling, strangers_science, strangers_training,
    strangers_modules, strangers_graphs, strangers_masks,
)  # fmt: skip
EVERY = [p for of in FILES for p in of.PROGRAMS]
COMPILED = [p for of in (strangers_public, strangers_scripts) for p in of.PROGRAMS]  # these say what of them is compiled


@but(every=8)
@pytest.mark.parametrize("program", [*EVERY, *COMPILED], ids=lambda f: f.__name__)
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
