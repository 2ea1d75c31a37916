"""What a trace is told of memory: a budget in bytes, or MegEngine's objects for such options.

In: options as users give them. Out: a `Budget`, or None.
"""

from __future__ import annotations

import os
from typing import Any

from tengen.base.errors import ArgumentError
from tengen.base.record import record
from tengen.base.sizes import byte_size
from tengen.compiler.memory_plan import Budget
from tengen.runtime.paging import Pages, folder_of, key_of
from tengen.tensor.host import serve

_pages: dict[str, Pages] = {}  # by folder: programs that are kept have the key of one


def _at_least(owner: str, least: float, **given: Any) -> None:
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < least:
            raise ValueError(f"{owner}: {name}={value!r} must be a number, at least {least}")


@record
class SublinearMemoryConfig:
    """MegEngine's search for values to compute again in place of keeping them (Chen et al., arXiv 1604.06174): `trace` then plans for
    the least memory that no more than about a forward pass has to be computed again for.

    Args:
        lb_memory_mb: MiB; less than these are not aimed for. The others are checked and say how MegEngine searches: Tengen's plan
            is found in another way, which has no such numbers.
    """

    thresh_nr_try: int = 10
    genetic_nr_iter: int = 0
    genetic_pool_size: int = 20
    lb_memory_mb: int = 0
    num_worker: int = 1

    def __post_init__(self) -> None:
        _at_least("SublinearMemoryConfig", 0, **{k: v for k, v in vars(self).items() if k != "num_worker"})
        _at_least("SublinearMemoryConfig", 1, num_worker=self.num_worker)


@record
class DTRConfig:
    """MegEngine's dynamic rematerialisation of a static program (Kirisame et al., arXiv 2006.09616): a memory budget that is aimed for.

    Args:
        eviction_threshold: bytes; as `trace(memory_budget=...)`, but where it cannot be met the program that needs the least memory is
            taken. The others are checked; Tengen's plan knows the future of each value and has no such numbers.
    """

    eviction_threshold: int = 0
    evictee_minimum_size: int = 1 << 20
    recomp_memory_factor: float = 1
    recomp_time_factor: float = 1

    def __post_init__(self) -> None:
        self.eviction_threshold = byte_size(self.eviction_threshold, "DTRConfig: eviction_threshold", 1024)
        _at_least("DTRConfig", 0, **vars(self))
        if not self.eviction_threshold:
            raise ValueError("DTRConfig: eviction_threshold=0 must be a positive number of bytes")


def budget_of(
    memory_budget: int | str | None, sublinear: Any, dtr: Any, dynamic_axes: Any, offload: str | os.PathLike | None = None
) -> Budget | None:  # fmt: skip
    """What options of `trace` ask for; None where none of them is given.

    Errors: ArgumentError for `offload` without one of the others, where several are given, or open extents are named: memory is planned
    for numbers. ValueError for a size or a folder that is none.
    """
    given = [k for k, v in (("memory_budget", memory_budget), ("sublinear_memory_config", sublinear), ("dtr_config", dtr)) if v]
    if memory_budget is not None:
        byte_size(memory_budget, "memory_budget")
    if len(given) > 1:
        raise ArgumentError(f"trace(): {' and '.join(given)} are given; help: one of them, they say the same of memory")
    if memory_budget is None and not given:
        if offload is not None:
            raise ArgumentError(f"trace(): offload={offload!r} without a budget writes nothing; help: memory_budget=")
        return None
    folder = None
    if offload is not None:
        folder = folder_of(offload)
        if folder not in _pages:
            serve(key_of(folder), _pages.setdefault(folder, Pages(folder)).serve)
    if isinstance(dynamic_axes, dict) and dynamic_axes:
        raise ArgumentError(
            f"trace(): {(given or ['memory_budget'])[0]} with dynamic_axes={dynamic_axes!r}: memory is planned for numbers, and an open "
            "extent is none; help: leave dynamic_axes out, each shape is then recorded and planned by itself"
        )
    if sublinear:
        if not isinstance(sublinear, SublinearMemoryConfig):
            raise ArgumentError(f"sublinear_memory_config={sublinear!r} is no SublinearMemoryConfig")
        return Budget(None, int(sublinear.lb_memory_mb * (1 << 20)), offload=folder)
    if dtr:
        if not isinstance(dtr, DTRConfig):
            raise ArgumentError(f"dtr_config={dtr!r} is no DTRConfig")
        return Budget(dtr.eviction_threshold, soft=True, offload=folder)
    return Budget(byte_size(memory_budget, "memory_budget"), offload=folder)
