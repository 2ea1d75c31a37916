"""Random programs give the same bits as plain Python, traced and scripted (`random_scripts.py`, which goes on for as long as one likes)."""

import pytest
from random_scripts import differs


@pytest.mark.filterwarnings("ignore:f asks for values")
@pytest.mark.parametrize("seed", [500005, 500009, 500018, 500026, 500051])
def test_random_scripts(seed):
    told, compiled = differs(seed, calls=2)
    assert compiled and not told, told


@pytest.mark.filterwarnings("ignore:f asks for values")
def test_a_random_script_that_changes_what_has_two_names():
    told, compiled = differs(500027, calls=2)
    assert not compiled and "is changed in place that may be both" in told, told
