"""One process of a job, as `launch` starts it: runs a program, or a function from a file. An error ends all processes, so that none
waits for one that is gone."""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import traceback
from pathlib import Path

from tengen.base.errors import LostRankError
from tengen.transport.group import WORLD, launched, world
from tengen.transport.mpiexec import leave_word


def _end_all(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    transport = world().transport
    if transport is not None:
        transport.abort(code)
    os._exit(code)


def _program(path: str, arguments: list[str]) -> None:
    rank = _number()
    try:
        world()  # from here on an error that nobody catches ends all processes
        sys.argv = [path, *arguments]
        sys.path.insert(0, str(Path(path).resolve().parent))
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as e:
            if e.code not in (None, 0):
                leave_word("error", rank, f"sys.exit({e.code!r})")
                if isinstance(e.code, str):
                    print(e.code, file=sys.stderr)
                _end_all(e.code if isinstance(e.code, int) else 1)
        if world().transport is not None:
            WORLD.channel.end()
    except LostRankError as e:
        leave_word("waited", rank, str(e))
        raise
    except BaseException as e:  # to start the program again would not help
        leave_word("error", rank, f"{type(e).__name__}: {e}")
        raise
    leave_word("done", rank, "")


def _number() -> int:
    """This process's rank by its launcher, also where MPI cannot be joined."""
    return (launched() or (0, 1))[0]


def _call(folder: str) -> None:
    rank = world().rank
    try:
        func, args, kwargs = pickle.loads(Path(folder, "call").read_bytes())  # written by our own parent, in its own folder
        result = func(*args, **kwargs)
        part = Path(folder, f"part-{rank}")
        part.write_bytes(pickle.dumps(result))
        part.rename(Path(folder, f"result-{rank}"))
    except BaseException:
        Path(folder, f"error-{rank}").write_text(traceback.format_exc())
        _end_all(1)


def main() -> None:
    """``python -m tengen.distributed.rank --program FILE ARGUMENTS...`` or ``--call FOLDER``."""
    kind, what, *rest = sys.argv[1:]
    leave_word("pid", _number(), str(os.getpid()))
    if kind == "--program":
        _program(what, rest)
    else:
        _call(what)


if __name__ == "__main__":
    main()
