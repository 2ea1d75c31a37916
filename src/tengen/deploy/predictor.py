"""Predictor: a loaded model for an application, which many threads call at once.

In: requests, as NumPy arrays, tensors, or what speaks DLPack, whose memory is read where it lies if it is dense. Out: NumPy arrays over the
results' own memory. At most so many
runs happen at once, and use at most so much memory; others wait, for as long as they may. Where the model's inputs have an open batch, small
requests that wait are joined to one run, and large ones are split: by the numerics contract no example depends on what is computed
beside it, so each request has the bits that it has alone.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import field
from math import inf
from numbers import Real
from os import PathLike
from typing import Any

import numpy as np

from tengen.base.device import cpu
from tengen.base.errors import ConfigError, TengenError
from tengen.base.record import record
from tengen.base.sizes import byte_size
from tengen.deploy.backends import Backend, partition
from tengen.deploy.loader import load_graph
from tengen.deploy.model import Model
from tengen.loops.lang import Expr
from tengen.tensor import Tensor, from_numpy
from tengen.tensor.dlpack import from_dlpack

Answer = Any  # a NumPy array, or a tuple of them in the order of the model's outputs


class Overloaded(TengenError):
    """More requests wait than a `Predictor` lets wait."""


@record(eq=False)
class _Request:
    """Arguments in the order of the model's inputs, and who waits for what becomes of them."""

    tensors: list[Tensor]
    extents: dict[str, int]
    size: int  # examples
    future: Future = field(default_factory=Future)


@record
class Statistics:
    """What a `Predictor` has done: requests answered and failed, examples in them, runs of the model, seconds in these runs."""

    requests: int = 0
    failed: int = 0
    examples: int = 0
    runs: int = 0
    seconds: float = 0.0


class Predictor:
    """A model that an application asks for predictions, from any thread.

    Args:
        model: a file that `trace.dump` wrote, or a `Model` without states.
        threads: how many runs may happen at the same time, each in scratch memory of its own. All share Tengen's threads, so one run at
            a time is quickest for models with much work; more are for small ones. A call of `predict` that need not wait, for others, for a
            time or for memory, runs in the thread that calls; others run in threads of the predictor.
        max_batch: where axis 0 of each input and output is one open extent: requests that wait are joined up to so many examples,
            and larger ones are split into parts of so many. Each example must not depend on others of its batch, as it does in a mean
            over the batch. Default: each request is a run of its own.
        wait: seconds for which a request may wait for others to be joined with it, when no run is in its way.
        max_waiting: requests that may wait; one more is refused with `Overloaded`.
        timeout: seconds after which `predict` gives up, unless a call says otherwise; default: never.
        backend: who computes the parts of the model that it takes, as "openvino" or "onnxruntime" (`tengen.backends.partition`); Tengen
            computes the rest. `model` is then a `Partitioned`, whose `report()` says who computes what.
        budget: bytes, as an int or a text such as ``"400MB"``, for scratch memory and results of all runs that happen at once.

    Errors: `ConfigError` for a model with states, a batch that is not open, a number that means nothing, or a budget that no run fits.

    Numerics: each request has the bits of ``model(request)``. With a back end, which may sum in an order that depends on the batch,
        joined requests (max_batch) may differ by roundings.

    >>> import tengen, os, tempfile, numpy as np
    >>> f = tengen.trace(lambda x: x * 2, dynamic_axes={"x": {0: "batch"}})
    >>> _ = f(tengen.Tensor([[1.0, 2.0]]))
    >>> with tempfile.TemporaryDirectory() as d:
    ...     _ = f.dump(os.path.join(d, "f.tgn"), arg_names=["x"])
    ...     with tengen.Predictor(os.path.join(d, "f.tgn"), max_batch=8) as p:
    ...         p(np.ones((3, 2), np.float32)).tolist()
    [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]
    """

    def __init__(
        self, model: str | PathLike | Model, *, threads: int = 1, max_batch: int | None = None, wait: float = 0.0,
        max_waiting: int = 1024, timeout: float | None = None, budget: int | str | None = None, backend: str | Backend | None = None,
    ):  # fmt: skip
        self.model = model if isinstance(model, Model) else load_graph(model)
        self.model.runs_again()
        self.model = self.model if backend is None else partition(self.model, backend)
        counts = {"threads": threads, "max_waiting": max_waiting} | ({} if max_batch is None else {"max_batch": max_batch})
        if odd := [f"{k}={n!r}" for k, n in counts.items() if type(n) is not int or n < 1]:
            raise ConfigError(f"Predictor: {odd[0]} must be a whole number of at least 1")
        if not _is_seconds(wait) or wait == inf:
            raise ConfigError(f"Predictor: wait={wait!r} must be a finite number of seconds, at least 0")
        if wait and max_batch is None:
            raise ConfigError(f"Predictor: wait={wait!r} is for requests that are joined, which needs max_batch")
        _check_timeout(timeout)
        if any(s.written is not None for s in self.model.kept_graph.states.values()):
            raise ConfigError(f"Predictor: {self.model.name} has states that each call updates, so that answers depend on their order")
        if max_batch is not None:
            _check_open_batch(self.model)
        self.threads, self.max_batch, self.wait, self.max_waiting, self.timeout = threads, max_batch, float(wait), max_waiting, timeout
        self.budget = None if budget is None else _bytes(budget)
        self.statistics = Statistics()
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Nothing waits, and nothing runs: at first, and in a forked child, which has none of its parent's threads."""
        self._process = os.getpid()
        self._waiting: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._used = self._running = 0

    # -- asking ----------------------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Answer:
        """`predict`."""
        return self.predict(*args, timeout=timeout, **kwargs)

    def predict(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Answer:
        """The model's results for these inputs, in order or by name.

        Args:
            timeout: seconds; default: that of the predictor.
        Returns: a read-only NumPy array over the result's memory, or a tuple of them.
        Errors: as the model's; TimeoutError; `Overloaded`; `ConfigError` for a timeout that is no number of seconds.
        """
        _check_timeout(timeout)
        patience = self.timeout if timeout is None else timeout
        tensors = self._checked(args, kwargs)
        size = _examples(tensors)
        if patience is None and (self.max_batch is None or size <= self.max_batch) and self._may_run_here():
            return self._run_here(tensors, size)
        future = self._future(tensors, size)
        try:
            return future.result(None if patience is None or patience > threading.TIMEOUT_MAX else float(patience))
        except TimeoutError:
            if future.done():  # the model's own
                raise
            began = not future.cancel()
            what = "its run goes on, and what it gives is dropped" if began else f"{len(self._waiting)} others wait; it was taken back"
            raise TimeoutError(f"{self.model.name}: no answer within {patience} s: {what}") from None

    def predict_async(self, *args: Any, **kwargs: Any) -> Future:
        """The same without waiting: a `concurrent.futures.Future`. Inputs are checked now; their memory is read when
        the run comes, and must not change until it is done."""
        tensors = self._checked(args, kwargs)
        return self._future(tensors, _examples(tensors))

    def warm_up(self, **extents: int) -> None:
        """Runs the model once on zeros, so that the first request waits for no compiling.

        Args: numbers of the model's open extents; default: 1 each.
        """
        from_names = {name: extents.pop(name, 1) for name in self.model.extents}
        if extents:
            raise ConfigError(f"{self.model.name} has the open extents {', '.join(self.model.extents) or 'none'}, not {', '.join(extents)}")
        number = lambda d: d if isinstance(d, int) else from_names[str(d.attr)]
        self.predict(*(np.zeros([number(d) for d in p.shape], p.dtype.numpy) for p in self.model.inputs))

    def close(self) -> None:
        """Answers what waits, and ends. A request afterwards is an error."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for t in self._threads:
            t.join()
        with self._changed:
            self._changed.wait_for(lambda: not self._running)

    def __enter__(self) -> Predictor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        s = self.statistics
        mean = f", {1e3 * s.seconds / s.runs:.2f} ms each" if s.runs else ""
        return f"<Predictor of {self.model.name}: {s.requests} requests, {s.runs} runs{mean}, {len(self._waiting)} waiting>"

    @property
    def waiting(self) -> int:
        """How many requests wait for a run now."""
        return len(self._waiting)

    def _checked(self, args: tuple, kwargs: dict[str, Any]) -> list[Tensor]:
        """Arguments in the order of the model's inputs. Errors: the model's, for what it does not take."""
        model = self.model
        return [model.argument(p, _tensor(x)) for p, x in zip(model.inputs, model.ordered(args, kwargs))]

    def _future(self, tensors: list[Tensor], size: int) -> Future:
        """What becomes of a request that is put in line, in parts where it is larger than `max_batch`."""
        model = self.model
        if self.max_batch is None or size <= self.max_batch:
            return self._ask([_Request(tensors, model.extents_of(tensors), size)])[0].future
        starts = range(0, size, self.max_batch)
        parts = [[t[i : i + self.max_batch] for t in tensors] for i in starts]
        return _joined([r.future for r in self._ask([_Request(p, model.extents_of(p), p[0].shape[0]) for p in parts])])

    # -- running in the thread that asks: no other thread is woken, which takes longer than a small network's run ----------
    def _may_run_here(self) -> bool:
        """Whether a request need not wait: a run begins in this thread, which `_run_here` ends. With a budget, or where others may be joined,
        it is put in line."""
        if self.budget is not None or self.wait:
            return False
        if os.getpid() != self._process:
            self._begin()
        with self._changed:
            if self._waiting or self._running >= self.threads or self._closed:
                return False
            self._running += 1
            return True

    def _run_here(self, tensors: list[Tensor], size: int) -> Answer:
        """The answer to a request that has a run of its own."""
        start, answered = time.perf_counter(), 0
        try:
            outs = _answers(self.model(*tensors), tensors)
            answered = 1
            return outs[0] if len(outs) == 1 else tuple(outs)
        finally:
            with self._changed:
                self._running -= 1
                self._count(start, answered, size * answered, not answered)
                if self._waiting or self._closed:
                    self._changed.notify_all()

    # -- running by threads of its own ---------------------------------------------------------------------------------------------------------
    def _ask(self, requests: list[_Request]) -> list[_Request]:
        """Puts requests in line."""
        if os.getpid() != self._process:
            self._begin()
        if self.budget is not None:
            for r in requests:
                self._check_budget(r)
        with self._changed:
            if self._closed:
                raise TengenError(f"the predictor of {self.model.name} is closed")
            if len(self._waiting) + len(requests) > self.max_waiting:
                n = len(self._waiting)
                raise Overloaded(f"{self.model.name}: {n} requests wait, at most {self.max_waiting} may; help: ask again later")
            self._waiting.extend(requests)
            if len(self._threads) < self.threads:
                self._threads.append(threading.Thread(target=self._work, daemon=True, name=f"predict {self.model.name}"))
                self._threads[-1].start()
            self._changed.notify_all()
        return requests

    def _check_budget(self, r: _Request) -> None:
        need = self.model.bytes_of_run(r.extents)
        assert self.budget is not None
        if need > self.budget:
            raise ConfigError(
                f"{self.model.name}: a run for {r.extents or 'its one size'} takes {need:,} bytes, the budget has {self.budget:,}; help: a "
                f"budget of at least {need:,}, or smaller requests (max_batch)"
            )

    def _work(self) -> None:
        """A thread: takes what waits, runs it, and begins again."""
        while (some := self._take()) is not None:
            group, need = some
            try:
                self._run(group)
            finally:
                with self._changed:
                    self._used -= need
                    self._running -= 1
                    self._changed.notify_all()

    def _take(self) -> tuple[list[_Request], int] | None:
        """(Requests for one run, its bytes), as soon as there are any and memory for them; None at the end."""
        with self._changed:
            while True:
                while self._waiting and self._waiting[0].future.cancelled():
                    self._waiting.popleft()
                if not self._waiting:
                    if self._closed:
                        return None
                    self._changed.wait()
                    continue
                if self.wait and self.max_batch and not self._closed:
                    self._linger()
                group = self._group()
                need = self.model.bytes_of_run(self._extents_of(group)) if self.budget is not None and group else 0
                room = self.budget is None or not self._running or self._used + need <= self.budget
                if group and room and self._running < self.threads:
                    for r in group:
                        self._waiting.remove(r)
                    self._used += need
                    self._running += 1
                    return group, need
                if group:
                    self._changed.wait()

    def _linger(self) -> None:
        """Waits a while for more requests."""
        end = time.monotonic() + self.wait
        while sum(r.size for r in self._waiting) < (self.max_batch or 0) and (left := end - time.monotonic()) > 0:
            self._changed.wait(left)

    def _group(self) -> list[_Request]:
        """The first request that waits, and others that can be joined with it."""
        group: list[_Request] = []
        most = self.budget
        for r in self._waiting:
            if r.future.cancelled():
                continue
            if not group:
                group.append(r)
            elif self.max_batch is None:
                break
            elif sum(x.size for x in group) + r.size <= self.max_batch and _fits(group[0], r):
                if most is not None and self.model.bytes_of_run(self._extents_of([*group, r])) > most:
                    break
                group.append(r)
        return group

    def _extents_of(self, group: list[_Request]) -> dict[str, int]:
        """The open extents of a run for some requests, which differ in their batch alone."""
        if len(group) == 1:
            return group[0].extents
        batch = str(self.model.inputs[0].shape[0].attr)  # it is open: `_check_open_batch`
        return group[0].extents | {batch: sum(r.size for r in group)}

    def _run(self, group: list[_Request]) -> None:
        """One run for some requests. Where it fails, each has a run of its own, so that one request's mistake is no other's."""
        group = [r for r in group if r.future.running() or r.future.set_running_or_notify_cancel()]
        if not group:
            return
        start = time.perf_counter()
        try:
            tensors = group[0].tensors
            if len(group) > 1:
                tensors = [_tensor(np.concatenate([r.tensors[i].numpy() for r in group])) for i in range(len(tensors))]
            outs = _answers(self.model(*tensors), tensors)
        except Exception as e:
            with self._changed:
                self._count(start, failed=len(group) == 1)
            if len(group) > 1:
                for r in group:
                    self._run([r])
            else:
                group[0].future.set_exception(e)
            return
        with self._changed:
            self._count(start, len(group), sum(r.size for r in group))
        at = 0
        for r in group:
            own = outs if len(group) == 1 else [o[at : at + r.size] for o in outs]
            at += r.size
            r.future.set_result(own[0] if len(own) == 1 else tuple(own))

    def _count(self, start: float, requests: int = 0, examples: int = 0, failed: bool = False) -> None:
        """Counts a run. The caller holds the lock, since several threads count."""
        s, seconds = self.statistics, time.perf_counter() - start
        s.runs, s.seconds, s.failed = s.runs + 1, s.seconds + seconds, s.failed + failed
        s.requests, s.examples = s.requests + requests, s.examples + examples


def _tensor(x: Any) -> Any:
    """A NumPy array, or what speaks DLPack, as a tensor over its memory where that is dense; anything else as it is."""
    if type(x) in (np.ndarray, np.memmap):
        return from_numpy(x, copy=not x.flags.aligned, device=cpu)
    return from_dlpack(x) if not isinstance(x, Tensor) and hasattr(x, "__dlpack__") else x


def _examples(tensors: list[Tensor]) -> int:
    """How many examples a request has."""
    return tensors[0].shape[0] if tensors and tensors[0].ndim else 1


def _answers(made: Any, tensors: list[Tensor]) -> list[np.ndarray]:
    """Results as arrays, with memory of their own where it is an argument's: its owner may change it."""
    given = [t._data for t in tensors]
    return [
        t.numpy().copy() if any(t._data is x for x in given) else t.numpy()
        for t in (made if isinstance(made, tuple) else (made,))
    ]


def _fits(a: _Request, b: _Request) -> bool:
    return all(x.shape[1:] == y.shape[1:] for x, y in zip(a.tensors, b.tensors))


def _check_open_batch(model: Model) -> None:
    """ConfigError unless axis 0 of all inputs and outputs is one open extent."""
    first = {p.shape[0] if p.shape else None for p in (*model.inputs, *model.outputs)}
    if len(first) != 1 or not isinstance(next(iter(first)), Expr):
        ports = ", ".join(map(repr, (*model.inputs, *model.outputs)))
        raise ConfigError(
            f"Predictor: max_batch needs one open extent along axis 0 of all inputs and outputs of {model.name}, which has {ports}; help: "
            "trace(f, dynamic_axes={'x': {0: 'batch'}})"
        )


def _joined(parts: list[Future]) -> Future:
    """A future of the parts' results, one after another along axis 0; its first error, where one fails."""
    whole: Future = Future()
    left = [len(parts)]
    lock = threading.Lock()

    def done(_: Future) -> None:
        with lock:
            left[0] -= 1
            last = not left[0]
        if not last or not whole.set_running_or_notify_cancel():
            return
        try:
            made = [p.result() for p in parts]
            several = isinstance(made[0], tuple)
            whole.set_result(tuple(map(np.concatenate, zip(*made))) if several else np.concatenate(made))
        except BaseException as e:
            whole.set_exception(e)

    for p in parts:
        p.add_done_callback(done)
    return whole


def _is_seconds(value: Any) -> bool:
    """Whether a value is a number of seconds that can be waited: no bool, no NaN, not negative."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_)) and value >= 0


def _check_timeout(timeout: Any) -> None:
    """Errors: ConfigError for a timeout that is neither None nor a number of seconds of at least 0."""
    if timeout is not None and not _is_seconds(timeout):
        raise ConfigError(f"Predictor: timeout={timeout!r} must be a number of seconds, at least 0, or None for no limit")


def _bytes(budget: int | str) -> int:
    """Bytes, of a number or a text with a unit."""
    try:
        if n := byte_size(budget, "budget"):
            return n
    except ValueError:
        pass
    raise ConfigError(f"budget={budget!r} must be a positive number of bytes, or a text such as '400MB' or '2GiB'")
