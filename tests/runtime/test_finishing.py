"""Good code of what short processes ran: one process makes it after they have ended, and ends."""

import os
import signal
import subprocess
import sys
import time
import zlib

import pytest

from tengen.base.config import config
from tengen.codegen.targets import Target
from tengen.runtime import cache, finishing

pytestmark = pytest.mark.skipif(Target.host().architecture.linking is None, reason="LLVM links code for this architecture")

SCRIPT = """
import numpy as np, tengen, tengen.functional as F
from tengen.runtime import finishing, tiers
finishing.MUCH = 1
tiers.background._delay_s = 60  # this process makes no good code
x = tengen.Tensor(np.arange(600, dtype=np.float32).reshape(20, 30))
F.matmul(x, x.T).numpy()
print(tiers.statistics.quick, tiers.statistics.good)
"""


def run(directory, finish: str) -> list[str]:
    """Modules that had quick code and good code in a short process."""
    env = {**os.environ, "TENGEN_QUICK_COMPILE": "1", "TENGEN_CACHE_DIR": str(directory), "TENGEN_FINISH": finish}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, env=env)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.split()


def kinds(directory) -> list[str]:
    return sorted({f.suffix for f in directory.iterdir()} & {".o", ".l"})


def until(done, seconds: float = 100.0) -> bool:
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.05)
    return done()


def free() -> bool:
    with cache.alone(finishing.LOCK) as mine:
        return mine


def test_the_process_after_a_short_one_has_good_code(tmp_path):
    """Without it, the next one begins with quick code again."""
    directory = tmp_path / "c"
    for _ in range(2):
        assert run(directory, "0") == ["1", "0"]
        assert ".l" in kinds(directory) and not (directory / finishing.LOCK).exists()
    assert run(directory, "1") == ["1", "0"]
    with config.scope(cache_dir=str(directory)):
        assert until(lambda: kinds(directory) == [".o"]) and until(free)
    assert run(directory, "1") == ["0", "1"]


def test_what_cannot_be_made_is_not_tried_again(tmp_path, monkeypatch):
    """A text that LLVM refuses is gone; one for another target stays for who compiles for it. A second process does nothing."""
    monkeypatch.setattr(finishing.os, "nice", lambda by: None)
    monkeypatch.setattr(signal, "alarm", lambda seconds: None)
    with config.scope(cache_dir=str(tmp_path / "c")):
        texts = [("bad", Target.host()), ("other", Target.named("aarch64"))]
        names = [cache.text_name(cache.object_name(text, target)) for text, target in texts]
        for name, text in zip(names, ("bad", "other")):
            cache.put_named(name, zlib.compress(text.encode()))
        with cache.alone(finishing.LOCK):
            finishing.finish()
            assert sorted(cache.texts()) == sorted(names) and not finishing.start(1 << 20)
        finishing.finish()
        assert cache.texts() == names[1:]


def test_little_starts_none(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **how: pytest.fail("it was started"))
    with config.scope(cache_dir=str(tmp_path / "c"), finish=True):
        assert not finishing.start(finishing.MUCH - 1)
        with config.scope(finish=False):
            assert not finishing.start(finishing.MUCH)
        with config.scope(cache=False):
            assert not finishing.start(finishing.MUCH)
