"""Reading with a time limit what is read in the calling process: a stream, and everything where a loader has no workers.

In: an iterator. Out: its items, each asked for when it is wanted, or `WorkerTimeout`. A thread reads. It is given up when it
does not answer, because nothing can end it from outside: it ends with the read at which it hangs, or with the process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Any

from tengen.data.workers import WorkerTimeout


def within(items: Iterator[Any], timeout: float, what: str) -> Iterator[Any]:
    """The same items.

    Args:
        timeout: seconds that may pass until an item is there; 0 reads in the calling thread and waits for ever.
        what: says in the error what was waited for.

    >>> list(within(iter([1, 2]), 5, "a number"))
    [1, 2]
    """
    if timeout == 0:
        yield from items
        return
    wanted: SimpleQueue = SimpleQueue()
    read: SimpleQueue = SimpleQueue()
    threading.Thread(target=_serve, args=(items, wanted, read), daemon=True, name="tengen-data-reader").start()
    try:
        while True:
            wanted.put(True)
            try:
                error, item = read.get(timeout=timeout)
            except Empty:
                raise WorkerTimeout(f"DataLoader: waited {timeout} s for {what}") from None
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item
    finally:
        wanted.put(False)


def _serve(items: Iterator[Any], wanted: SimpleQueue, read: SimpleQueue) -> None:
    """Reads an item whenever one is wanted, until one raises or none is wanted any more."""
    while wanted.get():
        try:
            item = next(items)
        except BaseException as e:  # StopIteration among them: whoever waits must hear of the end
            read.put((e, None))
            return
        read.put((None, item))
