"""Code generation: kernels as LLVM IR, and in `targets/` what it is made for."""
