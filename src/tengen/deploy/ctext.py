"""The C side of an artifact: its interface as data, the header, and a small program that uses it.

In: an `Interface`. Out: C text. Names in C begin with the interface's prefix, macros with the prefix in capitals.
"""

from __future__ import annotations

import re
from dataclasses import field
from math import prod

from tengen.base.digest import blake2b
from tengen.base.record import record
from tengen.base.version import VERSION
from tengen.deploy.model import Port
from tengen.loops.lang import Expr, Index

ALIGN = 64
FIRST_CHECK = 3  # the code that a run returns for its first check
CANCELLED = -2  # the code of a run that the application ended
OUTSIDE = -1  # the code for an extent that is not in its range
C_TYPES = {
    "float64": "double", "float32": "float", "float16": "uint16_t", "bfloat16": "uint16_t", "int64": "int64_t",
    "int32": "int32_t", "int16": "int16_t", "int8": "int8_t", "uint64": "uint64_t", "uint32": "uint32_t", "uint16": "uint16_t",
    "uint8": "uint8_t", "bool": "uint8_t", "complex64": "float", "complex128": "double",
}  # fmt: skip
NOTES = {
    "float16": "bits of an IEEE half", "bfloat16": "the upper 16 bits of a float", "bool": "0 or 1",
    "complex64": "two floats each: real, imaginary", "complex128": "two doubles each: real, imaginary",
}  # fmt: skip
KEYWORDS = set(  # of C and C++, what the texts here call and name themselves, and macros of the headers that they include
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while main bool true false "
    "alignas alignof asm constexpr nullptr static_assert thread_local typeof typeof_unqual "
    "and and_eq bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl concept const_cast "
    "consteval constinit decltype delete dynamic_cast explicit export friend mutable namespace new noexcept not not_eq operator "
    "or or_eq private protected public reinterpret_cast requires static_cast template this throw try typeid typename using "
    "virtual wchar_t xor xor_eq "
    "weights state workspace size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t FILE "
    "file argc argv take bytes code malloc fopen fclose fread fwrite fprintf fflush ferror atoll std pool "
    "stdin stdout stderr linux unix NULL EOF BUFSIZ WNOHANG WUNTRACED WSTOPPED WEXITED WCONTINUED WNOWAIT NFDBITS FD_SETSIZE "
    "EXIT_FAILURE EXIT_SUCCESS SEEK_CUR SEEK_SET SEEK_END L_tmpnam L_ctermid P_tmpdir "
    "BYTE_ORDER BIG_ENDIAN LITTLE_ENDIAN PDP_ENDIAN".split()
)
_LIMITS = re.compile(r"[A-Z0-9_]+_(MAX|MIN|WIDTH)")  # macros of <stdint.h> and its like: INT8_MAX


def c_name(text: str) -> str:
    """A text as an identifier of C: itself, where it is one.

    >>> c_name("mnist"), c_name("3 <lambda>"), c_name("float")
    ('mnist', 'm3_lambda', 'float_')
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", text) if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) else text
    name = name.strip("_") or "model"
    name = f"m{name}" if name[0].isdigit() else name
    return f"{name}_" if name in KEYWORDS or _LIMITS.fullmatch(name) else name


@record(frozen=True)
class Region:
    """Where a constant or a state lies in the blob (or a state in its memory)."""

    offset: int
    bytes: int


@record(frozen=True)
class Argument:
    """A parameter of the C function. key: what it is, for the entry. align: bytes that its address must be a multiple of."""

    key: tuple[str, int]
    name: str
    c_type: str
    bytes: Index
    align: int
    note: str

    @property
    def open(self) -> bool:
        """Whether its size follows from open extents."""
        return isinstance(self.bytes, Expr)


@record(frozen=True)
class Interface:
    """Everything that the header says."""

    prefix: str
    target: str
    cpu: str
    system: str
    threads: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    weights_bytes: int
    weights_sum: int
    workspace_bytes: Index
    constants: tuple[Region, ...]
    states: tuple[Region, ...]
    state_offset: int
    state_bytes: int
    model_sum: str | None
    checks: tuple[str, ...] = ()  # what is wrong when a run returns FIRST_CHECK and more
    extents: dict[str, int] = field(default_factory=dict)  # the numbers of the model's open extents, where it has numbers
    ranges: dict[str, range] = field(default_factory=dict)  # and their ranges, where they are open here too
    pool: bool = False  # whether the application may give threads, and end a run
    operators: tuple[str, ...] = ()  # files that define C functions of users' operators
    libm: bool = False  # whether it needs C's library of math functions
    processed: bool = False  # whether functions stand before or behind the model of `model_sum`

    def names(self) -> list[str]:
        """The open extents as parameters, which come first."""
        taken: set[str] = set()
        return [self._free(e, taken) for e in self.ranges]

    def arguments(self) -> list[Argument]:
        """The parameters of ``name_run``, in order; memory that is not needed is no parameter."""
        taken = {name.upper() for name in self.names()}
        found = []
        if self.weights_bytes:
            found.append(Argument(("weights", 0), "weights", "const void", self.weights_bytes, ALIGN, "the content of .bin"))
        if self.states:
            found.append(Argument(("state", 0), "state", "void", self.state_bytes, ALIGN, "read and updated by every run"))
        if isinstance(self.workspace_bytes, Expr) or self.workspace_bytes:
            found.append(Argument(("workspace", 0), "workspace", "void", self.workspace_bytes, ALIGN, "scratch memory"))
        for kind, ports in (("in", self.inputs), ("out", self.outputs)):
            for i, p in enumerate(ports):
                name = self._free(p.name, taken)
                c = ("const " if kind == "in" else "") + C_TYPES[p.dtype.name]
                note = f"{p.dtype.name}[{', '.join(map(str, p.shape))}]" + (
                    f", {NOTES[p.dtype.name]}" if p.dtype.name in NOTES else ""
                )
                found.append(Argument((kind, i), name, c, prod(p.shape) * p.dtype.size, p.dtype.size, note))
        return found

    @property
    def digest(self) -> str:
        """What a program takes for granted that was compiled with the header, as 16 hexadecimal digits: the arguments of a run in their order,
        with their sizes. The values of weights are not among it: they may be others."""
        rows = [f"{name} in {r}" for name, r in zip(self.names(), self.ranges.values())]
        rows += [f"{a.key[0]} {a.name}: {a.c_type}, {a.note}, {a.bytes} bytes by {a.align}" for a in self.arguments()]
        return blake2b("\n".join(rows).encode(), digest_size=8).hexdigest()

    def linked(self, function: str = "run") -> str:
        """The name by which linkers find a function: it has the digest, so that no program finds that of another interface."""
        return f"{self.prefix}_{function}_{self.digest}"

    def memory(self) -> list[Argument]:
        """The parameters that are memory which the application gives for a run to write: the state and the workspace."""
        return [a for a in self.arguments() if a.key[0] in ("state", "workspace")]

    def _free(self, text: str, taken: set[str]) -> str:
        """A text as a parameter's name: other than those that are taken, and not of the prefix, with which functions and macros begin."""
        base, i = c_name(text), 1
        base = f"arg_{base}" if re.match(f"{self.prefix}(_|$)", base, re.I) else base
        name = base
        while name.upper() in taken:
            i += 1
            name = f"{base}{i}"
        taken.add(name.upper())
        return name


def _other_functions(f: Interface) -> str:
    """What the header declares besides the run, for programs that have it: the check of the weights, the first state, the threads."""
    p, P = f.prefix, f.prefix.upper()
    threads = f"""
/* Sets how many threads a run may use (now {f.threads}); ends the workers when it changes. Returns the number that is set. */
int64_t {p}_set_threads(int64_t threads);

/* Ends the workers; the next run starts them again. Call it before the code is unloaded. */
void {p}_stop_threads(void);
""" if f.threads > 1 else ""  # fmt: skip
    check = f"""
/* Whether these are the weights that this program was compiled with: 0 yes, 1 another size, 2 other content, 3 a null pointer,
   4 an address that is no multiple of 8. */
int {p}_check(const void *weights, size_t bytes);
""" if f.weights_bytes else ""  # fmt: skip
    reset = f"""
/* Gives the state its first values; call it once before the first run. Returns 0; 1 when a pointer is NULL, 2 when one is not aligned: then
 * nothing was written. */
int {p}_reset(const void *weights, void *state);
""" if f.states else ""  # fmt: skip
    outside = f", {OUTSIDE} an extent is not in its range" if f.ranges else ""
    fits = "".join(f"""
/* Whether memory of so many bytes serves as the {a.name} of a run: 0 yes, 1 it is too small, 3 a null pointer, 4 an address that is no multiple
 * of {ALIGN}{outside}. A run is not told how much there is, so ask once, before the first. */
int {p}_check_{a.name}({", ".join([*(f"int64_t {n}" for n in f.names() if a.open), f"const void *{a.name}", "size_t bytes"])});
""" for a in f.memory())  # fmt: skip
    given = ", ".join([f"const {p}_pool *pool", *(f"int64_t {n}" for n in f.names()), *(f"{a.c_type} *{a.name}" for a in f.arguments())])
    pool = f"""
/* Threads of the application, for one run. */
typedef struct {p}_pool {{
    void *context; /* what the functions below are given */
    /* Calls work(job, begin, end) for parts of 0..pieces that do not overlap and together are all of it, on any threads, and returns when
     * all calls have returned. NULL: the calling thread does everything. */
    void (*share)(void *context, void (*work)(void *job, int64_t begin, int64_t end), void *job, int64_t pieces);
    /* Asked on the calling thread before each kernel: other than 0 ends the run. NULL: never. */
    int (*cancelled)(void *context);
}} {p}_pool;

/* As {p}_run, with the application's threads: the same bits. Returns {CANCELLED} too, for a run that was ended: what it has written then is
 * unspecified, the state too. */
int {p}_run_with({given}) {P}_LINKED("{f.linked("run_with")}");
""" if f.pool else ""  # fmt: skip
    return check + fits + reset + threads + pool


def header_text(f: Interface) -> str:
    """The header."""
    p, P = f.prefix, f.prefix.upper()
    arguments = f.arguments()
    width = max((len(a.name) for a in arguments), default=0)
    sizes = lambda a: f"{p}_{a.name}_bytes({', '.join(f.names())})" if a.open else a.bytes
    doc = "\n".join(f" *   {a.name:<{width}}  {a.note}; {sizes(a)} bytes, aligned to {a.align}" for a in arguments)
    said = [f"{k}={n}" for k, n in f.extents.items()] + [f"{k}={r[0]}..{r[-1]}:{r.step}" for k, r in f.ranges.items()]
    macros = [f'#define {P}_EXTENTS "{",".join(said)}"'] if said else []
    for name, r in zip(f.names(), f.ranges.values()):
        macros += [f"#define {P}_{name.upper()}_{what} {n}" for what, n in (("MIN", r[0]), ("MAX", r[-1]), ("STEP", r.step))]
    macros += [f"#define {P}_{a.name.upper()}_BYTES {a.bytes}" for a in arguments if not a.open]
    extents = [f"int64_t {name}" for name in f.names()]
    functions = "".join(f"int64_t {p}_{a.name}_bytes({', '.join(extents)});\n" for a in arguments if a.open)
    if functions:
        functions = f"""
/* Extents are numbers from their MIN to their MAX in steps. The bytes of what they decide; {OUTSIDE} where one is not in its range. */
{functions}"""
    sums = f"#define {P}_WEIGHTS_SUM {f.weights_sum:#018x}u /* what {p}_check computes */\n" if f.weights_bytes else ""
    lines = "".join(f"\n *   {FIRST_CHECK + i}: {_comment(what)}" for i, what in enumerate(f.checks))
    checks = f"\n * A value that is out of range is brought into it, the run goes on, and returns{lines}" if lines else ""
    shared = " but its workers", " and pthread", " One of them uses the workers."
    kept, pthread, alone = shared if f.threads > 1 else ("", "", "")
    libm = (" and libm" if not pthread else ", libm") if f.libm else ""
    outside = f", {OUTSIDE} when an extent is not in its range" if f.ranges else ""
    own = f" and what {', '.join(f.operators)} define" if f.operators else ""
    more = ",\n * and functions before or behind it" if f.processed else ""
    source = f" from the model with SHA-256\n * {f.model_sum}{more}" if f.model_sum else ""
    return f"""/* {p}: a neural network, compiled by Tengen {VERSION}{source}.
 * For {f.target} ({f.cpu}), {f.system}. It allocates nothing, keeps nothing between runs{kept},
 * and needs only libc{libm}{pthread}{own}. */
#ifndef {P}_H
#define {P}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {P}_TARGET "{f.target}"
#define {P}_THREADS {f.threads}
#define {P}_ALIGN {ALIGN}
{chr(10).join(macros)}
{sums}
/* What a program takes for granted that is compiled with this header. The linker knows the run by a name that ends with it, so that such a
 * program is not linked with code of other arguments. */
#define {P}_INTERFACE 0x{f.digest}u
#ifdef __GNUC__
#define {P}_TEXT_(x) #x
#define {P}_TEXT(x) {P}_TEXT_(x)
#define {P}_LINKED(name) __asm__({P}_TEXT(__USER_LABEL_PREFIX__) name)
#else
#define {P}_LINKED(name)
#endif
{functions}
/* Runs the network once. Arrays are dense, in row-major order; they must not overlap.
{doc}
 * Returns 0; 1 when a pointer is NULL, 2 when one is not aligned{outside}: then nothing was computed.{checks}
 * Several threads may run it at once, each on other {"state, " if f.states else ""}workspace and arrays.{alone}
 */
int {p}_run({", ".join([*extents, *(f"{a.c_type} *{a.name}" for a in arguments)]) or "void"}) {P}_LINKED("{f.linked()}");
{_other_functions(f)}
#ifdef __cplusplus
}}
#endif

#endif
"""


def _comment(text: str) -> str:
    """A text as part of a comment: printable ASCII, and nothing that ends it."""
    return re.sub(r"[^ -~]", "?", text)[:400].replace("*/", "* /").replace("/*", "/ *")


def same_interface(f: Interface, file: str) -> str:
    """What makes a C compiler refuse a file of another compilation than the header that it includes."""
    P = f.prefix.upper()
    return f"""#if {P}_INTERFACE != 0x{f.digest}u
#error "{file} and {f.prefix}.h were made by different compilations; help: write both again by tengen compile"
#endif
"""


def example_text(f: Interface) -> str:
    """A program that reads inputs from standard input and writes outputs to standard output until the input ends."""
    p, P = f.prefix, f.prefix.upper()
    arguments = f.arguments()
    ins = [a for a in arguments if a.key[0] == "in"]
    outs = [a for a in arguments if a.key[0] == "out"]
    size = lambda a: f"{a.name}_bytes_" if a.open else f"{P}_{a.name.upper()}_BYTES"
    extents = "".join(
        f"    int64_t {name} = argc > {i} ? atoll(argv[{i}]) : {P}_{name.upper()}_MIN;\n" for i, name in enumerate(f.names(), 2)
    )
    names = ", ".join(f.names())
    opened = [a for a in arguments if a.open]
    for a in opened:
        extents += f"    size_t {size(a)} = (size_t){p}_{a.name}_bytes({names});\n"
    if opened:
        extents += f"""    if ({size(opened[0])} == (size_t){OUTSIDE}) {{
        fprintf(stderr, "an extent is not in its range\\n");
        return 2;
    }}
"""
    memory = "\n".join(f"    {a.c_type.removeprefix('const ')} *{a.name} = take({size(a)});" for a in arguments)
    missing = " || ".join(f"!{a.name}" for a in arguments) or "0"
    reads = " && ".join(f"fread({a.name}, 1, {size(a)}, stdin) == {size(a)}" for a in ins if a.open or a.bytes)
    writes = "\n".join(f"        fwrite({a.name}, 1, {size(a)}, stdout);" for a in outs)
    head = f"while ({reads}) {{ /* one run for each set of inputs */" if reads else "{"
    load = f"""    FILE *file = fopen(argc > 1 ? argv[1] : "{p}.bin", "rb");
    if (!file || fread(weights, 1, {P}_WEIGHTS_BYTES, file) != {P}_WEIGHTS_BYTES || {p}_check(weights, {P}_WEIGHTS_BYTES)) {{
        fprintf(stderr, "the weights are missing, or do not belong to this program\\n");
        return 2;
    }}
    fclose(file);
""" if f.weights_bytes else "    (void)argc, (void)argv;\n"  # fmt: skip
    numbers = "".join(f" {r[0]}" for r in f.ranges.values())
    reset = f"    {p}_reset(weights, state);\n" if f.states else ""
    windows = f.system == "Windows"  # where standard streams are of text at first
    binary = "    _setmode(_fileno(stdin), _O_BINARY);\n    _setmode(_fileno(stdout), _O_BINARY);\n" if windows else ""
    files = "#include <fcntl.h>\n#include <io.h>\n" if windows else ""
    pthread = " -pthread" if f.threads > 1 else ""
    pthread += " -lm" if f.operators or f.libm else ""
    own = "".join(f"{word} " for word in ("-O2", "-ffp-contract=off", *f.operators)) if f.operators else ""
    return f"""/* Reads inputs from standard input, writes outputs to standard output, as the bytes that memory holds.
 * Build: cc {own}{p}_main.c {p}.o -o {p}{pthread}     Run: ./{p} {p}.bin{numbers} < inputs > outputs */
#include <stdio.h>
#include <stdlib.h>
{files}#include "{p}.h"
{same_interface(f, f"{p}_main.c")}
/* Aligned memory, which is kept until the program ends. */
static void *take(size_t bytes) {{
    char *p = malloc(bytes + {P}_ALIGN);
    return p ? p + (-(uintptr_t)p & ({P}_ALIGN - 1)) : NULL;
}}

int main(int argc, char **argv) {{
{binary}{extents}{memory}
    if ({missing}) {{
        fprintf(stderr, "not enough memory\\n");
        return 2;
    }}
{load}{reset}    {head}
        int code = {p}_run({", ".join([*f.names(), *(a.name for a in arguments)])});
        if (code) {{
            fprintf(stderr, "{p}_run returned %d; {p}.h says what that means\\n", code);
            return 1;
        }}
{writes}
    }}
    return ferror(stdin) || fflush(stdout) ? 1 : 0;
}}
"""
