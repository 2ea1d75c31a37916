"""An artifact in the form that a build system or another language takes: libraries, and modules that call them.

In: an `Artifact`, whose object, header and weights lie in a folder. Out: more files in that folder, their paths. Texts are written as
they are, without templates of others; each says how it is used in its first lines. What has to be linked is linked by `run.linker`.

The files of a form replace older ones as a set (`replacing_set`), whose entry is the one that users of the form name.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tengen.base.errors import ConfigError, FileFormatError, TengenError
from tengen.base.files import replacing_set
from tengen.codegen.targets import TARGET_NAMES, Target
from tengen.codegen.targets.system import ANDROID, BARE, MACOS, WASM, WINDOWS, System
from tengen.deploy import javascript, wrappers
from tengen.deploy.compile import Artifact
from tengen.deploy.csource import c_source
from tengen.deploy.ctext import ALIGN, header_text
from tengen.deploy.objects import read_object
from tengen.deploy.run import link_library
from tengen.runtime.compile import compile_object

ABI = "arm64-v8a"  # the name of AArch64 in the folders of Android's NDK
_OURS = re.compile("(compiled|made) by Tengen|Tengen compiled", re.I)  # what texts say of themselves that may have the name of a user's file


def package(artifact: Artifact, form: str) -> list[str]:
    """Writes an artifact in another form, beside its object. Returns the paths of what was written.

    Args:
        form: one of `FORMS`: ``static`` (libNAME.a), ``shared`` (libNAME.so, .dylib or NAME.dll), ``section`` (the weights as an object
            file and its header), ``cpp`` (NAME.hpp), ``cmake``
            (NAME.cmake), ``python`` (NAME.py, by ctypes, with the shared library), ``rust`` (a crate, with the static library),
            ``c`` (NAME.c, what the object does in C99, for targets whose code names no instructions: riscv64, armv7-exact),
            ``android`` (a folder of the NDK's layout), ``arduino`` (a library's folder), ``javascript`` (NAME.mjs, NAME.d.ts and
            NAME.wasm).

    Errors: ConfigError for another form, one that the target does not have, and where a program of the user's has the name of a file (net.py);
        FileFormatError where the folder holds another artifact by
        now; CannotRun without a linker; TengenError where it fails; OSError where a file cannot be written.
    """
    if form not in FORMS:
        raise ConfigError(f"unknown form {form!r}; help: one of {', '.join(FORMS)}")
    header = Path(artifact.files[1])
    if not header.exists() or header.read_bytes() != header_text(artifact.interface).encode():
        raise FileFormatError(f"{header} is not that of this artifact: it was compiled anew, or removed; help: package what that returned")
    return FORMS[form](artifact, Target.named(artifact.target), header.parent)


def _write(folder: Path, files: Mapping[str, bytes | str], entry: str | None = None) -> list[str]:
    """Writes the files of a form, by their names in a folder, as a set; returns their paths. entry: default: the only one."""
    paths = {folder / name: content for name, content in files.items()}
    for path, content in paths.items():
        says_so = isinstance(content, str) and _OURS.search(content[:300])
        if says_so and path.is_file() and not _OURS.search(path.read_text(errors="replace")[:300]):
            raise ConfigError(f"{path} is there, and is not of Tengen's making; help: name= another one, or another folder")
    with replacing_set(next(iter(paths)) if entry is None else folder / entry) as written:
        for path, content in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            written.new(path).write(content.encode() if isinstance(content, str) else content)
    return [str(path) for path in paths]


def archive(members: Sequence[tuple[str, bytes]]) -> bytes:
    """A static library: an `ar` archive with the index of symbols that linkers look names up in. The same members give the same
    bytes.

    Source: System V's `ar` format, as GNU's and LLVM's linkers read it.
    """
    symbols = [(name, i) for i, (_, data) in enumerate(members) for name in sorted(read_object(data).defined)]
    names = b"".join(name.encode() + b"\0" for name, _ in symbols)
    index_bytes = 4 + 4 * len(symbols) + len(names)
    places, at = [], 8 + 60 + index_bytes + index_bytes % 2
    for _, data in members:
        places.append(at)
        at += 60 + len(data) + len(data) % 2
    index = struct.pack(f">{len(symbols) + 1}I", len(symbols), *(places[i] for _, i in symbols)) + names
    parts = [b"!<arch>\n"]
    for name, data in [("/", index), *((f"{n}/", d) for n, d in members)]:
        if len(name) > 16:
            raise ConfigError(f"the member {name!r} of a static library has more than 15 letters; help: name= a shorter one")
        parts += [f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n".encode(), data, b"\n" * (len(data) % 2)]
    return b"".join(parts)


def _archive(a: Artifact, target: Target) -> dict[str, bytes | str]:
    """The static library, by its name."""
    if target.system is MACOS:
        raise ConfigError(f"no static library is made for {target.name}; help: libtool -static -o lib{a.name}.a {a.name}.o, there")
    return {f"lib{a.name}.a": archive([("model.o", Path(a.files[0]).read_bytes())])}


def _library(a: Artifact, target: Target) -> dict[str, bytes | str]:
    """The shared library, by its name, and what the linker makes beside it."""
    if not target.system.loads:
        raise ConfigError(f"no shared library is made for {target.name} ({target.system.name}); help: static")
    prefix = "" if target.system is WINDOWS else "lib"
    return _linked(a, target, f"{prefix}{a.name}{target.system.ending}")


def _linked(a: Artifact, target: Target, name: str, exported: Sequence[str] = ()) -> dict[str, bytes | str]:
    """What a linker makes of an artifact, by names, the library first."""
    with tempfile.TemporaryDirectory(prefix="tengen-link-") as folder:
        made = link_library(target, [a.files[0], *a.operators], Path(folder, name), exported)
        beside = sorted(p for p in made.parent.iterdir() if p != made and p.is_file())
        return {p.name: p.read_bytes() for p in (made, *beside)}


def _static(a: Artifact, target: Target, folder: Path) -> list[str]:
    return _write(folder, _archive(a, target))


def _shared(a: Artifact, target: Target, folder: Path) -> list[str]:
    files = _library(a, target)
    return _write(folder, files, next(iter(files)))


def _section(a: Artifact, target: Target, folder: Path) -> list[str]:
    """The weights as a constant of the program: `NAME_weights`, on 64 bytes, in the section that is only read."""
    blob = Path(a.files[2]).read_bytes()
    if not blob:
        raise ConfigError(f"{a.name} has no weights")
    content = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in blob)
    text = f'{target.head}@{a.name}_weights = constant [{len(blob)} x i8] c"{content}", align {ALIGN}\n'
    header = f"{a.name}_weights.h"
    files = {f"{a.name}_weights.obj": compile_object(text, target, count=False), header: wrappers.weights_header(a.name, len(blob))}
    return _write(folder, files, header)


def _c(a: Artifact, target: Target, folder: Path) -> list[str]:
    if a.threads > 1 or a.interface.pool:
        many = "a pool" if a.interface.pool else f"{a.threads} threads"
        raise ConfigError(f"a C source has one thread, {a.name} is for {many}; help: threads=1")
    return _write(folder, {f"{a.name}.c": c_source(a.text)})


def _cpp(a: Artifact, target: Target, folder: Path) -> list[str]:
    return _write(folder, {f"{a.name}.hpp": wrappers.cpp_text(a.interface)})


def _cmake(a: Artifact, target: Target, folder: Path) -> list[str]:
    return _write(folder, {f"{a.name}.cmake": wrappers.cmake_text(a.interface)})


def _python(a: Artifact, target: Target, folder: Path) -> list[str]:
    _closed(a, "python")
    files, module = _library(a, target), f"{a.name}.py"
    return _write(folder, {**files, module: wrappers.python_text(a.interface, next(iter(files)))}, module)


def _rust(a: Artifact, target: Target, folder: Path) -> list[str]:
    _closed(a, "rust")
    files = {**wrappers.rust_texts(a.interface), **_archive(a, target), f"{a.name}.bin": Path(a.files[2]).read_bytes()}
    return _write(folder / f"{a.name}-rust", files, "Cargo.toml")


def _android(a: Artifact, target: Target, folder: Path) -> list[str]:
    _is_for(target, ANDROID)
    files = {f"jniLibs/{ABI}/{name}": content for name, content in _library(a, target).items()}
    header = f"include/{a.name}.h"
    files |= {header: Path(a.files[1]).read_bytes(), f"assets/{a.name}.bin": Path(a.files[2]).read_bytes()}
    return _write(folder / f"{a.name}-android", files, header)


def _arduino(a: Artifact, target: Target, folder: Path) -> list[str]:
    _is_for(target, BARE)
    header = f"src/{a.name}.h"
    ((library, content),) = _archive(a, target).items()
    files: dict[str, bytes | str] = {
        "library.properties": wrappers.arduino_text(a.interface),
        header: Path(a.files[1]).read_bytes(),
        f"src/{target.cpu}/{library}": content,
        f"src/{a.name}_weights.h": wrappers.weights_header(a.name, max(a.weights_bytes, 1)),
        f"src/{a.name}_weights.c": wrappers.weights_text(a.name, Path(a.files[2]).read_bytes()),
    }
    return _write(folder / f"{a.name}-arduino", files, header)


def _javascript(a: Artifact, target: Target, folder: Path) -> list[str]:
    _closed(a, "javascript")
    _is_for(target, WASM)
    module = f"{a.name}.mjs"
    files = {**_linked(a, target, f"{a.name}.wasm", javascript.exported(a.interface)), module: javascript.module_text(a.interface)}
    return _write(folder, {**files, f"{a.name}.d.ts": javascript.types_text(a.interface)}, module)


def _is_for(target: Target, system: System) -> None:
    if target.system is not system:
        those = [name for name in TARGET_NAMES[1:] if Target.named(name).system is system]
        raise ConfigError(f"the artifact is for {target.name}; help: tengen compile --target {' or '.join(those)}")


def _closed(a: Artifact, form: str) -> None:
    if a.extents:
        raise ConfigError(f"{a.name} has open extents, which the form {form!r} does not pass on; help: --extent {next(iter(a.extents))}=8")
    if a.interface.states and form != "python":
        raise TengenError(f"{a.name} has states, which the form {form!r} does not keep; help: call the C functions")


FORMS: dict[str, Callable[[Artifact, Target, Path], list[str]]] = {
    "static": _static, "shared": _shared, "section": _section, "c": _c, "cpp": _cpp, "cmake": _cmake, "python": _python, "rust": _rust,
    "android": _android, "arduino": _arduino, "javascript": _javascript,
}  # fmt: skip
