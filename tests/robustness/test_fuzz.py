"""Any call of any op ends in a result or in an error that it may raise: nothing crashes, hangs, or is silently wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent / "calls_by_chance.py"
COUNT = 500


@pytest.mark.parametrize("first", range(0, 4 * COUNT, COUNT))
def test_calls_by_chance(first):
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(first), str(first + COUNT)]
    p = subprocess.run(command, capture_output=True, text=True)
    calls = p.stdout.splitlines()
    assert p.returncode == 0, f"{calls[-1]} ended the process ({p.returncode}): {p.stderr[-2000:]}"
    bad = [f"{call}\n{line}" for call, line in zip(calls, calls[1:]) if line.startswith("  BAD")]
    assert not bad, "\n".join(bad)
    good = sum(line == "  a result" for line in calls)
    assert COUNT / 10 < good < COUNT, "the calls are all right or all wrong: they test nothing"
