"""What is true of the operating system (or of its absence) that code is generated for: a `System` is all that Tengen knows of one.

An architecture says what a processor computes; a system says what an object file for it looks like, and what its library has.
"""

from __future__ import annotations

from tengen.base.record import NamedTuple


class System(NamedTuple):
    """An operating system, or none.

    Attributes:
        name: for people. mark: what a triple for it has in it, and no other's.
        format: of object files: "elf", "wasm", "coff" or "mach-o". mangling: LLVM's letter for how that spells symbols.
        relocation: LLVM's relocation model.
        threads: whether the thread pool runs there: on Linux, where a mutex of zero bytes is one that is open.
        emulated: whether what runs the architecture's programs elsewhere runs those of the system.
        files: whether C programs open files and standard streams.
        loads: whether processes load shared libraries; ending: of their names.
        library: names that the compiler's own run-time library defines (libgcc, compiler-rt), which every linker of the system
            adds; a prefix of them. LLVM calls these for what the processor has no instruction for.
    """

    name: str
    mark: str
    format: str = "elf"
    mangling: str = "e"
    relocation: str = "pic"
    threads: bool = False
    emulated: bool = True
    files: bool = True
    loads: bool = True
    ending: str = ".so"
    library: tuple[str, ...] = ()


ANDROID = System("Android", "-linux-android", threads=True, emulated=False)
LINUX = System("Linux", "-linux-", threads=True, library=("__aeabi_",))
WINDOWS = System("Windows", "-windows-", "coff", "w", ending=".dll", library=("___chkstk_ms",))
MACOS = System("macOS", "-apple-macosx", "mach-o", "o", emulated=False, ending=".dylib")
_OF_WASM = ("__stack_pointer", "__linear_memory", "__indirect_function_table")
WASM = System("WebAssembly", "-unknown-unknown", "wasm", relocation="static", loads=False, library=_OF_WASM)
BARE = System("no operating system", "-none-", relocation="static", files=False, loads=False, library=("__aeabi_",))

SYSTEMS = (ANDROID, LINUX, WINDOWS, MACOS, WASM, BARE)


def system_of(triple: str) -> System:
    """The system that a triple names; Linux where it names none of them."""
    return next((s for s in SYSTEMS if s.mark in triple), LINUX)
