"""The one way in which this house brings a file here: from http, https or a local place, checked by its SHA-256, whole or not at all."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from tengen.base.digest import sha256
from tengen.base.errors import DownloadError
from tengen.base.files import open_regular, replacing

PART = 1 << 18  # bytes that are read at a time
MOST = 1 << 40  # bytes of a file; a server that sends more is not heard to the end


def digest_of(path: str | os.PathLike) -> str:
    """The SHA-256 of a regular file, in hexadecimal digits. Errors as `open_regular`."""
    h = sha256()
    with open_regular(path) as fd:
        while part := os.read(fd, PART):
            h.update(part)
    return h.hexdigest()


def checked_digest(given: Any) -> str:
    """A SHA-256 as 64 small hexadecimal digits. ValueError for another text."""
    text = str(given).lower()
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ValueError(f"sha256={given!r} is not a SHA-256; help: 64 hexadecimal digits, as `sha256sum FILE` prints them")
    return text


def fetch(url: str, path: str | os.PathLike, digest: str, *, timeout: float = 60, progress: bool = True) -> Path:
    """The file at `path`, which is brought there from `url` unless it is there with this SHA-256 already.

    Args:
        url: http://, https://, file:// or a path. timeout: seconds for which a server may be silent. progress: show a bar on a
            terminal, where tqdm is installed and takes more than a moment.

    Errors: DownloadError where it cannot be had, or has another SHA-256; what was at `path` is as it was.
    """
    path, digest = Path(path), checked_digest(digest)
    if path.exists() and digest_of(path) == digest:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    h = sha256()
    try:
        with _opened(url, timeout) as source, replacing(path) as f, _bar(url, source, progress) as bar:
            done = 0
            while part := source.read(PART):
                h.update(part)
                f.write(part)
                done += len(part)
                bar.update(len(part))
                if done > MOST:
                    raise DownloadError(f"{url} does not end: {done} bytes came")
            if h.hexdigest() != digest:
                raise DownloadError(
                    f"{url} has the SHA-256 {h.hexdigest()} ({done} bytes), and {digest} was expected; it was not kept. Help: it is "
                    "incomplete, or another file than was meant"
                )
    except (OSError, ValueError) as e:
        if isinstance(e, DownloadError):
            raise
        raise DownloadError(f"{url} cannot be brought to {path}: {e}; help: put the file there yourself") from e
    return path


def _opened(url: str, timeout: float) -> Any:
    """A file or an answer of a server to read from."""
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme in ("", "file"):
        return open(local_path(url), "rb")
    if scheme not in ("http", "https"):
        raise DownloadError(f"{url}: only http, https, file and paths are read")
    import urllib.request

    return urllib.request.urlopen(url, timeout=timeout)


def local_path(url: str) -> str:
    """The path that a file:// URL names; a path as it is."""
    if not url.startswith("file://"):
        return url
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise DownloadError(f"{url}: file:// names a file of this machine; help: file:///folder/name")
    return unquote(parts.path)


class _Silent:
    """A bar that is not shown."""

    def update(self, n: int) -> None:
        pass

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *exc: Any) -> None:
        pass


def _bar(url: str, source: Any, wanted: bool) -> Any:
    if not wanted or not sys.stderr.isatty():
        return _Silent()
    try:
        from tqdm import tqdm
    except ImportError:
        return _Silent()
    length = getattr(source, "length", None)  # of an answer of a server
    return tqdm(total=length, desc=url.rpartition("/")[2], unit="B", unit_scale=True, unit_divisor=1024, delay=1, leave=False)
