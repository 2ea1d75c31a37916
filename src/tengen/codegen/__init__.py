"""Code generation: what a target is, and kernels as LLVM IR."""
