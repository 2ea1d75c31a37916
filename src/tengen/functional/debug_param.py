"""MegEngine's settings of how kernels are chosen. Here rules choose them, which change no bit, and `tengen.tune` measures: what MegEngine calls
heuristic and reproducible. The settings are taken, and say once where they change nothing."""

from __future__ import annotations

import enum
import functools
import operator

from tengen.base.errors import ArgumentError, UsageWarning, warn_once


class Strategy(enum.Flag):
    """How kernels are chosen, under MegEngine's names."""

    HEURISTIC = enum.auto()
    PROFILE = enum.auto()
    REPRODUCIBLE = enum.auto()
    OPTIMIZED = enum.auto()


def get_execution_strategy() -> Strategy:
    """How kernels are chosen here: HEURISTIC | REPRODUCIBLE, always."""
    return Strategy.HEURISTIC | Strategy.REPRODUCIBLE


def set_execution_strategy(option: Strategy | str) -> None:
    """Takes a strategy, or names with "_" between them, such as "PROFILE_REPRODUCIBLE"; a warning, once, for one that asks for measuring.

    Errors: ArgumentError for another name

    >>> set_execution_strategy("HEURISTIC")
    """
    if isinstance(option, str):
        names = option.split("_")
        if unknown := [n for n in names if n not in Strategy.__members__]:
            raise ArgumentError(f"set_execution_strategy: {unknown[0]!r} of {option!r} must be one of {', '.join(Strategy.__members__)}")
        option = functools.reduce(operator.or_, (Strategy[n] for n in names))
    if Strategy.PROFILE in option:
        said = "set_execution_strategy: nothing is measured when a program runs; help: tengen.tune measures, and keeps what it finds"
        warn_once(said, UsageWarning)


get_conv_execution_strategy, set_conv_execution_strategy = get_execution_strategy, set_execution_strategy
__all__ = [
    "Strategy", "get_conv_execution_strategy", "get_execution_strategy", "set_conv_execution_strategy", "set_execution_strategy",
]  # fmt: skip
