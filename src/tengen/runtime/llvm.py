"""LLVM IR text to machine code: all that is asked of LLVM but linking. Nothing of Tengen is imported, so that a second process,
which helps with a large module, starts at once: ``python llvm.py FOLDER TRIPLE CPU FEATURES LEVEL < TEXT > OBJECT``.

In: a module's text and what to compile for, in LLVM's words. Out: an optimised module and the machine that emits it.

Kernels reach LLVM as SSA with rotated loops and few redundancies, so two passes do what matters (measured: code as fast as
that of the whole -O2 pipeline, which takes ten times as long). Loops are neither vectorised nor unrolled: kernels say what
they want.
"""

from __future__ import annotations

import functools
import sys


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
def machine(triple: str, cpu: str, features: str):
    """LLVM's code generator. Position independent, because the same object may end in a shared library."""
    initialize(triple.split("-")[0])
    target = llvmlite().Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small")


def optimised(text: str, triple: str, cpu: str, features: str, level: int):
    """(the module of a text, optimised; the machine). level: 0 runs no passes, 1 what kernels need, 2 LLVM's pipeline.

    Errors: RuntimeError for text that LLVM does not accept.
    """
    llvm, emitter = llvmlite(), machine(triple, cpu, features)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.verify()
    if level < 1:
        return module, emitter
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = options.loop_unrolling = False
    builder = llvm.create_pass_builder(emitter, options)
    if level == 1:
        passes = llvm.create_new_function_pass_manager()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
    else:
        builder.getModulePassManager().run(module, builder)
    return module, emitter


def _main() -> None:
    folder, triple, cpu, features, level = sys.argv[1:]
    sys.path[:] = [folder, *sys.path[1:]]  # where llvmlite is; not where this file is
    module, emitter = optimised(sys.stdin.buffer.read().decode(), triple, cpu, features, int(level))
    sys.stdout.buffer.write(emitter.emit_object(module))


if __name__ == "__main__":
    _main()
