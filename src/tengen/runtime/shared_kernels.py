"""The kernels of a program's module, each in a module of its own: programs share the object files of those that are the same.

In: a module's text. Out: a module that has the rest and names its kernels by what they compute, and one module for each kernel.
A product, a convolution and its gradient are often one kernel under three names, in programs that differ in everything else (of an
EfficientNet's first steps, every fourth kernel); and LLVM takes as long for the parts of a module as for the whole.
"""

from __future__ import annotations

import re

from tengen.base.digest import blake2b
from tengen.runtime import llvm
from tengen.runtime.parallel_compile import ENTRY, FUNCTION, LARGE

LEAST = 1 << 14  # characters of a kernel that has a module of its own: LLVM takes 20 ms for them, and 2 ms for an empty module
MOST = 2 * LARGE[llvm.GOOD]  # characters of a module that several processes compile, in parts of their own
_FOREIGN = re.compile(r"@(?!llvm\.)")  # a symbol that is no intrinsic of LLVM's


def apart(text: str) -> tuple[str, list[str]]:
    """(the rest of a module, modules of a kernel each); only itself where it has no `run`, or is so large that several processes
    compile it (`parallel_compile.py`)."""
    functions = {m[1]: m[0] for m in FUNCTION.finditer(text)}
    if ENTRY not in functions or len(text) >= MOST:
        return text, []
    head = text[: text.index("define ")]
    names: dict[str, str] = {}  # of kernels: as in the text -> by what they compute
    modules: dict[str, str] = {}
    for name, whole in functions.items():
        body = whole.split(f"@{name}(", 1)[1]
        if name == ENTRY or len(whole) < LEAST or _FOREIGN.search(body):
            continue
        shared = names[name] = f"kernel_{blake2b(body.encode(), digest_size=16).hexdigest()}"
        attachment = "!0 = !{i32 1}\n" if "!nontemporal !0" in body else ""
        modules[shared] = "\n".join([head, whole.replace(f"@{name}(", f"@{shared}(", 1), attachment])
    if not modules:
        return text, []
    rest = FUNCTION.sub(lambda m: "" if m[1] in names else m[0], text)
    called = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    rest = re.sub(rf"@({called})(?![\w.$])", lambda m: f"@{names[m[1]]}", rest)
    return rest + "".join(f"\ndeclare void @{n}(ptr, ptr, i64, i64)\n" for n in sorted(modules)), list(modules.values())
