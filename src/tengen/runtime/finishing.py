"""Good code for what short processes have run, made by one process in the background after they have ended.

In: texts of programs that processes of this user have left in the cache, since they ended before good code was there. Out: the good
code, in the cache, and no text. Else the next short process would begin with quick code again, and end too early as well.

A process that ends calls `start`. What it starts has a session of its own, no terminal and no pipe, and lets all others go first. It
ends when nothing is left, after `MOST_S` at the latest, and there is one for each cache at a time. Less than `MUCH` starts none. The
knob `finish` turns it off.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from tengen.base.config import config
from tengen.codegen.targets import Target
from tengen.runtime import cache, llvm, tiers
from tengen.runtime.parallel_compile import Build, background
from tengen.runtime.workers import MUCH, After, can_start

MOST_S = 60
NICENESS = 15  # its worker's is higher by that of `parallel_compile`
LOCK = "finishing"
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from tengen.deploy.finish import finish; finish()"


def start(characters: int) -> bool:
    """Starts the process that makes good code of texts that are left, if these have so many characters that it is worth it, and there is
    none yet. Whether it did."""
    if characters < MUCH or not config.finish or not can_start():
        return False
    with cache.alone(LOCK) as mine:
        if not mine:
            return False
    import subprocess  # here: few processes start another

    told = {"CACHE_DIR": cache.directory_name(), "CACHE_BYTES": config.cache_bytes, "TARGET": config.target, "PROCESSOR": config.processor}
    env = {**os.environ, **{f"TENGEN_{name}": str(value) for name, value in told.items()}, "TENGEN_DEBUG": "0", "TENGEN_CACHE": "1"}
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CODE, _ROOT], env=env, cwd="/", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:  # a limit of the system: the next process begins with quick code
        return False
    process.returncode = 0  # nobody waits for it
    return True


def finish(first: Callable[[], None] = lambda: None) -> None:
    """Makes good code of all texts that are left, after what is to be done `first`. Its process does nothing else, and ends after MOST_S in
    any case."""
    import signal  # here: no other process needs it

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(MOST_S)  # workers end with this process, and what they have made by then is kept
    os.nice(NICENESS)
    with cache.alone(LOCK) as mine:
        if mine:
            first()
        tried: set[str] = set()
        while mine and (left := [name for name in cache.texts() if name not in tried]):
            tried.update(left)
            for name in left:
                _begin(name, Target.host())
            background.wait()


def _begin(name: str, target: Target) -> None:
    """Has good code made of the text of this name, unless it is for another target."""
    import zlib

    data = cache.get_named(name)
    text = "" if data is None else zlib.decompress(data).decode()
    if cache.text_name(cache.object_name(text, target)) != name:
        return

    def made(code: bytes) -> After:
        return lambda: tiers.forget(text, target)

    Build(text, target, llvm.GOOD, cache, made, lambda why: cache.discard_named(name), begun=True)
