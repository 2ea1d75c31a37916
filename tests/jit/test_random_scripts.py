"""Random programs give the same bits as plain Python, traced, scripted, from a file and by `vmap`, and its gradients (`random_scripts.py`,
which goes on for as long as one likes)."""

import pytest
from exhaustive import but
from random_scripts import differs, further


@but(every=3)
@pytest.mark.filterwarnings("ignore:f asks for values")
@pytest.mark.parametrize("seed", [500006, 500014, 500023, 500036, 500039])
def test_random_scripts(seed):
    told, compiled = differs(seed, calls=2)
    assert compiled and not told, told


@but(every=2)
@pytest.mark.parametrize("seed", [500023, 500036])
def test_files_of_random_scripts_examples_and_gradients(seed, tmp_path):
    told = further(seed, str(tmp_path), calls=2)
    assert not told, told


@pytest.mark.filterwarnings("ignore:f asks for values")
def test_a_random_script_that_changes_what_has_two_names():
    told, compiled = differs(710003, calls=2)
    assert not compiled and "is changed in place that may be both" in told, told
