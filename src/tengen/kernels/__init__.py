"""Fast strategies: how ops become kernels. Everything here writes the kernel language and nothing else."""
