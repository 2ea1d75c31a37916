"""What an optimizer keeps for each parameter, such as its momentum."""

from __future__ import annotations

from typing import Any

from tengen.base.changes import WatchedDict


class States(WatchedDict):
    """A dict of states by name for each parameter: ``opt.state[p]["exp_avg"]``. The keys are the parameters themselves. Recordings of
    `trace` learn of states that are set or taken away."""

    def __setitem__(self, p: Any, states: Any) -> None:
        super().__setitem__(p, states if type(states) is not dict else WatchedDict(states))


class AnyStates(WatchedDict):
    """Those of a program's own optimizer: for a key that is not there, an empty dict is put, as in PyTorch."""

    def __missing__(self, p: Any) -> dict[str, Any]:
        self[p] = {}
        return self[p]
