"""What the environment says: knobs, strangers among them, a user's home, and where the cache goes without one."""

import os
import pwd
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from tengen.base import config as knobs
from tengen.base.config import KNOBS, Config, config
from tengen.base.errors import ConfigError
from tengen.runtime import cache

HOME = pwd.getpwuid(os.getuid()).pw_dir


# ---- knobs -----------------------------------------------------------------------------------------------------------
def test_an_unknown_variable_is_a_warning_with_a_guess():
    with pytest.warns(RuntimeWarning, match=r"TENGEN_DEBIG is none of Tengen's and is ignored; did you mean TENGEN_DEBUG\?") as seen:
        assert Config({"TENGEN_DEBIG": "1", "OTHER": "1"}).debug == 0
    assert len(seen) == 1
    with pytest.warns(RuntimeWarning, match="is none of Tengen's and is ignored") as seen:
        assert Config({"TENGEN_DEBU": "", "TENGEN_ZZZZZZZZ": "", "TENGEN_DEBUG": "2"}).debug == 2
    assert [str(w.message).split("; ")[1] for w in seen] == [
        "did you mean TENGEN_DEBUG?", f"known are {', '.join(row[0] for row in KNOBS.values())}"
    ]  # fmt: skip


def test_it_is_said_once_for_all_processes():
    code = """
import multiprocessing, sys
def work(): import tengen.base.config
if __name__ == "__main__":
    import tengen, tengen.module
    p = multiprocessing.get_context("spawn").Process(target=work)
    p.start(); p.join(); sys.exit(p.exitcode)
"""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(code)
        file.flush()
        done = subprocess.run([sys.executable, file.name], env={**os.environ, "TENGEN_HUB": "x"}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.count("TENGEN_HUB") == 1, done.stderr


@pytest.mark.parametrize("name", KNOBS)
def test_an_empty_variable_is_as_none(name):
    assert getattr(Config({KNOBS[name][0]: ""}), name) == getattr(Config({}), name)


@pytest.mark.parametrize("variable, bad, legal", [
    ("TENGEN_DEBUG", ["yes", "-1", "1.0", "²"], "is not a whole number, at least 0: 1 programs"),
    *((v, ["0", "-2", "many", "1e9"], "is not a whole number, at least 1: ") for v in ("TENGEN_NUM_THREADS", "TENGEN_CACHE_BYTES")),
    *((v, ["maybe", "2"], "is not one of 0, off, .*: ") for v in ("TENGEN_CACHE", "TENGEN_CHECK", "TENGEN_WINOGRAD")),
])  # fmt: skip
def test_a_bad_value_is_an_error_that_says_the_legal_ones(variable, bad, legal):
    for text in bad:
        with pytest.raises(ConfigError, match=f"the environment variable {variable}='{text}' {legal}"):
            Config({variable: text})


def test_switches():
    for off in ("0", "off", "False", "no"):
        assert not Config({"TENGEN_CACHE": off}).cache
    for on in ("1", "on", "TRUE", "yes"):
        assert Config({"TENGEN_CHECK": on}).check
    assert [Config({"TENGEN_QUICK_COMPILE": v}).quick_compile for v in ("0", "1", "only")] == [False, True, "only"]
    with pytest.raises(ConfigError, match="'well' is not one of 0, .*, yes, only: quick code first"):
        Config({"TENGEN_QUICK_COMPILE": "well"})
    assert Config({"OMP_NUM_THREADS": "²"}).threads == Config({}).threads


@pytest.mark.parametrize("name", KNOBS)
def test_a_value_is_read_as_the_text_of_the_variable(name):
    """Any value was kept: "off" switched nothing off, and threads of 'a' failed where something was compiled."""
    knobs = Config({})
    parse, now = KNOBS[name][1], getattr(knobs, name)
    setattr(knobs, name, now)
    assert getattr(knobs, name) == now
    for bad in ([1], float("nan"), -1, b"x", "" if parse is not str else 1):
        with pytest.raises(ConfigError, match=rf"config.{name} = .* is not "):
            setattr(knobs, name, bad)
    assert getattr(knobs, name) == now


def test_values_of_python():
    knobs = Config({})
    knobs.cache, knobs.check, knobs.debug, knobs.cache_dir, knobs.distributed_timeout = "off", 1, np.int64(2), Path("x"), 3
    assert (knobs.cache, knobs.check, knobs.debug, knobs.cache_dir, knobs.distributed_timeout) == (False, True, 2, "x", 3.0)
    with pytest.raises(ConfigError, match="no knob named 'cach'"), knobs.scope(debug=3, cach=False):
        pass
    with pytest.raises(ConfigError, match="config.check = 7"), knobs.scope(debug=3, check=7):
        pass
    assert knobs.debug == 2  # what was set before the error is set back


@pytest.mark.parametrize("name", ["target", "processor"])
def test_what_a_process_compiles_for_is_decided_when_it_begins(name):
    before = getattr(config, name)
    setattr(config, name, before)
    with pytest.raises(ConfigError, match=f"comes too late.*TENGEN_{name.upper()}=x86-64 in the environment"):
        setattr(config, name, "x86-64")
    assert getattr(config, name) == before


# ---- where the cache is ----------------------------------------------------------------------------------------------
@pytest.fixture
def places(tmp_path, monkeypatch):
    """A process that has not looked for its cache yet, with temporary files of its own, and whose user owns nothing else."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "file").write_text("")  # what lies under it cannot be made
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(cache, "_unusable", set())
    monkeypatch.setattr(cache, "_keys", {})
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: type("Row", (), {"pw_dir": str(tmp_path / "listed")}))
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    cache._temporary.cache_clear()
    with config.scope(cache_dir=None, cache=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield tmp_path
    cache._temporary.cache_clear()


def kept(key: str = "a") -> Path | None:
    """Where an entry is put, and read again; None when it is not kept."""
    cache.put(key, b"data")
    return cache.directory() if cache.get(key) == b"data" else None


@pytest.mark.parametrize("variables, want", [
    ({}, "listed/.cache"), ({"HOME": ""}, "listed/.cache"), ({"HOME": "relative"}, "listed/.cache"), ({"HOME": "{}/own"}, "own/.cache"),
    ({"XDG_CACHE_HOME": "{}/x", "HOME": "{}/own"}, "x"), ({"XDG_CACHE_HOME": "", "HOME": "{}/own"}, "own/.cache"),
    ({"XDG_CACHE_HOME": "x", "HOME": "{}/own"}, "own/.cache"), ({"XDG_CACHE_HOME": "{}/x", "HOME": ""}, "x"),
])  # fmt: skip
def test_places(places, monkeypatch, variables, want):
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(places))
    assert kept() == places / want / "tengen" and (places / want / "tengen").stat().st_mode & 0o777 == 0o700


def test_a_tilde_is_the_users_home_too(places, monkeypatch):
    monkeypatch.setenv("HOME", "")
    assert knobs.expand_home("~/x") == f"{places}/listed/x" and knobs.expand_home("~") == f"{places}/listed"
    assert knobs.expand_home("/x/~") == "/x/~" and knobs.expand_home("~root/x") == os.path.expanduser("~root/x")
    with config.scope(cache_dir="~/named"):
        assert kept() == places / "listed" / "named"


@pytest.mark.parametrize("home", ["none", "file"])
def test_without_a_home_temporary_files(places, monkeypatch, home):
    """Nobody knows a home: nothing to say. The home cannot be written: said once."""
    own = places / "tmp" / f"tengen-{os.getuid()}"
    if home == "none":
        monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
        assert kept() == own
    else:
        monkeypatch.setenv("HOME", f"{places}/file")
        with pytest.warns(RuntimeWarning, match=f"{places}/file/.cache/tengen cannot be used: .*; kernels are kept in {own}; help") as seen:
            assert kept() == own and kept("b") == own
        assert len(seen) == 1
    assert own.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("trap", ["link", "open", "foreign", "file"])
def test_a_temporary_directory_of_others_is_not_used(places, monkeypatch, trap):
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    own = places / "tmp" / f"tengen-{os.getuid()}"
    (places / "private").mkdir(0o700)
    if trap == "link":
        own.symlink_to(places / "private")
    elif trap == "file":
        own.write_text("")
    else:
        own.mkdir(0o700)
        if trap == "open":
            own.chmod(0o755)
        elif os.getuid() == 0:
            os.chown(own, 12345, -1)
        else:
            pytest.skip("only root gives directories away")
    with pytest.warns(RuntimeWarning, match="cannot be used: .*; kernels are compiled anew; help: set TENGEN_CACHE_DIR") as seen:
        assert kept() is None and kept("b") is None
    assert len(seen) == 1 and not list((places / "private").iterdir()) and (trap in ("link", "file") or not list(own.iterdir()))


def test_what_a_user_names_has_no_substitute(places):
    with config.scope(cache_dir=f"{places}/file/cache"), pytest.warns(RuntimeWarning, match="compiled anew"):
        assert kept() is None
    assert not list((places / "tmp").iterdir())


def test_an_empty_home_puts_nothing_under_the_root():
    code = "from tengen.runtime import cache; print(cache.directory())"
    env = {k: v for k, v in os.environ.items() if k not in ("TENGEN_CACHE_DIR", "XDG_CACHE_HOME")} | {"HOME": ""}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout == f"{HOME}/.cache/tengen\n" and not done.stderr
