"""BLAKE2b and SHA-256 from the interpreter itself.

`hashlib` loads the library of OpenSSL first, which takes longer than hashing all that a process ever asks the cache for; the
same functions are in small modules of CPython, under names that changed with its versions. Where they are not, it is `hashlib`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashlib import blake2b, sha256
else:
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    try:
        from _sha2 import sha256  # since Python 3.12
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256



def sha256_of_much(data: Any) -> Any:
    """SHA-256 of OpenSSL, which uses a processor's instructions for it: for megabytes."""
    import hashlib

    return hashlib.sha256(data)


__all__ = ["blake2b", "sha256", "sha256_of_much"]
