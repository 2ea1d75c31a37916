"""Random programs give the same bits as plain Python, traced and scripted (`random_scripts.py`, which goes on for as long as one likes)."""

import pytest
from random_scripts import differs


@pytest.mark.filterwarnings("ignore:f asks for values")
@pytest.mark.parametrize("seed", [4, 7, 21, 5011])
def test_random_scripts(seed):
    told, compiled = differs(seed, calls=2)
    assert compiled and not told, told
