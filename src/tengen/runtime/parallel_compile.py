"""A large module in parts, which as many processes compile at the same time: LLVM takes most of a cold start, and one thread.

In: a module's text and a target. Out: the object files of its parts in one entry of bytes, which `compile.load_object` takes
like a single one. The functions are the same in any part, so their code is, too; the first part has `run`, which knows the
others' kernels by name. A helper is a process of its own, since LLVM works under one lock in each; it knows nothing of Tengen.
"""

from __future__ import annotations

import os
import re
import sys
import threading

from tengen.base.config import config
from tengen.codegen.targets import Target
from tengen.runtime import llvm
from tengen.runtime.compile import compile_object
from tengen.runtime.object_loader import join

LARGE = 1 << 19  # characters of a module of which a helper's part takes longer than to start it
MOST = 8  # parts
PATIENCE_S = 300  # that a helper is waited for: many times what any network's part takes
FUNCTION = re.compile(r"^define void @([\w.$]+)\(([^\n]*)\)[^\n]*\{\n.*?^\}\n", re.M | re.S)
ENTRY = "run"


def compile_parts(text: str, target: Target, level: int) -> bytes:
    """Compiles a module, with the help of other processes where it is large. See `compile_object`."""
    n = min(config.threads, MOST, len(text) // LARGE)
    parts = split(text, n) if n > 1 and level == 1 and _can_help() else [text]
    if len(parts) == 1:
        return compile_object(text, target, level)
    found: list[bytes | None] = [None] * len(parts)

    def help_with(i: int) -> None:
        found[i] = _by_helper(parts[i], target, level)

    helpers = [threading.Thread(target=help_with, args=(i,)) for i in range(1, len(parts))]
    for h in helpers:
        h.start()
    found[0] = compile_object(parts[0], target, level)
    for h in helpers:
        h.join()
    for i, data in enumerate(found):
        if data is None:  # it could not be started, died or hangs, or LLVM refuses the part, and says why here
            found[i] = compile_object(parts[i], target, level, count=False)
    return join([data for data in found if data is not None])


def split(text: str, n: int) -> list[str]:
    """A module's text as at most n modules' of about the same length, the first with `run`; only itself where it holds more
    than kernels and `run`."""
    functions = {m[1]: m[0] for m in FUNCTION.finditer(text)}
    rest = FUNCTION.sub("", text)
    if ENTRY not in functions or any(line.startswith(("define", "@", "declare")) for line in rest.splitlines()):
        return [text]
    shares: list[list[str]] = [[ENTRY], *([] for _ in range(n - 1))]
    sizes = [len(functions[ENTRY])] + [0] * (n - 1)
    for name in sorted(functions.keys() - {ENTRY}, key=lambda name: (-len(functions[name]), name)):
        least = sizes.index(min(sizes))
        shares[least].append(name)
        sizes[least] += len(functions[name])
    elsewhere = [f"declare void @{name}(ptr, ptr, i64, i64)\n" for share in shares[1:] for name in sorted(share)]
    texts = ["\n".join([rest, *(functions[name] for name in share)]) for share in shares if share]
    return ["".join([texts[0], "\n", *elsewhere]), *texts[1:]]


def _can_help() -> bool:
    """Whether this process knows an interpreter to start: a program that embeds one names itself."""
    name = os.path.basename(sys.executable or "")
    return name.startswith("python") and not getattr(sys, "frozen", False)


def _by_helper(text: str, target: Target, level: int) -> bytes | None:
    """The object file of a part; None where its process does not give one in time, which is then ended."""
    import subprocess  # here: it loads much, and a process that finds its kernels starts no other

    import llvmlite

    folder = os.path.dirname(os.path.dirname(llvmlite.__file__))
    command = [sys.executable, "-E", "-S", llvm.__file__, folder, target.triple, target.cpu, target.features, str(level)]
    given = text.encode()
    try:
        done = subprocess.run(
            command, input=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 and done.stdout else None
