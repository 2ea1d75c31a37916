"""LLVM IR text to machine code: all that is asked of LLVM but linking. Nothing of Tengen is imported, so that a worker process
starts at once: ``python llvm.py FOLDER NICENESS`` takes modules from its standard input until that ends (`workers.py`).

In: a module's text and what to compile for, in LLVM's words. Out: an optimised module and the machine that emits it.

Kernels reach LLVM as SSA with rotated loops and few redundancies, so two passes do what matters (measured: code as fast as
that of the whole -O2 pipeline, which takes ten times as long). Loops are neither vectorised nor unrolled: kernels say what
they want. Quick code comes from no pass, FastISel and the fast register allocator; `tiers.py` has what that saves and costs.
"""

from __future__ import annotations

import functools
import os
import struct
import sys
from weakref import ref

QUICK, GOOD, PIPELINE = 0, 1, 2  # levels of effort
HEAD = struct.Struct("<?Q")  # before a message: whether it is an object file (false: LLVM's complaint); how many bytes follow
# Of the modules that live. One that a traceback keeps may die in a cycle of references, whose objects Python's garbage collector
# finalises in any order. A context that is reachable from here is not among them, so it goes after its module.
_contexts: dict = {}  # weak reference to a module -> its context


def llvmlite():
    """llvmlite's binding, imported on first use."""
    import llvmlite.binding as llvm

    return llvm


@functools.cache
def initialize(arch: str) -> None:
    """Makes the back end of an architecture known to LLVM: this machine's alone, unless another is asked for."""
    llvm = llvmlite()
    if arch == llvm.get_process_triple().split("-")[0]:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()


@functools.cache
def machine(triple: str, cpu: str, features: str, effort: int = 2, relocation: str = "pic"):
    """LLVM's code generator. effort: LLVM's level of code generation; 0 selects instructions with FastISel and allocates registers block
    by block. relocation: position independent, because the same object may end in a shared library, where systems have these."""
    initialize(triple.split("-")[0])
    target = llvmlite().Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=effort, reloc=relocation, codemodel="small")


def optimised(text: str, triple: str, cpu: str, features: str, level: int, relocation: str = "pic"):
    """(the module of a text, optimised; the machine). level: QUICK runs no passes and generates code with little effort, GOOD runs
    what kernels need, PIPELINE all of LLVM's passes. The code of a kernel has the same bits at each.

    Errors: RuntimeError for text that LLVM does not accept.
    """
    llvm, emitter = llvmlite(), machine(triple, cpu, features, 0 if level == QUICK else 2, relocation)
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    _contexts[ref(module, _contexts.pop)] = context
    module.verify()
    if level == QUICK:
        return module, emitter
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = options.loop_unrolling = False
    builder = llvm.create_pass_builder(emitter, options)
    if level == GOOD:
        passes = llvm.create_new_function_pass_manager()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
    else:
        builder.getModulePassManager().run(module, builder)
    return module, emitter


def request(text: str, triple: str, cpu: str, features: str, level: int) -> bytes:
    """The message that asks a worker for the object file of a module."""
    body = "\0".join([triple, cpu, features, str(level), text]).encode()
    return HEAD.pack(True, len(body)) + body


def _answer(body: bytes) -> bytes:
    triple, cpu, features, level, text = body.decode().split("\0", 4)
    try:
        module, emitter = optimised(text, triple, cpu, features, int(level))
        found, good = emitter.emit_object(module), True
    except RuntimeError as e:
        found, good = str(e).encode(), False
    return HEAD.pack(good, len(found)) + found


def _main() -> None:
    """A worker: answers requests in order. A thread reads them, which LLVM does not stop, so that the process ends at once when
    its parent has ended, in whatever way: then the pipe does."""
    folder, niceness = sys.argv[1:]
    sys.path[:] = [folder, *sys.path[1:]]  # where llvmlite is; not where this file is
    os.nice(int(niceness))
    import _thread
    import queue

    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        source = sys.stdin.buffer
        while len(head := source.read(HEAD.size)) == HEAD.size:
            body = source.read(HEAD.unpack(head)[1])
            requests.put(body)
        os._exit(0)

    _thread.start_new_thread(read, ())
    while True:
        left = memoryview(_answer(requests.get()))
        while left:
            left = left[os.write(1, left) :]


if __name__ == "__main__":
    _main()
