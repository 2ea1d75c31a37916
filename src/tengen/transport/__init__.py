"""How several processes work together: `base` has the verbs that move bytes, `mpi` and `threads` two ways to do so, `shared` the memory
through which processes of one machine exchange arrays, `channel` the checked collective operations of a group on arrays, `group` the groups
that users see, `mpiexec` what starts the processes.

Only bytes are moved here. What is added is added by Tengen's kernels, in the order of the ranks (`functional.distributed`), so that
the bits do not depend on the transport.
"""
