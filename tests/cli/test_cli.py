"""The command line, through click's runner and as a process of its own."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from needs import of_zigs_libraries

import tengen
from tengen import Tensor, trace
from tengen.base.config import KNOBS, config
from tengen.base.version import VERSION
from tengen.cli import doctor
from tengen.cli.later import Later
from tengen.cli.main import main
from tengen.deploy.verify import Verified
from tengen.runtime import cache
from tengen.runtime.report import config_table


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model file: softmax(x @ w + b)."""
    import tengen.functional as F

    rng = np.random.default_rng(0)
    w, b = (Tensor(rng.standard_normal(s).astype("f4")) for s in ((6, 4), (4,)))
    f = trace(lambda x: F.softmax(x @ w + b, axis=1), example_input=Tensor(np.ones((2, 6), "f4")), name="soft")
    path = tmp_path_factory.mktemp("model") / "soft.tgn"
    f.dump(path, arg_names=["data"], output_names=["probability"])
    return path


@pytest.fixture
def small_cache(tmp_path, monkeypatch):
    """A cache of its own, for processes as well: what tells the size of a cache looks at every entry, and that of all tests has 100,000."""
    folder = str(tmp_path / "small cache")
    monkeypatch.setenv("TENGEN_CACHE_DIR", folder)
    with config.scope(cache_dir=folder):
        yield


def run(*args, code=0):
    result = CliRunner().invoke(main, list(map(str, args)))
    assert result.exit_code == code, (result.output, result.exception)
    assert "\x1b" not in result.output and "Traceback" not in result.output
    return result.output


def test_version():
    assert run("--version") == f"tengen {VERSION}\n"


@pytest.mark.parametrize(
    "command",
    ["", "info", "summary", "compile", "profile", "tune", "verify", "cache", "cache info", "cache clear", "cache warm", "cache pack", "config",
     "doctor", "completion", "plan", "serve"],
)
def test_help(command):
    text = run(*command.split(), "--help")
    assert text.startswith("Usage: ") and len(text.splitlines()) > 4
    for option, rest in re.findall(r"^  (?:-\w, )?(--[\w-]+)(.*(?:\n {20,}.*)*)", text, re.M):
        assert len(rest.strip()) > 10, f"{option} says nothing"


def later(group, before=()):
    """(its words, a command that stands for one which is imported when it is called) of all below a group."""
    for name, command in group.commands.items():
        words = (*before, name)
        if isinstance(command, Later):
            yield words, command
            command = command.command()
        if isinstance(command, click.Group):
            yield from later(command, words)


def test_what_help_and_completion_show_is_what_the_commands_say():
    found = dict(later(main))
    assert {("info",), ("cache",), ("cache", "pack"), ("run",)} <= found.keys()
    for words, command in found.items():
        there = command.command()
        assert there.name == words[-1] and command.get_short_help_str(200) == there.get_short_help_str(200), words
        assert isinstance(there, click.Group) or "Usage: " in run(*words, "--help")


@pytest.mark.parametrize("words, wanted", [
    ("in", ["info"]), ("cache c", ["clear"]), ("compile x --target wasm", ["wasm32", "wasm32-exact"]), ("info --gr", ["--graph"]),
])  # fmt: skip
def test_words_are_completed(words, wanted):
    env = {**os.environ, "_TENGEN_COMPLETE": "bash_complete", "COMP_WORDS": f"tengen {words}", "COMP_CWORD": str(len(words.split()))}
    program = "from tengen.cli.main import main; main(prog_name='tengen')"
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == wanted, done.stderr


def test_summary(tmp_path):
    source = "import tengen.module as M\ndef small():\n    return M.Sequential(M.Linear(4, 3), M.ReLU())\nready = small()\n"
    (tmp_path / "net.py").write_text(source)
    for name in ("small", "ready"):
        text = run("summary", f"{tmp_path}/net.py:{name}", "--shape", "2,4")
        assert re.search(r"^  0: Linear\(.*\) +2x3 +15 +30.000 OPs$", text, re.M) and "inputs       f32[2,4]" in text
    assert "parameters" in run("summary", "resnet18", "--shape", "1x3x32x32")
    for args, words in (
        (("resnet18", "--shape", "a"), "'a' is not of the form"), (("nothing", "--shape", "1"), "help: a name in tengen.models"),
        (("no_such_module:Net", "--shape", "1"), "No module named"), (("resnet18",), "Missing option '--shape'"),
    ):  # fmt: skip
        assert words in run("summary", *args, code=2)


def test_info(model):
    text = run("info", model)
    for part in ("soft", "data: f32[2,6]", "probability: f32[2,4]", "1 matmul", "28 numbers in 2 tensors", "sha-256"):
        assert part in text
    assert f"{os.path.getsize(model):,}" in text
    assert "captured0" in run("info", model, "--weights") and "matmul(data" in run("info", model, "--graph")


def test_profile(model, tmp_path):
    text = run("profile", model, "--repeat", 3, "--threads", 1, "--sort", "flops", "--trace", tmp_path / "t.json")
    head, *rows, last = text.splitlines()
    assert head.split() == ["kernel", "calls", "time", "share", "each", "GFLOP/s", "GB/s", "roof", "line"]
    assert rows and all(r.startswith("soft: ") and r.split()[2] == "3" and "test_cli.py:" in r for r in rows)
    assert last.startswith(f"{3 * len(rows)} launches of {len(rows)} kernels") and "roof with 1 thread:" in last
    assert (tmp_path / "t.json").read_text().startswith('{"traceEvents"')
    assert len(run("profile", model, "--repeat", 1, "--limit", 1).splitlines()) == 3


def test_compile_and_verify(model, tmp_path):
    text = run("compile", model, "--target", "aarch64", "-o", tmp_path / "arm", "--threads", 2, "--name", "net")
    assert sorted(os.listdir(tmp_path / "arm")) == ["net.bin", "net.h", "net.o", "net_main.c"]
    assert "bytes of code in" in text and "aarch64, 2 threads" in text
    run("compile", model, "--target", "aarch64", "-o", tmp_path / "one")
    run("compile", model, "-o", tmp_path / "x86")
    assert (tmp_path / "x86" / "soft.o").exists()
    for folder in ("one", "x86", "arm"):
        if folder == "arm":
            of_zigs_libraries("aarch64")  # a program with threads is linked with a C library
        verified(model, tmp_path / folder, "16 values, 0 differ")


def verified(model, folder, found):
    """Exit code 0 when all bits are equal, 3 where the artifact cannot be run."""
    result = CliRunner().invoke(main, ["verify", str(model), str(folder), "--runs", "2"])
    assert (result.exit_code, found in result.output, "skipped: " in result.output) in ((0, True, False), (3, False, True)), result.output


def test_verify_tells_its_answers_apart(model, tmp_path, monkeypatch):
    assert "No such file" in run("verify", tmp_path / "none.tgn", tmp_path, code=3)
    assert "holds no artifact" in run("verify", model, tmp_path, code=3)
    run("compile", model, "-o", tmp_path)
    with monkeypatch.context() as m:
        found = Verified("aarch64", "different", 2, 16, 3, "run 0: 1.0 here, 2.0 there")
        m.setattr("tengen.cli.artifacts.verify_artifact", lambda *_, **__: found)
        text = run("verify", model, tmp_path, code=1)
        assert "16 values, 3 differ" in text and "the artifact is not the model: run 0" in text
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "skipped: nothing here links a program" in run("verify", model, tmp_path, code=3)


def test_targets():
    text = run("targets")
    assert "wasm32\n" in text and "no fused multiply-add" in text and text.count("  results ") == text.count("  tested ") >= 14
    assert "did you mean 'aarch64'?" in run("compile", "x", "--target", "arm64", "-o", "y", code=2)


def test_forms_of_an_artifact(model, tmp_path):
    text = run("compile", model, "--target", "aarch64", "--pool", "--as", "cmake", "--as", "static", "--name", "net", "-o", tmp_path)
    assert "net.cmake" in text and "libnet.a" in text and "net_run_with(" in (tmp_path / "net.h").read_text()
    refused = run("compile", model, "--target", "aarch64", "--as", "javascript", "-o", tmp_path, code=1)
    assert "is for aarch64; help: tengen compile --target wasm32 or" in refused
    assert "Invalid value for '--as'" in run("compile", model, "--as", "exe", "-o", tmp_path, code=2)


def test_doctor(small_cache, monkeypatch):
    text = run("doctor")
    rows = {line.split()[1]: line.split()[0] for line in text.splitlines()}
    assert rows["kernels"] == "ok" and rows["cache"] in ("ok", "note") and {"python", "processor", "threads", "extras"} <= rows.keys()
    monkeypatch.setattr("tengen.cli.doctor.softmax", lambda x, axis: x)
    assert "are wrong by" in run("doctor", code=1)


def test_doctor_names_what_pip_installs(monkeypatch):
    """It named modules, among them PIL, which pip does not know by this name, and safetensors, which nothing here imports."""
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {"PIL": "pillow", "prometheus_client": "prometheus-client"}
    for extra, (modules, _) in doctor.EXTRAS.items():
        brought = {re.split(r"[>=\[;]", text)[0].strip() for text in extras[extra]}
        assert {names.get(m, m) for m in modules} <= brought, extra
    monkeypatch.setattr(doctor, "EXTRAS", {"serve": (("json", "not_there_7"), "models over HTTP"), "data": (("json",), "pictures")})
    found = [text for what, _, text in doctor.findings() if what == "extras"]
    assert found == ["not installed, as pip install 'tengen[serve]' does it: serve (models over HTTP)"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    assert "_TENGEN_COMPLETE" in run("completion", shell)


@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64"])
def test_compile_and_verify_a_picture(target, tmp_path):
    """A convolution's result, which lies channels-last where it is computed; for one of its batches."""
    import tengen.module as M

    net = trace(M.Conv2d(3, 8, 3).eval(), dynamic_axes={0: "batch"})
    net(Tensor(np.zeros((2, 3, 8, 6), "f4")))
    net.dump(tmp_path / "conv.tgn", arg_names=["image"], output_names=["picture"])
    run("compile", tmp_path / "conv.tgn", "--target", target, "--extent", "batch=3", "-o", tmp_path / "out")
    verified(tmp_path / "conv.tgn", tmp_path / "out", f"{2 * 3 * 8 * 6 * 4} values, 0 differ")
    assert "float32[3, 8, 6, 4]" in next((tmp_path / "out").glob("*.h")).read_text()


def test_errors_are_one_line(model, tmp_path):
    (tmp_path / "bad").write_bytes(model.read_bytes()[:-1])
    for args, message in [
        (("info", tmp_path / "none"), "No such file"),
        (("info", tmp_path / "bad"), "damaged"),
        (("compile", model, "-o", tmp_path / "bad" / "x"), "Not a directory"),
        (("compile", model, "-o", tmp_path / "x", "--name", "a-b"), "cannot begin names in C"),
    ]:
        text = run(*args, code=1)
        assert text.startswith("Error: ") and message in text and text.count("\n") == 1, text
    run("compile", model, "-o", tmp_path, "--target", "vax", code=2)
    run("compile", model, code=2)


def test_cache(tmp_path, small_cache):
    config_table()  # facts of the machine and of the sources, which are remembered on the disk when they are first asked for
    with config.scope(cache_dir=str(tmp_path / "cache")):
        cache.put("key", b"x" * 2000)
        text = run("cache", "info")
        assert str(tmp_path / "cache") in text and re.search(r"kernels +1\n", text) and re.search(r"^pack ", text, re.M)
        assert run("cache", "clear") == "2.0 kB removed\n"
        assert re.search(r"kernels +0\n", run("cache", "info"))


def test_config(capsys, small_cache):
    tengen.show_config()
    shown = capsys.readouterr().out
    assert dict(config_table())["tengen"] == VERSION and all(row[0] in shown for row in KNOBS.values())
    assert re.search(r"machine code +\d+ from the pack, \d+ from the cache, \d+ compiled", run("config"))
    assert run("config").splitlines()[0].split() == ["tengen", VERSION]


def test_as_a_process_with_an_empty_path(model, tmp_path, small_cache):
    env = {**os.environ, "PATH": ""}
    command = [sys.executable, "-m", "tengen.cli"]
    for args in (["info", model], ["compile", model, "-o", tmp_path], ["cache", "info"]):
        done = subprocess.run([*command, *args], env=env, capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "" and "\x1b" not in done.stdout, done.stderr
    done = subprocess.run([*command, "info", tmp_path / "no"], env=env, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["tengen", "tengen.cli", "tengen.cli.main"])
def test_every_module_that_names_the_command_is_the_command(name, tmp_path):
    def command(*args):
        return subprocess.run([sys.executable, "-W", "error", "-m", name, *args], capture_output=True, text=True)

    assert command("--help").stdout.startswith(f"Usage: python -m {name} [OPTIONS] COMMAND")
    done = command("info", str(tmp_path / "none"))
    assert done.returncode == 1 and "No such file" in done.stderr and done.stderr.count("\n") == 1
    if name == "tengen":  # all are one function, which need not be asked everything three times
        assert command("--version").stdout == f"tengen {VERSION}\n"
        assert command("no").returncode == command().returncode == 2


def test_who_reads_the_first_lines_alone_sees_no_error(small_cache):
    command = [sys.executable, "-m", "tengen", "cache", "info"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 1
