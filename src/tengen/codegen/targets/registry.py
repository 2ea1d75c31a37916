"""The architectures that code is generated for, by name. A new one is a file beside this one, and a name in this list."""

from __future__ import annotations

from tengen.codegen.targets.aarch64 import AARCH64
from tengen.codegen.targets.architecture import Architecture
from tengen.codegen.targets.armv7 import ARMV7, THUMBV7EM
from tengen.codegen.targets.riscv64 import RISCV64
from tengen.codegen.targets.wasm32 import WASM32
from tengen.codegen.targets.x86_64 import X86_64

ARCHITECTURES: dict[str, Architecture] = {a.name: a for a in (X86_64, AARCH64, ARMV7, RISCV64, WASM32, THUMBV7EM)}
