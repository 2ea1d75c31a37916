"""Texts by which other languages and build systems use an artifact: C++, CMake, Python, Rust, Arduino.

In: an `Interface`. Out: texts. They call the C functions of the header, own the memory that these are given, and turn their codes
into errors of the language.
"""

from __future__ import annotations

import json

from tengen.deploy.ctext import FIRST_CHECK, Argument, Interface, c_name, same_interface

_RUST = {
    "double": "f64", "float": "f32", "uint16_t": "u16", "int64_t": "i64", "int32_t": "i32", "int16_t": "i16", "int8_t": "i8",
    "uint64_t": "u64", "uint32_t": "u32", "uint8_t": "u8",
}  # fmt: skip
_FORMATS = {
    "float64": "d", "float32": "f", "float16": "e", "bfloat16": "H", "int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint64": "Q",
    "uint32": "I", "uint16": "H", "uint8": "B", "bool": "?", "complex64": "Zf", "complex128": "Zd",
}  # fmt: skip


def _element(a: Argument) -> str:
    return a.c_type.removeprefix("const ")


def _kinds(f: Interface) -> tuple[list[Argument], list[Argument], list[Argument]]:
    """(memory of the model itself, inputs, outputs)."""
    every = f.arguments()
    of = lambda *kinds: [a for a in every if a.key[0] in kinds]
    return of("weights", "state", "workspace"), of("in"), of("out")


def cpp_text(f: Interface) -> str:
    """A header of C++17: a class that owns weights and scratch memory."""
    p, P = f.prefix, f.prefix.upper()
    own, ins, outs = _kinds(f)
    names = f.names()
    extents = "".join(f"int64_t {n}, " for n in names)
    given = ", ".join(names)
    size = lambda a: f"(std::size_t){p}_{a.name}_bytes({given})" if a.open else f"{P}_{a.name.upper()}_BYTES"
    parameters = extents + ", ".join(f"{a.c_type} *{a.name}" for a in [*ins, *outs])
    scratch = next((a for a in own if a.key[0] == "workspace"), None)
    wanted = size(scratch) if scratch else ""
    small = f"!this->workspace_ || this->workspace_bytes_ < {wanted}"
    grow = f"        if ({small}) this->workspace_ = take(this->workspace_bytes_ = {wanted});\n" if scratch else ""
    arguments = ", ".join([*names, *(f"this->{a.name}_.get()" for a in own), *(a.name for a in [*ins, *outs])])
    state = any(a.key[0] == "state" for a in own)
    members = "".join(f"    Memory {a.name}_;\n" for a in own) + ("    std::size_t workspace_bytes_ = 0;\n" if scratch else "")
    load = f"""        std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(weights_file, "rb"), std::fclose);
        weights_ = take({P}_WEIGHTS_BYTES);
        if (!file || !weights_ || std::fread(weights_.get(), 1, {P}_WEIGHTS_BYTES, file.get()) != {P}_WEIGHTS_BYTES ||
            {p}_check(weights_.get(), {P}_WEIGHTS_BYTES))
            weights_.reset();
""" if f.weights_bytes else "        (void)weights_file;\n"  # fmt: skip
    reset = f"""
    /** Gives the state its first values. */
    void reset() {{ {p}_reset(weights_.get(), state_.get()); }}
""" if state else ""  # fmt: skip
    first = f"        state_ = take({P}_STATE_BYTES);\n        if (weights_ && state_) reset();\n" if state else ""
    good = " && ".join(f"{a.name}_ != nullptr" for a in own if a.key[0] != "workspace") or "true"
    return f"""// {p} for C++17: the functions of {p}.h, and the memory that they need.
//   {p}::Model model("{p}.bin");
//   if (model.ok() && model.run(...) == 0) ...
// One Model may be used by one thread at a time; several Models may be used at once.
#ifndef {P}_HPP
#define {P}_HPP

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>

#include "{p}.h"
{same_interface(f, f"{p}.hpp")}
namespace {p} {{

class Model {{
public:
    explicit Model(const char *weights_file = "{p}.bin") {{
{load}{first}    }}

    /** Whether the weights are there, and those of this program. */
    bool ok() const {{ return {good}; }}

    /** Runs the network once; what it returns is said in {p}.h, and 1 means too that there is not enough memory. */
    int run({parameters}) {{
{grow}        return {p}_run({arguments});
    }}
{reset}
private:
    struct Free {{
        void operator()(void *p) const {{ ::operator delete(p, std::align_val_t({P}_ALIGN)); }}
    }};
    using Memory = std::unique_ptr<void, Free>;
    static Memory take(std::size_t bytes) {{ return Memory(::operator new(bytes, std::align_val_t({P}_ALIGN), std::nothrow)); }}

{members}}};

}}  // namespace {p}

#endif
"""


def cmake_text(f: Interface) -> str:
    """A file for CMake's `include`."""
    p = f.prefix
    threads = f"find_package(Threads REQUIRED)\ntarget_link_libraries({p} INTERFACE Threads::Threads)\n" if f.threads > 1 else ""
    threads += f"target_link_libraries({p} INTERFACE m)\n" if f.libm else ""
    own = "".join(f' "${{CMAKE_CURRENT_LIST_DIR}}/{o}"' for o in f.operators)
    return f"""# {p}: a neural network, compiled by Tengen for {f.target}.
#   include({p}.cmake)
#   target_link_libraries(your_program PRIVATE {p})
# {p}_WEIGHTS is the path of the file that a program loads.
cmake_minimum_required(VERSION 3.13)
add_library({p} INTERFACE)
target_include_directories({p} INTERFACE "${{CMAKE_CURRENT_LIST_DIR}}")
target_sources({p} INTERFACE "${{CMAKE_CURRENT_LIST_DIR}}/{p}.o"{own})
set_source_files_properties("${{CMAKE_CURRENT_LIST_DIR}}/{p}.o" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
{threads}set({p}_WEIGHTS "${{CMAKE_CURRENT_LIST_DIR}}/{p}.bin")
"""


def python_text(f: Interface, library: str) -> str:
    """A module that needs ctypes alone."""
    p = f.prefix
    own, ins, outs = _kinds(f)
    ports = {"in": f.inputs, "out": f.outputs}
    rows = lambda arguments: "".join(
        f"    ({a.name!r}, {_FORMATS[(port := ports[a.key[0]][a.key[1]]).dtype.name]!r}, {tuple(port.shape)!r}, {a.bytes}),  # {a.note}\n"
        for a in arguments
    )
    messages = {1: "a pointer is NULL", 2: "a pointer is not aligned", **{FIRST_CHECK + i: c for i, c in enumerate(f.checks)}}
    sizes = {a.key[0]: a.bytes for a in own}
    order = [a.key[0] for a in own]
    return f'''"""{p}: a neural network, compiled by Tengen for {f.target}. Needs Python's ctypes and nothing else.

    import {p}
    model = {p}.Model()
    outputs = model.run({", ".join(a.name for a in ins)})      # buffers in, memoryviews out: numpy.asarray(outputs[0])

float16 comes as its bits, uint16, and complex numbers with a last axis of two parts.

Inputs are anything with a dense buffer of the right size and format, as NumPy's arrays or array.array. A Model is for one thread at a
time; several Models may run at once.
"""

import ctypes
import mmap
import os

INPUTS = (
{rows(ins)})
OUTPUTS = (
{rows(outs)})
MESSAGES = {messages!r}
_SIZES = {sizes!r}
_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _memory(size):
    """Bytes that begin at a multiple of 64."""
    raw = (ctypes.c_char * (size + 64))()
    return (ctypes.c_char * size).from_buffer(raw, -ctypes.addressof(raw) % 64)


class Model:
    """A network with its weights and scratch memory.

    Args:
        weights: the path of the weights; library: of the shared library. Default: beside this module.

    Errors: OSError where they cannot be read; ValueError where the weights belong to another program.
    """

    def __init__(self, weights=None, library=None):
        self._code = ctypes.CDLL(library or os.path.join(_FOLDER, {library!r}))
        self._own = {{}}
        if "weights" in _SIZES:
            with open(weights or os.path.join(_FOLDER, "{p}.bin"), "rb") as f:
                if os.fstat(f.fileno()).st_size != _SIZES["weights"]:
                    raise ValueError(f"{{f.name}} does not belong to {library}")
                self._mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
            self._own["weights"] = (ctypes.c_char * _SIZES["weights"]).from_buffer(self._mapped)
            check = self._code.{p}_check
            check.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
            if check(ctypes.addressof(self._own["weights"]), _SIZES["weights"]):
                raise ValueError("the weights do not belong to {library}")
        for kind in ("state", "workspace"):
            if kind in _SIZES:
                self._own[kind] = _memory(_SIZES[kind])
        try:
            self._run = self._code.{f.linked()}
        except AttributeError:
            raise ValueError("{library} does not belong to this module: another compilation made it") from None
        self._run.argtypes = [ctypes.c_void_p] * {len(own) + len(ins) + len(outs)}
        self._run.restype = ctypes.c_int
        self.reset()

    def reset(self):
        """Gives the state its first values, where there is one."""
        if "state" in self._own:
            reset = self._code.{p}_reset
            reset.argtypes = [ctypes.c_void_p] * 2
            reset(*(ctypes.addressof(self._own[k]) for k in ("weights", "state")))

    def run(self, *inputs):
        """Runs the network once: a tuple of memoryviews, one for each of OUTPUTS.

        Errors: TypeError or ValueError for inputs of another number, format or size; RuntimeError where a check fails.
        """
        if len(inputs) != len(INPUTS):
            raise TypeError(f"{{len(inputs)}} inputs given, {p} takes {{len(INPUTS)}}")
        held = []
        for x, (name, kind, shape, size) in zip(inputs, INPUTS):
            view = memoryview(x)
            if view.nbytes != size or _family(view.format) not in (kind, "H" if kind == "e" else kind):
                given = f"{{view.nbytes}} of {{view.format!r}}"
                raise ValueError(f"{{name}}: {{size}} bytes of format {{kind!r}}, {{shape}}, are needed, not {{given}}")
            memory = _memory(size)
            memory.raw = view.tobytes()
            held.append(memory)
        found = [_memory(size) for _, _, _, size in OUTPUTS]
        own = [self._own[kind] for kind in {order!r}]
        code = self._run(*(ctypes.addressof(m) for m in [*own, *held, *found]))
        if code:
            raise RuntimeError(MESSAGES.get(code, f"code {{code}}"))
        return tuple(_view(m, *row[1:]) for m, row in zip(found, OUTPUTS))


def _family(letter):
    """What kind of number a buffer's format means: 64-bit integers have two letters."""
    letter = letter.lstrip("@=<")
    return {{"l": "q", "L": "Q"}}.get(letter, letter) if ctypes.sizeof(ctypes.c_long) == 8 else {{"l": "i", "L": "I"}}.get(letter, letter)


def _view(memory, kind, shape, size):
    """The numbers of an output; complex ones with an axis of two parts, float16 as their bits, which memoryview does not read."""
    if kind[0] == "Z":
        kind, shape = kind[1:], (*shape, 2)
    kind = "H" if kind == "e" else kind
    return memoryview(memory).cast("B").cast(kind, shape) if size else memoryview(b"")
'''


def rust_texts(f: Interface) -> dict[str, str]:
    """A crate's files, by name: it links the static library, and has a safe type."""
    p = f.prefix
    own, ins, outs = _kinds(f)
    pointer = lambda a: f"{a.name}_: *{'const' if a.c_type.startswith('const') else 'mut'} {_RUST.get(_element(a), 'u8')}"
    count = lambda a: f"{a.bytes} / core::mem::size_of::<{_RUST[_element(a)]}>()"
    wanted = " || ".join(f"{a.name}_.len() != {count(a)}" for a in [*ins, *outs]) or "false"
    parameters = "".join(f", {a.name}_: &{'mut ' if a in outs else ''}[{_RUST[_element(a)]}]" for a in [*ins, *outs])
    how = lambda a: ("", "const") if a.key[0] == "weights" else ("mut_", "mut")
    passed = [f"self.{a.name}.as_{how(a)[0]}ptr() as *{how(a)[1]} u8" for a in own]
    passed += [f"{a.name}_.as_{'mut_' if a in outs else ''}ptr()" for a in [*ins, *outs]]
    fields = "".join(f"    {a.name}: Vec<Line>,\n" for a in own)
    made = {"weights": "lines(weights)", "workspace": f"vec![Line([0; 64]); {f.workspace_bytes} / 64 + 1]"}
    starts = "".join(f"            {a.name}: {made[a.key[0]]},\n" for a in own)
    check = f"""        let at = model.weights.as_ptr() as *const u8;
        if weights.len() != {f.weights_bytes} || unsafe {{ {p}_check(at, weights.len()) }} != 0 {{
            return Err(1);
        }}
""" if f.weights_bytes else "        let _ = weights;\n"  # fmt: skip
    declared = f"    fn {p}_check(weights: *const u8, bytes: usize) -> i32;\n" if f.weights_bytes else ""
    library = f"""//! {p}: a neural network, compiled by Tengen for {f.target}.
//!
//! `let mut model = {p}::Model::new(include_bytes!("../{p}.bin"))?; model.run(...)?;`

extern "C" {{
    #[link_name = "{f.linked()}"]
    fn {p}_run({", ".join(map(pointer, f.arguments()))}) -> i32;
{declared}}}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

#[allow(dead_code)]
fn lines(bytes: &[u8]) -> Vec<Line> {{
    let mut found = vec![Line([0; 64]); bytes.len() / 64 + 1];
    for (to, from) in found.iter_mut().zip(bytes.chunks(64)) {{
        to.0[..from.len()].copy_from_slice(from);
    }}
    found
}}

/// A network with its weights and scratch memory.
pub struct Model {{
{fields}}}

impl Model {{
    /// From the content of `{p}.bin`. Err(1) where that belongs to another program.
    pub fn new(weights: &[u8]) -> Result<Self, i32> {{
        let model = Model {{
{starts}        }};
{check}        Ok(model)
    }}

    /// Runs the network once, on arrays in row-major order. Err is the code that `{p}.h` explains, or -2 for a slice of another length.
    pub fn run(&mut self{parameters}) -> Result<(), i32> {{
        if {wanted} {{
            return Err(-2);
        }}
        match unsafe {{ {p}_run({", ".join(passed)}) }} {{
            0 => Ok(()),
            code => Err(code),
        }}
    }}
}}
"""
    build = f"""fn main() {{
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    println!("cargo:rustc-link-search=native={{here}}");
    println!("cargo:rustc-link-lib=static={p}");
    println!("cargo:rerun-if-changed=lib{p}.a");
}}
"""
    manifest = f'[package]\nname = "{p}"\nversion = "0.1.0"\nedition = "2021"\nbuild = "build.rs"\nlinks = "{p}"\n'
    return {"Cargo.toml": manifest, "build.rs": build, "src/lib.rs": library}


def arduino_text(f: Interface) -> str:
    """`library.properties`."""
    name = json.dumps(f.prefix)[1:-1]
    return f"""name={name}
version=0.1.0
author=Tengen
maintainer=Tengen
sentence=A neural network, compiled by Tengen for {f.target}.
paragraph=Include {name}.h; {name}_weights is what {name}_run takes as weights.
category=Data Processing
url=
architectures=*
includes={name}.h
precompiled=full
ldflags=-l{name}
"""


def weights_header(prefix: str, size: int) -> str:
    """The header of the weights as a constant of a program."""
    return f"""/* The content of {prefix}.bin, which {prefix}_weights.obj or {prefix}_weights.c defines: what {prefix}_run takes as weights. */
#ifndef {prefix.upper()}_WEIGHTS_H
#define {prefix.upper()}_WEIGHTS_H
#ifdef __cplusplus
extern "C" const unsigned char {prefix}_weights[{size}];
#else
extern const unsigned char {prefix}_weights[{size}];
#endif
#endif
"""


def weights_text(prefix: str, blob: bytes) -> str:
    """The weights as C, for devices without files: a constant, which lies in flash."""
    rows = "\n".join("  " + "".join(f"{b}," for b in blob[i : i + 32]) for i in range(0, len(blob), 32)) or "  0"
    name = c_name(prefix)
    return f"""/* The content of {name}.bin. */
const unsigned char {name}_weights[{max(len(blob), 1)}] __attribute__((aligned(64))) = {{
{rows}
}};
"""
