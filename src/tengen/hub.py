"""`tengen.hub`: networks that a folder offers in its `hubconf.py`, and their weights by name, checked. MegEngine's names.

In: a folder on this machine, or a file of it. Out: what its functions build. Importing a hubconf.py runs it: take folders that you
trust. Code is not downloaded; weights are, as data, with a SHA-256 that the code names.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tengen.base.config import cache_home
from tengen.base.download import checked_digest, digest_of, fetch, local_path
from tengen.base.errors import DownloadError, HubError
from tengen.deploy.checkpoint import load as load_checkpoint

__all__ = ["help", "import_module", "list", "load", "load_serialized_obj_from_url", "pretrained"]

CONF = "hubconf.py"
_folders: set[Path] = set()  # from which modules were imported


def import_module(repo_info: Any, git_host: str = "", use_cache: bool = True, commit: str | None = None, protocol: str = "") -> ModuleType:
    """The module `hubconf.py` of a folder, which is imported anew. While it is, modules beside it can be imported by their names.

    Args: repo_info: a folder with a hubconf.py, or a Python file. The others are MegEngine's, for repositories on a server.
    Errors: HubError for what is neither: a repository "owner/name" is cloned by you first.
    """
    path = Path(repo_info)
    file = path if path.suffix == ".py" else path / CONF
    if not file.is_file():
        what = f"{repo_info!r} is no folder with a {CONF}" if path.exists() or not _names_repository(str(repo_info)) else (
            f"{repo_info!r} names a repository, and code is not downloaded"
        )  # fmt: skip
        raise HubError(f"{what}; help: clone the repository, and pass the path of its folder")
    spec = importlib.util.spec_from_file_location(f"tengen_hub_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = file.parent.resolve()
    _set_aside_others(folder)
    _folders.add(folder)
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def _set_aside_others(folder: Path) -> None:
    """Forgets modules of other folders that have the names of modules of this one, which would be taken for them."""
    for name, m in [*sys.modules.items()]:
        file, top = Path(getattr(m, "__file__", None) or "/"), name.partition(".")[0]
        if folder not in file.parents and not _folders.isdisjoint(file.parents):
            if (folder / f"{top}.py").is_file() or (folder / top).is_dir():
                del sys.modules[name]


def _names_repository(text: str) -> bool:
    return text.count("/") == 1 and not text.startswith((".", "/", "~"))


def _entries(module: ModuleType) -> dict[str, Callable]:
    return {n: f for n, f in vars(module).items() if not n.startswith("_") and callable(f)}


def _entry(module: ModuleType, repo_info: Any, entry: str) -> Callable:
    found = _entries(module)
    if entry not in found:
        raise HubError(f"{repo_info}: {CONF} has no {entry!r}; help: one of {', '.join(sorted(found)) or 'nothing'}")
    return found[entry]


def list(repo_info: Any, git_host: str = "", use_cache: bool = True, commit: str | None = None, protocol: str = "") -> Any:
    """The names of the functions that a folder's hubconf.py offers. Arguments and errors as `import_module`."""
    return sorted(_entries(import_module(repo_info)))


def help(repo_info: Any, entry: str, git_host: str = "", use_cache: bool = True, commit: str | None = None, protocol: str = "") -> str:
    """The docstring of one of them. Arguments and errors as `load`."""
    return inspect.getdoc(_entry(import_module(repo_info), repo_info, entry)) or ""


def load(
    repo_info: Any, entry: str, *args: Any, git_host: str = "", use_cache: bool = True, commit: str | None = None, protocol: str = "",
    **kwargs: Any,
) -> Any:  # fmt: skip
    """What a function of a folder's hubconf.py returns for these arguments: mostly a network.

    Args: repo_info: as of `import_module`. entry: the function's name. git_host, use_cache, commit, protocol: MegEngine's, for
        repositories on a server; not passed on.
    Errors: HubError for another folder, or a name that it does not offer.
    """
    return _entry(import_module(repo_info), repo_info, entry)(*args, **kwargs)


def load_serialized_obj_from_url(url: str, model_dir: Any = None, *, sha256: str | None = None) -> Any:
    """What `tengen.save` wrote, from http, https, file:// or a path.

    Args:
        url: where it is. model_dir: the folder in which a download is kept; default: tengen/hub in the user's caches. sha256: the
            file's SHA-256, which a download needs; a local file is checked where it is given.

    Errors: DownloadError where it cannot be had or has another SHA-256; FileFormatError for a file of another kind, as
        MegEngine's and PyTorch's pickles.
    """
    if url.startswith(("http://", "https://")):
        if sha256 is None:
            raise DownloadError(f"{url}: which bytes are meant? help: sha256='...', as `sha256sum FILE` prints it")
        folder = Path(model_dir) if model_dir is not None else _cache()
        return load_checkpoint(fetch(url, folder / f"{sha256[:16]}-{url.rpartition('/')[2]}", sha256))
    path = local_path(url)
    if sha256 is not None and (found := digest_of(path)) != checked_digest(sha256):
        raise DownloadError(f"{path} has the SHA-256 {found}, and {sha256} was expected")
    return load_checkpoint(path)


def _cache() -> Path:
    home = cache_home()
    if home is None:
        raise DownloadError("this user has no home to keep downloads in; help: model_dir='folder'")
    return Path(home) / "tengen" / "hub"


def pretrained(url: str, sha256: str | None = None) -> Callable:
    """A decorator for functions that build a network: with ``pretrained=True`` it gets its weights from `url`.

    Args: url, sha256: as of `load_serialized_obj_from_url`.

    >>> import os, tempfile, tengen
    >>> from tengen import module as M
    >>> path = os.path.join(tempfile.mkdtemp(), "weights.tgn")
    >>> _ = tengen.save(M.Linear(2, 3).state_dict(), path)
    >>> @pretrained(path)
    ... def net():
    ...     return M.Linear(2, 3)
    >>> (net(pretrained=True).weight.numpy() == tengen.load(path)["weight"]).all()
    np.True_
    """

    def decorate(build: Callable) -> Callable:
        @functools.wraps(build)
        def call(*args: Any, pretrained: bool = False, **kwargs: Any) -> Any:
            net = build(*args, **kwargs)
            if pretrained:
                net.load_state_dict(load_serialized_obj_from_url(url, sha256=sha256))
            return net

        return call

    return decorate
