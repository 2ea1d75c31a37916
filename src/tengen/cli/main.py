"""The command ``tengen``: look at a model file, profile it, tune it, compile it for another machine, check the result, tidy the
cache, and see whether all that works here.

An error is one line on stderr and exit code 1 (2 for a wrong command line). Without a terminal the output is plain text.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from click.shell_completion import get_completion_class

from tengen.base.errors import ConfigError
from tengen.base.version import VERSION
from tengen.cli.common import HELP, plain_errors
from tengen.cli.doctor import doctor
from tengen.cli.files import IMPORTERS, read_model
from tengen.cli.networks import network_of, shapes_of
from tengen.cli.plan import plan
from tengen.cli.run import run
from tengen.cli.serve import serve
from tengen.codegen.targets import TARGET_NAMES, Target
from tengen.deploy.compile import compile_model
from tengen.deploy.dump import dump_model
from tengen.deploy.emulators import CannotRun, runner
from tengen.deploy.extents import parse_range
from tengen.deploy.loader import load_graph
from tengen.deploy.packages import FORMS, package
from tengen.deploy.run import linked_by
from tengen.deploy.verify import random_inputs
from tengen.deploy.verify import verify as verify_artifact
from tengen.interop import onnx as onnx_files
from tengen.interop import tflite as tflite_files
from tengen.ir.text import print_graph
from tengen.profiling.profiler import profile as profiler
from tengen.profiling.result import SORTS, Result
from tengen.runtime import cache as kernel_cache
from tengen.runtime import native, report
from tengen.runtime.pack import FOLDER, generic_targets
from tengen.tuning.tuner import tune as tune_model
from tengen.utils.summary import summary as summarise

COULD_NOT_RUN = 3  # exit code of `verify`; 2 is click's, for a wrong command line


def _extents(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, int]:
    """``--extent batch=8`` as a table."""
    found = {}
    for text in given:
        name, _, n = text.partition("=")
        if not name or not n.isdecimal():
            raise click.BadParameter(f"{text!r} is not of the form batch=8")
        found[name] = int(n)
    return found


def _ranges(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, int | range]:
    """``--extent batch=8``, or ``--extent batch=1..64``, as a table."""
    found = {}
    for text in given:
        name, _, n = text.partition("=")
        try:
            found[name] = parse_range(n)
        except ConfigError as e:
            raise click.BadParameter(f"{text!r} is not of the form batch=8 or batch=1..64") from e
    return found


_extent_or_range = click.option(
    "--extent", "extents", multiple=True, callback=_ranges, metavar="NAME=N|A..B[:STEP]",
    help="A number for an extent that is open, or a range: then it is an argument of the C function.",
)  # fmt: skip


_extent = click.option(
    "--extent", "extents", multiple=True, callback=_extents, metavar="NAME=N", help="A number for an extent that is open."
)


def _table(rows: Sequence[tuple[str, str]]) -> None:
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        click.echo(f"{click.style(f'{name:<{width}}', bold=True)}  {value}")


def _size(n: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= scale:
            return f"{n / scale:.1f} {unit}"
    return f"{n} bytes"


@click.group(context_settings=HELP)
@click.version_option(VERSION, "--version", prog_name="tengen", message="%(prog)s %(version)s")
def main() -> None:
    """Tengen: the kernels that trained a model are the ones you ship."""


@main.command()
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--graph", is_flag=True, help="Also print the whole graph.")
@click.option("--weights", is_flag=True, help="Also list every weight.")
@plain_errors
def info(model: Path, graph: bool, weights: bool) -> None:
    """Shows what the file MODEL holds: inputs, outputs, ops, weights. The file is checked whole; nothing in it is run. One that ends in
    .onnx or .tflite is shown as the model that it becomes."""
    m = read_model(model)
    ops = ", ".join(f"{n} {op}" for op, n in sorted(m.ops().items(), key=lambda r: (-r[1], r[0])))
    rows = [("model", m.name)]
    rows += [("input", repr(p)) for p in m.inputs] + [("output", repr(p)) for p in m.outputs]
    rows += [("state", f"{s.name}: {s.read.type!r}") for s in m.graph.states.values()]
    rows += [
        ("nodes", f"{len(m.graph.nodes)}: {ops}" if ops else "0"),
        ("weights", f"{m.n_parameters:,} numbers in {len(m.graph.constants) + len(m.graph.states)} tensors"),
        *([("schedules", f"{len(m.schedules)}, tuned")] if m.schedules else []),
        *([("bytes", f"{m.bytes:,}"), ("sha-256", m.checksum)] if m.checksum else []),
    ]
    _table(rows)
    if weights:
        click.echo()
        _table([(c.name, repr(c.value.type)) for c in m.graph.constants.values()])
    if graph:
        click.echo()
        click.echo(print_graph(m.graph))


@main.command()
@click.argument("network")
@click.option(
    "--shape", "shapes", multiple=True, required=True, callback=shapes_of, metavar="N,C,H,W",
    help="The shape of an input; again for more inputs.",
)
@plain_errors
def summary(network: str, shapes: list[tuple[int, ...]]) -> None:
    """Shows the modules of NETWORK: what each returns, holds and computes.

    NETWORK is a name in tengen.models, or MODULE:NAME or FILE.py:NAME of a network, or of a function or class that makes one without
    arguments. That code is run. It is called with zeros, in evaluation.

    \b
        tengen summary resnet18 --shape 1,3,224,224
        tengen summary net.py:Net --shape 8,28
    """
    click.echo(repr(summarise(network_of(network), input_shapes=shapes)))


@main.command("import")
@click.argument("source", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="The file to write; default: SOURCE with the ending .tgn.")
@_extent
@plain_errors
def import_(source: Path, out: Path | None, extents: dict[str, int]) -> None:
    """Makes a model file of the ONNX or TFLite file SOURCE. Extents that have names stay open, unless --extent batch=8 gives them a number."""
    model = IMPORTERS.get(source.suffix, onnx_files.load)(source, extents)
    written = dump_model(model, out or source.with_suffix(".tgn"))
    _table([(written.file, f"{_size(written.bytes)}, {written.n_nodes} nodes"), *(("input", repr(p)) for p in written.inputs)])


@main.command()
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="The file to write; default: MODEL with the ending .onnx.")
@click.option("--opset", type=click.IntRange(7), help="Of ONNX's operators; default: the lowest that can say the model.")
@click.option("--for", "runtime", type=click.Choice(list(onnx_files.RUNTIMES)), help="Who will read it: what that does not take is an error.")
@click.option("--quantized", type=click.Choice(onnx_files.QUANTIZED), default="qdq", help="How an ONNX file says products of 8-bit integers.")
@plain_errors
def export(model: Path, out: Path | None, opset: int | None, runtime: str | None, quantized: str) -> None:
    """Writes the file MODEL as an ONNX file, which onnxruntime and others run; or, where OUT ends in .tflite, as a TFLite file."""
    target = out or model.with_suffix(".onnx")
    if target.suffix == ".tflite":
        tflite_files.save(load_graph(model), target)
    else:
        onnx_files.save(load_graph(model), target, opset, runtime=runtime, quantized=quantized)
    click.echo(f"{target}: {_size(target.stat().st_size)}")


def _target(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """The name of a target; one that is near to what was given is named where there is none of that name."""
    try:
        return None if given is None else given if Target.named(given) else None
    except ConfigError as e:
        raise click.BadParameter(str(e)) from e


def _complete_target(context: click.Context, parameter: click.Parameter, given: str) -> list[str]:
    return [name for name in TARGET_NAMES if name.startswith(given)]


@main.command()
@plain_errors
def targets() -> None:
    """Lists what `tengen compile --target` compiles for: what is promised of results, how that was tested, and what runs it here.

    \b
        tengen targets
    """
    names: dict[Target, list[str]] = {}
    for name in TARGET_NAMES[1:]:
        names.setdefault(Target.named(name), []).append(name)
    for target, called in names.items():
        level = target.level
        click.echo(click.style(", ".join(called), bold=True))
        try:
            here = f"{runner(target)[1]}, linked by {linked_by(target)}"
        except CannotRun as e:
            here = f"not: {e}"
        words = " ".join([level.cpu, *(f for f in level.features.split(",") if f[:1] == "+")])
        rows = [("processor", f"{words}, {target.system.name}"), ("results", level.bits), ("tested", level.tested), ("runs here", here)]
        _table([(f"  {what}", text) for what, text in rows])


@main.command("compile")
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--target", callback=_target, shell_complete=_complete_target, default="x86-64-v3", show_default=True,
    help="What to compile for; `tengen targets` lists them.",
)
@click.option("-o", "--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="The folder to write to.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads that the program may use.")
@click.option("--name", help="Prefix of the C names and files; default: the model's name.")
@click.option("--pool", is_flag=True, help="Also make a function that runs with the application's threads, and may be cancelled.")
@click.option("--as", "forms", multiple=True, type=click.Choice(list(FORMS)), help="Also write it in this form; may be given several times.")
@_extent_or_range
@plain_errors
def compile_(
    model: Path, target: str, out: Path, threads: int, name: str | None, pool: bool, forms: Sequence[str],
    extents: dict[str, int | range],
) -> None:  # fmt: skip
    """Compiles the file MODEL to an object file, a C header, a weights blob and an example in C.

    A model whose batch is open (tengen info shows names for such extents) is compiled for one, --extent batch=8, or for a
    range, --extent batch=1..64 or --extent height=32..512:32. MODEL may be an ONNX or TFLite file.
    """
    a = compile_model(read_model(model), target, out, name, threads, extents, pool)
    _table(
        [
            ("object", f"{a.files[0]} ({_size(a.object_bytes)}, {a.code_bytes:,} bytes of code in {a.kernels} kernels)"),
            ("header", a.files[1]),
            ("weights", f"{a.files[2]} ({_size(a.weights_bytes)})"),
            ("example", a.files[3]),
            ("target", f"{a.target}, {a.threads} {'thread' if a.threads == 1 else 'threads'}"),
            ("workspace", _size(a.workspace_bytes)),
            *((form, path) for form in dict.fromkeys(forms) for path in package(a, form)),
        ]
    )


@main.command()
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", help="The artifact's name, where FOLDER holds several.")
@click.option("--target", callback=_target, shell_complete=_complete_target, help="What it must be for.")
@click.option("--runs", type=click.IntRange(1), default=4, show_default=True, help="Sets of random inputs to compare.")
@click.option("--seed", type=int, default=0, show_default=True, help="Where the random inputs begin.")
@plain_errors
def verify(model: Path, folder: Path, name: str | None, target: str | None, runs: int, seed: int) -> None:
    """Runs the artifact in FOLDER and compares its outputs with those of the file MODEL, bit by bit. Where they differ, the first op whose
    bits differ is named.

    Exit code 0 when all bits are equal, 1 when a bit differs or on an error, 3 when it cannot be run here (it then says why).
    """
    v = verify_artifact(model, folder, name=name, runs=runs, seed=seed, target=target)
    if v.status == "skipped":
        click.echo(f"{v.target}: skipped: {v.how}")
        sys.exit(COULD_NOT_RUN)
    where = "" if v.status == "different" else f" ({v.how})"
    click.echo(f"{v.target}: {v.runs} runs, {v.values} values, {v.differing} differ{where}")
    if v.status == "different":
        raise click.ClickException(f"the artifact is not the model: {v.how}")


@main.command()
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--repeat", type=click.IntRange(1), default=20, show_default=True, help="How often it is run.")
@click.option("--threads", type=click.IntRange(1), help="Threads that it may use; default: what the machine allows.")
@click.option("--sort", type=click.Choice(SORTS), default="time", show_default=True, help="Which kernels come first.")
@click.option("--limit", type=click.IntRange(1), default=40, show_default=True, help="How many kernels are shown.")
@click.option("--seed", type=int, default=0, show_default=True, help="Where the random inputs begin.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="A JSON file for ui.perfetto.dev to write.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="A picture of the timeline to write; needs matplotlib.")
@_extent
@plain_errors
def profile(
    model: Path, repeat: int, threads: int | None, sort: str, limit: int, seed: int, trace: Path | None, plot: Path | None,
    extents: dict[str, int],
) -> None:  # fmt: skip
    """Runs the file MODEL on random inputs and shows the time of every kernel, its arithmetic and its memory traffic.

    The columns are explained in docs/profile.md. The model runs twice before anything counts.
    """
    if plot and importlib.util.find_spec("matplotlib") is None:
        raise click.ClickException("--plot needs matplotlib; help: pip install matplotlib")
    if threads:
        native.set_threads(threads)
    m = read_model(model)
    inputs = random_inputs(m.at(**extents), 1, seed)[0]
    m(*inputs)
    with profiler():  # compiles what records
        m(*inputs)
    with profiler() as p:
        for _ in range(repeat):
            m(*inputs)
    if sys.stdout.isatty() and importlib.util.find_spec("rich"):
        _colourful(p, sort, limit)
    else:
        click.echo(p.table(sort, limit))
    if trace:
        p.save(trace)
    if plot:
        p.plot(plot)


@main.command()
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True, help="How long, about.")
@click.option("--threads", type=click.IntRange(1), help="Threads that it may use; default: what the machine allows.")
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="A file for the model with what was found.")
@plain_errors
def tune(model: Path, seconds: float, threads: int | None, out: Path | None) -> None:
    """Makes the kernels of the file MODEL faster on this machine by measuring, and keeps every bit.

    What is found goes into the cache for every later program, and into the file OUT. docs/tune.md says what may change.
    """
    if threads:
        native.set_threads(threads)
    m = read_model(model)
    click.echo(repr(tune_model(m, seconds)))
    if out:
        click.echo(f"{dump_model(m, out).file}: {len(m.schedules)} schedules")


def _colourful(p: Result, sort: str, limit: int) -> None:
    """The table of a profile in a terminal, through rich."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    head, body = p.cells(sort, limit)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in head:
        ends = name in (head[0], head[-1])
        table.add_column(name, justify="left" if ends else "right", overflow="fold" if ends else "ellipsis", no_wrap=not ends)
    for cells, row in zip(body, p.sorted(sort)):
        reached = row.share_of(p.roof)
        style = "green" if reached >= 0.6 else "yellow" if reached >= 0.3 else "red"
        place = Text(cells[-1], style="dim")
        if row.where and row.where.startswith("/"):  # models hold no folders
            place.stylize(f"link file://{row.where.rpartition(':')[0]}")
        table.add_row(*(Text(c, style=style if name == "roof" else "") for name, c in zip(head[:-1], cells)), place)
    console = Console(highlight=False)
    console.print(table)
    console.print(Text(p.summary(limit)))


@main.group()
def cache() -> None:
    """The compiled kernels that are kept on disk: this user's, and those that come with Tengen."""


@cache.command("info")
@plain_errors
def cache_info() -> None:
    """Shows where the kernels are, how many, and how large: this user's, and the packs that come with Tengen.

    A pack is in use, for other processors than this, or stale: Tengen has changed since it was made.

    \b
        tengen cache info
    """
    i = kernel_cache.info()
    rows = [("path", str(i.path)), ("kernels", str(i.entries)), ("bytes", _size(i.bytes)), ("limit", _size(i.limit))]
    rows += [("programs", str(i.programs)), ("tuned", f"{i.schedules} targets and numbers of threads")]
    _table([*rows, *report.pack_rows()])


@cache.command("clear")
@plain_errors
def cache_clear() -> None:
    """Removes this user's kernels, kept programs, and what tuning found; kernels are compiled again when they are needed. Packs stay:
    they are part of Tengen.

    \b
        tengen cache clear
    """
    click.echo(f"{_size(kernel_cache.clear())} removed")


_only = click.option("--only", multiple=True, metavar="TEXT", help="Only calls whose names have this text (or another's); default: all.")
_list = click.option("--list", "listed", is_flag=True, help="List the names of the calls, and do nothing.")


def _packing() -> ModuleType:
    from tengen.cli import packing  # which brings every network: two commands need them

    return packing


def _jobs(only: Sequence[str], listed: bool) -> list:
    """The jobs with one of some texts in their names, all if there are none; none after they were listed."""
    every = _packing().jobs()
    if missing := [text for text in only if not any(text in job.name for job in every)]:
        raise click.BadParameter(f"no calls have {missing[0]!r} in their names; help: --list shows them", param_hint="--only")
    found = [job for job in every if not only or any(text in job.name for text in only)]
    if listed:
        click.echo("\n".join(job.name for job in found))
    return [] if listed else found


@cache.command("warm")
@_only
@_list
@plain_errors
def cache_warm(only: Sequence[str], listed: bool) -> None:
    """Compiles what people call first into this user's cache: common ops, and first training steps of common networks.

    For an installation from sources, which comes without packs; afterwards programs start as quickly as with them. It takes some
    minutes, is stopped by Ctrl-C, and goes on where it stopped.

    \b
        tengen cache warm
        tengen cache warm --only ResNet-18 --only float32
    """
    if run := _jobs(only, listed):
        w = _packing().warm(run)
        click.echo(f"{w.compiled} modules compiled, {w.found} were there, in {w.seconds:.1f} s")


@cache.command("pack")
@click.option("--target", "names", multiple=True, type=click.Choice([t.name for t in generic_targets()]), help="A target; default: all.")
@click.option("-o", "--out", type=click.Path(file_okay=False, path_type=Path), help="The folder to write to; default: Tengen's own.")
@_only
@_list
@plain_errors
def cache_pack(names: Sequence[str], out: Path | None, only: Sequence[str], listed: bool) -> None:
    """Compiles what people call first for every generic target, into the packs that come with Tengen: for who packages it.

    A process uses the pack for the best target that its processor includes, where the pack was made from the same sources and by the
    same compiler as are there; `make wheel` puts packs into the wheel.

    \b
        tengen cache pack
        tengen cache pack --target x86-64-v3 --out packs
    """
    targets = [t for t in generic_targets() if not names or t.name in names]
    if run := _jobs(only, listed):
        written = _packing().write_packs(run, targets, out or Path(FOLDER))
        _table([(t.name, f"{path}: {n} programs, {_size(size)}") for t, (path, n, size) in zip(targets, written)])
        if (size := sum(size for *_, size in written)) > (most := _packing().MOST_BYTES):
            raise click.ClickException(f"the packs have {_size(size)}, more than {_size(most)}; help: shorten the list of calls")


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--prompt", required=True, help="The text to continue; - reads it from standard input.")
@click.option("--tokens", type=click.IntRange(1), default=100, show_default=True, help="How many tokens to add at most.")
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True, help="0 takes the likeliest token.")
@click.option("--top-k", type=click.IntRange(1), help="Draw only among so many tokens.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="Draw only among the likeliest of this probability together.")
@click.option("--min-p", type=click.FloatRange(0, 1), help="Draw only among tokens so many times as likely as the likeliest.")
@click.option("--repetition-penalty", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Above 1: new words.")
@click.option("--stop", multiple=True, help="A text to end behind.")
@click.option("--seed", type=int, default=0, show_default=True, help="Where the draws begin.")
@click.option("--echo", is_flag=True, help="Show the prompt, too.")
@plain_errors
def generate(folder: Path, prompt: str, tokens: int, seed: int, stop: Sequence[str], echo: bool, **sampling: Any) -> None:
    """Continues a text with the network in FOLDER, which is in Hugging Face's layout: config.json, safetensors, tokenizer.json. What is
    written appears as it is made; equal arguments give equal texts on every machine.

    \b
        tengen generate ./TinyLlama --prompt "Once upon a time" --tokens 50
        tengen generate ./gpt2 --prompt - --temperature 0.8 --top-p 0.95 --seed 1 < prompt.txt
    """
    from tengen.models.pretrained import from_pretrained, load_tokenizer

    words, net = load_tokenizer(folder), from_pretrained(folder)
    if not hasattr(net, "stream"):
        raise click.ClickException(f"{folder}: a {type(net).__name__} does not write texts")
    text = sys.stdin.read() if prompt == "-" else prompt
    ids = words.encode(text).ids
    if not ids:
        raise click.ClickException("the prompt has no tokens; help: at least one word")
    count = min(tokens, net.context - len(ids))
    if count < 1:
        raise click.ClickException(f"the prompt has {len(ids)} tokens, and the network sees {net.context}")
    shown, new = "", []
    begin = words.decode(ids) if echo else ""
    click.echo(begin, nl=False)
    for token in net.stream([ids], count, seed=seed, stop=stop, decode=words.decode, **sampling):
        new.append(int(token[0]))
        now = words.decode(ids + new)[len(words.decode(ids)) :] if echo else words.decode(new)
        if not now.endswith("\ufffd"):  # a part of a character
            click.echo(now[len(shown) :], nl=False)
            shown = now
    click.echo()


@main.command()
@plain_errors
def config() -> None:
    """Shows versions, processor, threads, cache and every knob: what a bug report needs."""
    _table(report.config_table())


@main.command(context_settings=HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Prints what SHELL needs to complete this command's words.

    \b
        eval "$(tengen completion bash)"        in ~/.bashrc
        tengen completion fish > ~/.config/fish/completions/tengen.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "tengen", "_TENGEN_COMPLETE").source())


main.add_command(doctor)
main.add_command(plan)
main.add_command(run)
main.add_command(serve)


if __name__ == "__main__":
    main()
