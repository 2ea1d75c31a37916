"""A program's module taken apart: into kernels that programs share, and into modules that several processes compile.

In: a module's text. Out: modules whose objects together are the program's (`object_loader.join`). A function's code is the same in
any of them; the first has `run`, which knows the others' kernels by name. A product, a convolution and its gradient are often one
kernel under three names, in eager programs that differ in everything else (of an EfficientNet's first steps, every fourth), so such
kernels are named by what they compute. Traced programs share few: fusion and known extents make of 66 to 431 kernels 5 to 7 that
an eager program has as well, a fiftieth of the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from tengen.base.digest import blake2b
from tengen.runtime.llvm import GOOD, QUICK

LEAST = 1 << 14  # characters of a kernel that has a module of its own: LLVM takes 15 ms for them, and 2 ms for an empty module
MOST = 1 << 19  # characters of a module that is taken apart by size alone
LONG_ENTRY = 1 << 16  # characters of a `run` that is compiled with little effort: LLVM takes 20 ms for good code of them, and 4 ms for quick
MOST_LITTLE = 2  # pieces of a kernel that does little: strategies cut work into pieces of some ten microseconds
MANY = 64  # pieces that a kernel is taken to have where their number is not known, or that is launched in a loop
_DEFINE, _END = "define void @", "\n}\n"  # what a kernel and `run` begin with, at the start of a line, and how they end
ENTRY = "run"
STOP = "declare i32 @tengen_stop(ptr, i64)"  # what loops of `run` may call (`compiler/program_ir.py`)
# compiled when it is first searched for: most processes compile no program
_LAUNCH = r"^  call void (?:@([\w.$]+)\(|%parallel\(ptr @([\w.$]+), )ptr %args, ptr (%\w+), i64 (?:0, i64 1|(%?[\w.]+))\)$"
_FOREIGN = re.compile(r"@(?!llvm\.)")  # a symbol that is no intrinsic of LLVM's


def apart(text: str) -> tuple[str, list[str]]:
    """(the rest of a module, modules of a kernel each); only itself where it has no `run`, or is so large that it is taken apart by
    size (`split`)."""
    functions = {name: t for name, t in _pieces(text) if name} if len(text) < MOST else {}
    if ENTRY not in functions:
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
    rest = "".join(t for name, t in _pieces(text) if name not in names)
    called = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    rest = re.sub(rf"@({called})(?![\w.$])", lambda m: f"@{names[m[1]]}", rest)
    return rest + "".join(f"\ndeclare void @{n}(ptr, ptr, i64, i64)\n" for n in sorted(modules)), list(modules.values())


def split(text: str, n: int, level: int, little: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """(a module's text as at most n modules' of about the same length, the first with `run`; those of the kernels in `little`, the same).
    A `run` that is worth another level than kernels (`level_of`) has one of its own. Only itself where it holds more than kernels and
    `run`."""
    if n < 2 and not little and len(text) < LONG_ENTRY:
        return [text], []
    functions, rest = _functions(text)
    alone = level_of(functions.get(ENTRY, ""), level) != level
    if not functions or not (n > 1 or little or alone):
        return [text], []
    entry, kernels = functions[ENTRY], {name: f for name, f in functions.items() if name != ENTRY}
    few = {name: f for name, f in kernels.items() if name in little}
    share = sum(map(len, few.values())) / max(sum(map(len, kernels.values())), 1)
    most = max(n - alone, 1)
    first = _shared_out({name: f for name, f in kernels.items() if name not in few}, round(most * (1 - share)), "" if alone else entry)
    last = _shared_out(few, round(most * share))
    shares = [*([[entry]] if alone else []), *first]
    elsewhere = [name for name in sorted(kernels) if kernels[name] not in shares[0]]
    texts = ["\n".join([rest, *share]) for share in shares]
    texts[0] += "\n" + "".join(f"declare void @{name}(ptr, ptr, i64, i64)\n" for name in elsewhere)
    return texts, ["\n".join([rest, *share]) for share in last]


def _functions(text: str) -> tuple[dict[str, str], str]:
    """(`run` and the kernels of a module by name, what stands around them); no functions where it holds more than these."""
    pieces = list(_pieces(text))
    functions, rest = {name: t for name, t in pieces if name}, "".join(t for name, t in pieces if not name)
    more = (line for line in rest.splitlines() if line != STOP)
    if ENTRY not in functions or any(line.startswith(("define", "@", "declare")) for line in more):
        return {}, rest
    return functions, rest


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """The functions of a module, by name, and under "" what stands between them, in order: together its text."""
    at = 0
    while True:
        start = text.find(_DEFINE, at)
        while start > 0 and text[start - 1] != "\n":
            start = text.find(_DEFINE, start + 1)
        end = text.find(_END, start) if start >= 0 else -1
        if end < 0:
            yield "", text[at:]
            return
        yield "", text[at:start]
        at = end + len(_END)
        yield text[start + len(_DEFINE) : text.index("(", start)], text[start:at]


def _shared_out(functions: Mapping[str, str], n: int, first: str = "") -> list[list[str]]:
    """Functions in at most n groups, one at least, of about the same length; `first` begins the first one."""
    groups: list[list[str]] = [[first] if first else [], *([] for _ in range(n - 1))]
    sizes = [sum(map(len, group)) for group in groups]
    for name in sorted(functions, key=lambda name: (-len(functions[name]), name)):
        least = sizes.index(min(sizes))
        groups[least].append(functions[name])
        sizes[least] += len(functions[name])
    return [group for group in groups if group]


def level_of(text: str, level: int) -> int:
    """The effort that a module of this text is worth, where its program is worth `level`: little for a long `run` alone. It computes
    nothing; and as it is one block of stores and calls, good code takes LLVM a time that grows with the square of its length."""
    alone = len(text) >= LONG_ENTRY and text.count("define ") == 1 and f"define void @{ENTRY}(" in text
    return QUICK if level == GOOD and alone else level


def little_work(text: str) -> tuple[frozenset[str], float]:
    """(the kernels that a module's `run` calls for few pieces, `MOST_LITTLE` at most, and not in loops; their share of all pieces). None of a
    module that is not taken apart by size."""
    pieces: dict[str, int] = {}
    many: set[str] = set()
    entry = _functions(text)[0].get(ENTRY, "") if len(text) >= MOST else ""
    for call in re.finditer(_LAUNCH, entry, re.M):
        name, n = call[1] or call[2], call[4] or "1"
        known = call[3] == "%ints" and n.isdigit()
        pieces[name] = pieces.get(name, 0) + (int(n) if known else MANY)
        if not known or int(n) > MOST_LITTLE:
            many.add(name)
    found = frozenset(pieces) - many
    return found, sum(pieces[name] for name in found) / max(sum(pieces.values()), 1)
