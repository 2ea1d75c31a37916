"""A web server for models: Starlette routes the requests, uvicorn speaks HTTP, a `Predictor` for each model runs them.

In: models, or files of them. Out: answers of the Open Inference Protocol (`protocol.py`), and counters for Prometheus. Bodies are read and
written outside of the event loop, so that a large one keeps nobody waiting.
"""

from __future__ import annotations

import asyncio
import copy
import importlib
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from os import PathLike
from typing import TYPE_CHECKING, Any

from tengen.base.errors import ArgumentError, ConfigError, TengenError
from tengen.base.record import NamedTuple
from tengen.base.sizes import byte_size
from tengen.base.version import VERSION
from tengen.deploy.model import Model
from tengen.deploy.predictor import Overloaded, Predictor
from tengen.serving import protocol
from tengen.serving.protocol import Request, RequestError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request as WebRequest
    from starlette.responses import Response
    from starlette.routing import Route

JSON_SIZE = "Inference-Header-Content-Length"  # header: bytes of the JSON text at the beginning of a body
BINARY = "application/octet-stream"
REFUSED = (RequestError, ConfigError, ValueError, TypeError, IndexError, ArithmeticError)  # kinds of Tengen's errors that a request causes


class Server:
    """Models behind HTTP, by the Open Inference Protocol, version 2: KServe's, Triton's and other clients of it can ask.

    Args:
        models: by the names under which they are asked for (letters, digits, ``_ . -``): files that `trace.dump` wrote, models, or
            `Predictor`s of your own, which stay open when the server ends.
        host, port: where to listen; port 0 is a free one, which `url` names. Whoever reaches the port may ask: the protocol has no
            passwords, so another host than this one belongs behind a proxy that has.
        max_request: bytes of the largest body, as an int or a text such as "64MB".
        how: arguments of `Predictor` for models that are none: threads, max_batch, wait, max_waiting, timeout, budget, backend.

    Errors: `ArgumentError` without the packages of ``pip install 'tengen[serve]'``; `ConfigError` for names and sizes that are none and
        models that the protocol has no datatype for; OSError where the port is taken.

    Numerics: a response has the bits of ``model(request)``, in JSON too: each float is written with the digits that give it back.

    >>> import tengen, os, tempfile, json, urllib.request
    >>> f = tengen.trace(lambda x: x * 2, example_input=tengen.Tensor([1.0, 2.0]))
    >>> with tempfile.TemporaryDirectory() as d:
    ...     file = os.path.join(d, "double.tgn")
    ...     _ = f.dump(file, arg_names=["x"], output_names=["y"])
    ...     with tengen.serving.Server({"double": file}, port=0) as server:
    ...         x = {"name": "x", "datatype": "FP32", "shape": [2], "data": [0.5, 3]}
    ...         body = json.dumps({"inputs": [x]}).encode()
    ...         with urllib.request.urlopen(f"{server.url}/v2/models/double/infer", body) as answer:
    ...             json.load(answer)["outputs"]
    [{'name': 'y', 'datatype': 'FP32', 'shape': [2], 'data': [1.0, 6.0]}]
    """

    def __init__(
        self, models: Mapping[str, str | PathLike | Model | Predictor], *, host: str = "127.0.0.1", port: int = 8000,
        max_request: int | str = "64MB", **how: Any,
    ):  # fmt: skip
        _check_packages()
        if not models:
            raise ConfigError("Server: models is empty; help: {'name': 'file.tgn'}")
        if odd := [name for name in models if not re.fullmatch(r"[\w.-]+", name, re.ASCII)]:
            raise ConfigError(f"Server: {odd[0]!r} can't be a part of an address; help: letters, digits, '_', '.' and '-'")
        if type(port) is not int or not 0 <= port < 65536:
            raise ConfigError(f"Server: port={port!r} must be a whole number from 0 (any that is free) to 65535")
        try:
            self.max_request = byte_size(max_request, "max_request")
        except ValueError as e:
            raise ConfigError(f"Server: {e}") from None
        self._opened = ExitStack()  # what ends with the server
        try:
            self.predictors = {name: self._predictor(m, how) for name, m in models.items()}
            self.metadata = {name: protocol.metadata(name, p.model) for name, p in self.predictors.items()}
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = self._opened.enter_context(socket.create_server((host, port), family=family, backlog=2048))
        except BaseException:
            self.close()
            raise
        self.app = _application(self)
        self._thread: threading.Thread | None = None

    def _predictor(self, model: Any, how: dict[str, Any]) -> Predictor:
        return model if isinstance(model, Predictor) else self._opened.enter_context(Predictor(model, **how))

    @property
    def url(self) -> str:
        """Where it listens, as ``http://127.0.0.1:8000``."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def warm_up(self) -> None:
        """Runs each model once on zeros, so that no request waits for its compiling."""
        for p in self.predictors.values():
            p.warm_up()

    def run(self, log_level: str = "info") -> None:
        """Answers requests until the process is told to end (Ctrl-C, SIGTERM); then what has begun is answered, and the server closed.

        Args: log_level: of uvicorn, whose log goes to standard error.
        """
        try:
            self._uvicorn(log_level).run(sockets=[self._socket])
        finally:
            self.close()

    def close(self) -> None:
        """Stops listening, and closes the predictors that it has made. A second time does nothing."""
        self._opened.close()

    def __enter__(self) -> Server:
        """Answers requests in a thread, until the end of the block."""
        running = self._uvicorn("warning")
        self._thread = threading.Thread(target=running.run, kwargs={"sockets": [self._socket]}, daemon=True, name="serve")
        self._opened.callback(self._thread.join)
        self._opened.callback(setattr, running, "should_exit", True)
        self._thread.start()
        return self  # the socket listens already: a request waits until uvicorn is ready

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _uvicorn(self, log_level: str) -> Any:
        import uvicorn

        log = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
        log["handlers"]["access"]["stream"] = "ext://sys.stderr"  # with the rest of the log: what is printed is for who started the server
        return uvicorn.Server(uvicorn.Config(self.app, log_config=log, log_level=log_level, lifespan="off", server_header=False))

    def __repr__(self) -> str:
        return f"<Server of {', '.join(self.predictors)} at {self.url}>"


def _check_packages() -> None:
    """Errors: ArgumentError where a package that a server needs is not installed."""
    try:
        for name in ("starlette", "uvicorn", "prometheus_client"):
            importlib.import_module(name)
    except ImportError as e:
        needed = "starlette, uvicorn and prometheus-client"
        raise ArgumentError(f"a server needs the packages {needed} ({e}); help: pip install 'tengen[serve]'") from None


# -- answers -----------------------------------------------------------------------------------------------------------------


class _Failure(NamedTuple):
    status: int
    text: str


def _failed(failure: _Failure) -> Response:
    from starlette.responses import JSONResponse

    later = {"Retry-After": "1"} if failure.status == 503 else None
    return JSONResponse({"error": failure.text}, failure.status, later)


def _application(server: Server) -> Starlette:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def about(request: WebRequest) -> Response:
        return JSONResponse({"name": "tengen", "version": VERSION, "extensions": ["binary_tensor_data"]})

    async def live(request: WebRequest) -> Response:
        return JSONResponse({"live": True})

    async def ready(request: WebRequest) -> Response:
        return JSONResponse({"ready": True})

    async def metrics(request: WebRequest) -> Response:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return Response(generate_latest(_Counters(server)), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def no_such_page(request: WebRequest, e: Exception) -> Response:
        assert isinstance(e, HTTPException)
        return _failed(_Failure(e.status_code, f"{request.method} {request.url.path}: {e.detail}; help: docs/serving.md lists what there is"))

    async def broken(request: WebRequest, e: Exception) -> Response:
        return _failed(_Failure(500, f"{type(e).__name__}: {e}"))

    routes = [Route("/v2", about), Route("/v2/health/live", live), Route("/v2/health/ready", ready), Route("/metrics", metrics)]
    return Starlette(routes=[*routes, *_routes_of_models(server)], exception_handlers={HTTPException: no_such_page, Exception: broken})


def _routes_of_models(server: Server) -> list[Route]:
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    def of_model(answer: Any) -> Any:
        """An endpoint that gets the name of a model that is there."""

        async def endpoint(request: WebRequest) -> Response:
            name, version = request.path_params["name"], request.path_params.get("version", "1")
            if name not in server.predictors:
                return _failed(_Failure(404, f"there is no model {name!r}; there are {', '.join(server.predictors)}"))
            if version != "1":
                return _failed(_Failure(404, f"{name} has version 1 alone, {version!r} is not there"))
            found = await answer(request, name)
            return _failed(found) if isinstance(found, _Failure) else found

        return endpoint

    async def infer(request: WebRequest, name: str) -> Response | _Failure:
        found = await _infer(server, request, name)
        if isinstance(found, _Failure):
            return found
        body, json_size = found
        if json_size is None:
            return Response(body, media_type="application/json")
        return Response(body, media_type=BINARY, headers={JSON_SIZE: str(json_size)})

    async def metadata(request: WebRequest, name: str) -> Response:
        return JSONResponse(server.metadata[name])

    async def model_ready(request: WebRequest, name: str) -> Response:
        return JSONResponse({"name": name, "ready": True})

    routes = []
    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        routes += [
            Route(path, of_model(metadata)), Route(f"{path}/ready", of_model(model_ready)),
            Route(f"{path}/infer", of_model(infer), methods=["POST"]),
        ]  # fmt: skip
    return routes


async def _infer(server: Server, request: WebRequest, name: str) -> tuple[bytes, int | None] | _Failure:
    """An answer's body and the bytes of its JSON text (`protocol.response`)."""
    from starlette.concurrency import run_in_threadpool

    predictor = server.predictors[name]
    body = await _body(request, server.max_request)
    if isinstance(body, _Failure):
        return body

    def ask() -> tuple[Request, Any]:
        size = request.headers.get(JSON_SIZE)
        if size is not None and not (size.isascii() and size.isdecimal()):
            raise RequestError(f"{JSON_SIZE} is {size!r}, a number of bytes is wanted")
        asked = protocol.parse(body, None if size is None else int(size), predictor.model)
        return asked, predictor.predict_async(**asked.arrays)

    try:
        asked, future = await run_in_threadpool(ask)
        patience = predictor.timeout if asked.timeout is None else asked.timeout
        try:
            results = await asyncio.wait_for(asyncio.wrap_future(future), patience)
        except TimeoutError:
            return _Failure(504, f"{name}: no answer within {patience} s")
        return await run_in_threadpool(protocol.response, name, predictor.model, asked, results)
    except Overloaded as e:
        return _Failure(503, str(e))
    except TengenError as e:
        return _Failure(400 if isinstance(e, REFUSED) else 500, str(e))


async def _body(request: WebRequest, most: int) -> bytes | _Failure:
    """A request's body, of at most so many bytes."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        return _Failure(415, f"the body is encoded by {encoding}, which is not supported; help: send it as it is")
    too_large = _Failure(413, f"a request may have {most:,} bytes; help: Server(max_request=...), tengen serve --max-request")
    said = request.headers.get("Content-Length", "0")
    if said.isascii() and said.isdecimal() and int(said) > most:
        return too_large
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > most:
            return too_large
    return bytes(found)


class _Counters:
    """What Prometheus asks for: the statistics of each predictor."""

    def __init__(self, server: Server):
        self.server = server

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        rows = {
            "requests": "Requests that were answered.",
            "failed": "Runs that ended with an error.",
            "examples": "Examples in the requests that were answered.",
            "runs": "Runs of the model.",
            "seconds": "Seconds in these runs.",
        }
        for field, says in rows.items():
            family = CounterMetricFamily(f"tengen_{field}", says, labels=["model"])
            for name, p in self.server.predictors.items():
                family.add_metric([name], getattr(p.statistics, field))
            yield family
        waiting = GaugeMetricFamily("tengen_waiting", "Requests that wait for a run.", labels=["model"])
        for name, p in self.server.predictors.items():
            waiting.add_metric([name], p.waiting)
        yield waiting
