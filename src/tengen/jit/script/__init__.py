"""The compiler of `jit.script`: a function's Python source becomes a Python function that keeps its loops and branches."""
