"""A module in parts, which as many processes compile at the same time: LLVM takes most of a cold start, and one thread.

In: a module's text and a target. Out: the object files of its parts in one entry of bytes, which `compile.load_object` takes
like a single one. The functions are the same in any part, so their code is, too; the first part has `run`, which knows the
others' kernels by name. This process compiles the first part, `workers.py` the others.
"""

from __future__ import annotations

import re
import threading

from tengen.base.config import config
from tengen.codegen.targets import Target
from tengen.runtime import llvm, workers
from tengen.runtime.compile import compile_object
from tengen.runtime.object_loader import join
from tengen.runtime.workers import Answer, Pool

# Characters of a part: what takes longer to compile than to send to a worker that is there, and than to start one.
PART = {llvm.QUICK: 1 << 17, llvm.GOOD: 1 << 16}
LARGE = {llvm.QUICK: 1 << 19, llvm.GOOD: 1 << 18}
FUNCTION = re.compile(r"^define void @([\w.$]+)\(([^\n]*)\)[^\n]*\{\n.*?^\}\n", re.M | re.S)
ENTRY = "run"

helpers = Pool("compile")


def compile_parts(text: str, target: Target, level: int) -> bytes:
    """Compiles a module, with the help of other processes where it is large. See `compile_object`."""
    least = PART if helpers.pids() else LARGE
    n = min(config.threads, workers.MOST, len(text) // least.get(level, len(text) + 1))
    parts = split(text, n) if n > 1 and workers.can_start() else [text]
    if len(parts) == 1:
        return compile_object(text, target, level)
    found: list[Answer | None] = [None] * len(parts)
    ready = [threading.Event() for _ in parts]

    def keep(i: int, answer: Answer) -> None:
        found[i] = answer
        ready[i].set()

    for i in range(1, len(parts)):
        helpers.submit(parts[i], target, level, lambda answer, i=i: keep(i, answer))
    objects = [compile_object(parts[0], target, level)]
    for i in range(1, len(parts)):
        ready[i].wait()
        answer = found[i]
        if answer is None or answer.data is None:  # no worker could; or LLVM refuses the part, and says why here
            objects.append(compile_object(parts[i], target, level, count=False))
        else:
            objects.append(answer.data)
    return join(objects)


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
