"""A program's module taken apart: into kernels that programs share, and into modules that several processes compile.

In: a module's text. Out: modules whose objects together are the program's (`object_loader.join`). A function's code is the same in
any of them; the first has `run`, which knows the others' kernels by name. A product, a convolution and its gradient are often one
kernel under three names, in eager programs that differ in everything else (of an EfficientNet's first steps, every fourth), so such
kernels are named by what they compute. Traced programs share few: fusion and known extents make of 66 to 431 kernels 5 to 7 that
an eager program has as well, a fiftieth of the text.
"""

from __future__ import annotations

import re

from tengen.base.digest import blake2b

LEAST = 1 << 14  # characters of a kernel that has a module of its own: LLVM takes 15 ms for them, and 2 ms for an empty module
MOST = 1 << 19  # characters of a module that is taken apart by size alone
FUNCTION = re.compile(r"^define void @([\w.$]+)\(([^\n]*)\)[^\n]*\{\n.*?^\}\n", re.M | re.S)
ENTRY = "run"
STOP = "declare i32 @tengen_stop(ptr, i64)"  # what loops of `run` may call (`compiler/program_ir.py`)
_FOREIGN = re.compile(r"@(?!llvm\.)")  # a symbol that is no intrinsic of LLVM's


def apart(text: str) -> tuple[str, list[str]]:
    """(the rest of a module, modules of a kernel each); only itself where it has no `run`, or is so large that it is taken apart by
    size (`split`)."""
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


def split(text: str, n: int) -> list[str]:
    """A module's text as at most n modules' of about the same length, the first with `run`; only itself where it holds more
    than kernels and `run`."""
    if n < 2:
        return [text]
    functions = {m[1]: m[0] for m in FUNCTION.finditer(text)}
    rest = FUNCTION.sub("", text)
    more = (line for line in rest.splitlines() if line != STOP)
    if ENTRY not in functions or any(line.startswith(("define", "@", "declare")) for line in more):
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
