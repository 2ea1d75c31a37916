"""Whole programs written for MegEngine run with Tengen, eagerly and traced, and give the numbers that MegEngine 1.13 gave."""

import json

import megengine_programs
import numpy as np
import pytest

SAVED = json.loads(megengine_programs.SAVED.read_text())["programs"]


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("program", megengine_programs.PROGRAMS, ids=lambda f: f.__name__)
def test_a_program_gives_the_numbers_of_megengine(program, traced):
    found, saved = [float(v) for v in program(megengine_programs.package("tengen"), traced)], SAVED[program.__name__]
    assert len(found) == len(saved)
    # float32 through several steps of training: some hundred roundings of 6e-8
    np.testing.assert_allclose(found, saved, rtol=4e-5, atol=4e-6)
