"""`Server` and `Client`: a table of small values that all processes see, for what programs want to tell one another outside of steps.

The server is a thread of one process, which listens for calls of XML-RPC; values are numbers, texts, bytes, lists and dictionaries of such, and
nothing is unpickled. As everything here it trusts the network that it runs on.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from tengen.base.config import config
from tengen.base.errors import DistributedError

HELD = 5.0  # seconds that a call waits at the server; a client asks again until its time-out


def _listener(host: str, port: int) -> Any:
    """What listens for calls, each in a thread of its own. XML-RPC is imported here and in clients: it brings HTTP, e-mail and TLS, which
    take a tenth of the start of a process that never calls."""
    from socketserver import ThreadingMixIn
    from xmlrpc.server import SimpleXMLRPCServer

    class Listener(ThreadingMixIn, SimpleXMLRPCServer):
        daemon_threads = True
        allow_reuse_address = True

    return Listener((host, port), logRequests=False, allow_none=True)


class _Methods:
    """What clients call: a table, whose readers wait until there is a value."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._came: dict[str, int] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: Any) -> bool:
        """Gives a key a value."""
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()
        return True

    def get(self, key: str, remove: bool) -> list:
        """[value], or [] where there is none within some seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, HELD):
                return []
            return [self._values.pop(key) if remove else self._values[key]]

    def come(self, key: str) -> int:
        """One more has come to a barrier: how many have, ever."""
        with self._changed:
            self._came[key] = self._came.get(key, 0) + 1
            self._changed.notify_all()
            return self._came[key]

    def all_came(self, key: str, wanted: int) -> bool:
        """Whether so many have come, after some seconds at most."""
        with self._changed:
            return self._changed.wait_for(lambda: self._came.get(key, 0) >= wanted, HELD)


class Server:
    """Listens for clients, in a thread, until `close` or the end of the process.

    Args: port: 0 is any that is free. host: the address that it listens at; by default this machine alone reaches it.
    Attributes: host, py_server_port: where clients find it. mm_server_port: MegEngine's second server, which there is none of here: 0.

    Errors: OSError for a port that is taken.

    >>> server = Server()
    >>> client = Client("localhost", server.py_server_port)
    >>> client.user_set("loss", 0.5)
    >>> client.user_get("loss")
    0.5
    >>> server.close()
    """

    mm_server_port = 0

    def __init__(self, port: int = 0, host: str = "localhost"):
        self._listener = _listener(host, port)
        self._listener.register_instance(_Methods())
        self.host, self.py_server_port = host, int(self._listener.server_address[1])
        self._thread = threading.Thread(target=self._listener.serve_forever, name="values of all processes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listens no more."""
        self._listener.shutdown()
        self._listener.server_close()


class Client:
    """Talks to a `Server`.

    Args: master_ip, port: where it listens.
    Errors: every method: DistributedError where it does not answer, and TypeError for values that are no plain data.
    """

    def __init__(self, master_ip: str, port: int):
        self.master_ip, self.port = master_ip, int(port)

    def _call(self, name: str, *args: Any) -> Any:
        from xmlrpc.client import Fault, ServerProxy

        try:
            with ServerProxy(f"http://{self.master_ip}:{self.port}/", allow_none=True, use_builtin_types=True) as proxy:
                return getattr(proxy, name)(*args)
        except Fault as e:
            raise DistributedError(f"the server at {self.master_ip}:{self.port} refused {name}: {e.faultString}") from e
        except OSError as e:
            raise DistributedError(
                f"the server at {self.master_ip}:{self.port} does not answer ({e}); help: distributed.Server(port) in one process, and "
                "the same address in all"
            ) from e

    def _waited(self, what: str, ask: Any) -> Any:
        start = time.monotonic()
        while True:
            found = ask()
            if found:
                return found
            if time.monotonic() - start > config.distributed_timeout:
                raise DistributedError(
                    f"waited {config.distributed_timeout:g} s for {what}; help: look at who should give it, or raise TENGEN_DISTRIBUTED_TIMEOUT"
                )

    def user_set(self, key: str, val: Any) -> None:
        """Gives a key a value, for all to see."""
        from xmlrpc.client import Binary

        try:
            self._call("set", key, Binary(bytes(val)) if isinstance(val, (bytes, bytearray)) else val)
        except (TypeError, OverflowError) as e:
            raise TypeError(f"user_set({key!r}): {e}; help: numbers of 32 bits, texts, bytes, lists and dictionaries of such") from e

    def user_get(self, key: str) -> Any:
        """The value of a key; waits until there is one."""
        return self._waited(f"the value of {key!r}", lambda: self._call("get", key, False))[0]

    def user_pop(self, key: str) -> Any:
        """The value of a key, which it has no more; waits until there is one."""
        return self._waited(f"the value of {key!r}", lambda: self._call("get", key, True))[0]

    def group_barrier(self, key: str, size: int) -> None:
        """Returns when `size` clients have come to the barrier of this name."""
        came = self._call("come", key)
        wanted = -(-came // size) * size  # of this round of it
        self._waited(f"{size} clients at the barrier {key!r}", lambda: self._call("all_came", key, wanted))
