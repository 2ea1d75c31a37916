"""`torch.hub`: what a folder on this machine offers in its `hubconf.py`. Importing a hubconf.py runs it: take folders that you trust."""

from __future__ import annotations

from typing import Any

from tengen import hub
from tengen.base.errors import ArgumentError, HubError

__all__ = ["help", "list", "load"]


def load(
    repo_or_dir: Any, model: str, *args: Any, source: str = "github", trust_repo: Any = "check", force_reload: bool = False,
    verbose: bool = True, skip_validation: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """What a function of a folder's hubconf.py returns for these arguments: mostly a network.

    Args:
        repo_or_dir: the folder. model: the function's name. source: "local". args, kwargs: the function's.
        trust_repo, force_reload, verbose, skip_validation: PyTorch's, for repositories on a server; a local folder has no use for them.

    Errors: HubError for source="github", since code is not downloaded, for a folder without a hubconf.py, and for a name that it does
        not offer; ArgumentError for another source.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "hubconf.py").write_text("from torch.nn import Linear\\n".replace("torch", "tengen.pytorch"))
    >>> load(folder, "Linear", 3, 2, source="local").weight.shape
    (2, 3)
    """
    kind = source.lower()
    if kind not in ("github", "local"):
        raise ArgumentError(f'hub.load: source={source!r} must be "github" or "local"')
    if kind == "github":
        raise HubError(f"hub.load: code is not downloaded; help: clone {repo_or_dir}, and pass the path of its folder with source='local'")
    return hub.load(repo_or_dir, model, *args, **kwargs)


def list(github: Any, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check", verbose: bool = True) -> Any:
    """The names of the functions that a folder's hubconf.py offers. Args: github: the folder; the others as of `load`.

    Errors: HubError for what is no folder with a hubconf.py
    """
    return hub.list(github)


def help(github: Any, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check") -> str:
    """The docstring of one of them. Args: github: the folder; the others as of `load`. Errors: those of `load`"""
    return hub.help(github, model)
