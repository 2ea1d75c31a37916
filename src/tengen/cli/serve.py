"""`tengen serve`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tengen.base.errors import ConfigError
from tengen.cli.common import HELP, plain_errors
from tengen.cli.files import read_model
from tengen.deploy.model import Port
from tengen.runtime.process import set_threads
from tengen.serving import Server


@click.command(context_settings=HELP)
@click.argument("models", metavar="[NAME=]MODEL...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at; 0.0.0.0 is every one of this machine.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="The port; 0 is a free one.")
@click.option("--max-batch", type=click.IntRange(1), help="Join requests that wait to runs of up to N examples (needs an open batch).")
@click.option("--wait", type=click.FloatRange(0), default=0.0, metavar="SECONDS", help="How long a request may wait for others to join it.")
@click.option("--runs", type=click.IntRange(1), default=1, show_default=True, help="Runs of a model that may happen at the same time.")
@click.option("--threads", type=click.IntRange(1), help="Threads that compute.  [default: as many as processors]")
@click.option("--max-waiting", type=click.IntRange(1), default=1024, show_default=True, help="Requests that may wait; others get 503.")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="After so long a request gets 504.  [default: never]")
@click.option("--budget", metavar="BYTES", help="Memory of all runs of a model at once, as 400MB.")
@click.option("--max-request", metavar="BYTES", default="64MB", show_default=True, help="The largest body of a request.")
@click.option("--backend", help="Who computes parts of the models, as openvino or onnxruntime.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True,
              help="What is written to standard error; info has a line for each request.")  # fmt: skip
@plain_errors
def serve(
    models: Sequence[str], host: str, port: int, max_batch: int | None, wait: float, runs: int, threads: int | None, max_waiting: int,
    timeout: float | None, budget: str | None, max_request: str, backend: str | None, log_level: str,
) -> None:  # fmt: skip
    """Answers requests over HTTP with the files MODEL, by the Open Inference Protocol that KServe, Triton and their clients speak.

    A model's name is its file's without the ending, unless it is given. The port has no passwords: --host other than this machine
    belongs behind a proxy that has. Ctrl-C or SIGTERM ends it, when what has begun is answered.

    \b
        tengen serve digits.tgn
        curl localhost:8000/v2/models/digits
    """
    if threads is not None:
        set_threads(threads)
    how = {"max_batch": max_batch, "wait": wait, "threads": runs, "max_waiting": max_waiting, "timeout": timeout, "budget": budget}
    named = {name: read_model(f) for name, f in _files(models).items()}
    server = Server(named, host=host, port=port, max_request=max_request, backend=backend, **how)
    server.warm_up()
    for name, p in server.predictors.items():
        click.echo(f"{server.url}/v2/models/{name}/infer  takes {_ports(p.model.inputs)}, gives {_ports(p.model.outputs)}")
    server.run(log_level)


def _files(models: Sequence[str]) -> dict[str, Path]:
    """Files by the names that they have or are given. Errors: ConfigError where two have the same."""
    found: dict[str, Path] = {}
    for text in models:
        name, given, path = text.rpartition("=")
        name = name if given else Path(path).stem
        if name in found:
            raise ConfigError(f"{found[name]} and {path} are both called {name}; help: give one another name, as other={path}")
        found[name] = Path(path)
    return found


def _ports(ports: Sequence[Port]) -> str:
    return ", ".join(map(repr, ports))
