"""Where the machine code of this process came from: the pack that comes with Tengen, the user's cache, or a compiler run; and how
long compiling took.

In: `found` and `compiled`, which whoever gets code calls once for each module. Out: `counts`, and one line about it for
`show_config` and TENGEN_DEBUG=1.
"""

from __future__ import annotations

import threading
from collections import Counter

PACK, CACHE = "pack", "cache"  # sources of code that was there; another name says how code was compiled ("compiled")


class Provenance:
    """Counts modules of machine code: the runtime, and programs.

    Attributes:
        counts: modules by where they came from: `PACK`, `CACHE`, or the name of a way to compile. seconds: that compiling took,
            by the same names, summed over threads and helpers that worked at the same time.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self._lock = threading.Lock()

    def found(self, where: str) -> None:
        """A module was there: in the pack or in the cache."""
        with self._lock:
            self.counts[where] += 1

    def compiled(self, seconds: float, how: str = "compiled") -> None:
        """A module was compiled. how: in which way, where there are several."""
        with self._lock:
            self.counts[how] += 1
            self.seconds[how] += seconds

    def summary(self) -> str:
        """One line, such as "12 from the pack, 3 from the cache, 2 compiled in 0.31 s"."""
        there = [f"{self.counts[where]} from the {where}" for where in (PACK, CACHE)]
        made = [f"{n} {how} in {self.seconds[how]:.2f} s" for how, n in self.counts.items() if how not in (PACK, CACHE)]
        return ", ".join([*there, *(made or ["0 compiled"])])


provenance = Provenance()
