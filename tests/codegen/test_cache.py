"""The disk cache: what is kept, what is not believed, and several processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
import warnings

import pytest
from exhaustive import exhaustive

from tengen.base.config import config
from tengen.base.errors import CompileError
from tengen.codegen.targets import Target
from tengen.runtime import cache
from tengen.runtime import compile as compiler

IR = "define i64 @{0}() {{\n  ret i64 {1}\n}}\n"


@pytest.fixture
def place(tmp_path):
    """An empty cache of this test alone."""
    path = tmp_path / "cache"
    with config.scope(cache_dir=str(path), cache=True):
        yield path


def entry(path):
    """The one entry of a cache."""
    (file,) = path.glob("*.o")
    return file


def test_put_and_get(place):
    assert cache.get("a") is None
    cache.put("a", b"first")
    cache.put("b", b"")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"first", b"", None)
    cache.put("a", b"second")
    assert cache.get("a") == b"second"
    info = cache.info()
    assert (info.path, info.entries, info.limit) == (place, 2, config.cache_bytes)
    assert info.bytes == sum(f.stat().st_size for f in place.glob("*.o"))
    assert not list(place.glob(".*.part"))
    assert cache.clear() == info.bytes and cache.info().entries == 0 and cache.get("a") is None


def test_everything_is_private(place):
    old = os.umask(0)
    try:
        cache.put("a", b"data")
    finally:
        os.umask(old)
    assert place.stat().st_mode & 0o777 == 0o700
    assert {f.stat().st_mode & 0o777 for f in place.iterdir()} == {0o600}


def test_any_changed_byte_is_noticed(place):
    cache.put("a", b"machine code")
    file = entry(place)
    good = file.read_bytes()
    for i in range(len(good)):
        file.write_bytes(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :])
        assert cache.get("a") is None
    for bad in (b"", good[:-1], good + b"x", good[:31]):
        file.write_bytes(bad)
        assert cache.get("a") is None
    cache.put("a", b"machine code")
    assert file.read_bytes() == good and cache.get("a") == b"machine code"


def test_an_entry_counts_under_its_own_name_only(place):
    cache.put("a", b"of a")
    first = entry(place)
    cache.put("b", b"of b")
    (second,) = set(place.glob("*.o")) - {first}
    second.write_bytes(first.read_bytes())
    assert cache.get("b") is None


def test_modes_and_links_are_not_believed(place, tmp_path):
    cache.put("a", b"data")
    file = entry(place)
    for mode in (0o644, 0o620, 0o666):
        file.chmod(mode)
        assert cache.get("a") is None
    file.chmod(0o600)
    assert cache.get("a") == b"data"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert cache.get("a") is None
    cache.put("a", b"data")
    assert not file.is_symlink() and cache.get("a") == b"data"
    file.unlink()
    os.mkfifo(file, 0o600)  # reading it must not hang
    assert cache.get("a") is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_foreign_owner_is_not_believed(place):
    cache.put("a", b"data")
    os.chown(entry(place), 12345, -1)
    assert cache.get("a") is None


def test_an_open_directory_is_not_used(place):
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="0700"):
        cache.put("a", b"data")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert cache.get("a") is None
        cache.put("a", b"data")
    assert not list(place.iterdir())


def test_without_a_directory_kernels_are_compiled(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with config.scope(cache_dir=str(tmp_path / "file" / "cache")), pytest.warns(RuntimeWarning, match="cannot be used"):
        assert cache.compiled(IR.format("f", 1), Target.host())[:4] == b"\x7fELF"
    with config.scope(cache_dir=str(tmp_path / "off"), cache=False):
        assert cache.compiled(IR.format("f", 1), Target.host())
    assert not (tmp_path / "off").exists()


def test_a_lost_key_costs_the_entries_and_no_more(place):
    cache.put("a", b"data")
    for damage in (lambda k: k.chmod(0o644), lambda k: k.write_bytes(b"short"), lambda k: k.unlink()):
        damage(place / "key")
        cache._keys.clear()
        assert cache.get("a") is None
        cache.put("a", b"data")
        assert cache.get("a") == b"data"


def test_the_oldest_go_first(place):
    for name in "abcd":
        cache.put(name, bytes(1000))
    now = time.time()
    for age, name in enumerate("abcd"):
        os.utime(place / cache._name(name), (now - 100 + age,) * 2)
    assert cache.get("a")  # now the youngest
    with config.scope(cache_bytes=3500):
        cache.put("e", bytes(1000))
    assert [cache.get(name) is not None for name in "abcde"] == [True, False, False, True, True]


def test_a_cache_that_is_emptied_while_an_entry_is_written(place, monkeypatch):
    """By `tengen cache clear`, or by a process that makes room: the entry is not kept, the next one is."""
    replace = os.replace

    def emptied(part, file):
        cache.clear()
        replace(part, file)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with monkeypatch.context() as m:
            m.setattr(os, "replace", emptied)
            cache.put("a", b"lost")
        assert cache.get("a") is None
        cache.put("a", b"kept")
        assert cache.get("a") == b"kept"


def test_its_size_is_looked_at_seldom_and_kept(place, monkeypatch):
    """A look reads the whole directory: some tens of them while as many bytes are written as the cache may have."""
    looks, entries = [], cache._entries
    monkeypatch.setattr(cache, "_entries", lambda path: looks.append(found := entries(path)) or found)
    with config.scope(cache_bytes=1 << 20):
        for n in range(1000):  # of 500 KB in all
            cache.put(f"small {n}", bytes(500))
        assert len(looks) < cache._LOOKS
        for n in range(400):
            cache.put(f"large {n}", bytes(4000))
    assert len(looks) < 4 * cache._LOOKS and sum(n for _, n, _ in entries(place)) < 1.1 * (1 << 20)


def test_compiled_once(place):
    target, before = Target.host(), compiler.compilations
    first = cache.compiled(IR.format("f", 41), target)
    assert cache.compiled(IR.format("f", 41), target) == first
    assert compiler.compilations == before + 1
    cache.compiled(IR.format("f", 42), target)
    cache.compiled(IR.format("f", 41), Target.named("aarch64"))
    assert compiler.compilations == before + 3
    for file in place.glob("*.o"):
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert cache.compiled(IR.format("f", 41), target) == first
    assert compiler.compilations == before + 4


CHILD = textwrap.dedent("""
    import ctypes
    from tengen.codegen.targets import Target
    from tengen.runtime import cache, compile as compiler
    for n in range(20):
        ir = f"define i64 @f() {{\\n  ret i64 {n}\\n}}\\n"
        f = compiler.load_object(cache.compiled(ir, Target.host()), Target.host()).address("f")
        assert f
    print(compiler.compilations)
""")


@exhaustive
def test_two_processes(place):
    env = {**os.environ, "TENGEN_CACHE_DIR": str(place)}
    start = lambda: subprocess.Popen([sys.executable, "-c", CHILD], env=env, stdout=subprocess.PIPE, text=True)
    both = [start(), start(), start()]
    counts = [int(p.communicate()[0]) for p in both]
    assert all(p.returncode == 0 for p in both) and sum(counts) >= 20
    entries = cache.info().entries
    assert entries >= 20 and not list(place.glob(".*.part"))
    warm = start()
    assert int(warm.communicate()[0]) == 0  # a later process compiles nothing
    assert cache.info().entries == entries


def test_errors_name_the_function():
    good, bad = IR.format("good", 1), "define i64 @bad() {\n  ret i32 1\n}\n"
    with pytest.raises(CompileError, match="in bad"):
        compiler.compile_object(good + bad + good.replace("good", "other"), Target.host())
    for junk in (b"", b"\x7fELF\x02\x01", b"MZ" * 100):
        with pytest.raises(CompileError, match="not an object"):
            compiler.load_object(junk, Target.host())


def test_symbols_of_others():
    import ctypes

    ir = (
        "declare i64 @tengen_test_symbol(i64)\n"
        "define i64 @f(i64 %x) {\n  %y = call i64 @tengen_test_symbol(i64 %x)\n  ret i64 %y\n}\n"
    )
    data = compiler.compile_object(ir, Target.host())
    with pytest.raises(CompileError, match="tengen_test_symbol"):
        compiler.load_object(data, Target.host())
    twice = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 2 * x)
    compiler.add_symbols({"tengen_test_symbol": ctypes.cast(twice, ctypes.c_void_p).value})
    loaded = compiler.load_object(data, Target.host())
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("f"))(21) == 42
    with pytest.raises(KeyError, match="nothing"):
        loaded.address("nothing")


def test_libc_is_known():
    import ctypes

    ir = (
        "declare i64 @strlen(ptr)\ndeclare i32 @pthread_mutex_lock(ptr)\ndeclare ptr @PyLong_FromLong(i64)\n"
        "@p = global ptr @pthread_mutex_lock\n@q = global ptr @PyLong_FromLong\n"
        "define i64 @f(ptr %s) {\n  %n = call i64 @strlen(ptr %s)\n  ret i64 %n\n}\n"
    )
    python = ctypes.cast(ctypes.pythonapi.PyLong_FromLong, ctypes.c_void_p).value
    compiler.add_symbols({"PyLong_FromLong": python})
    loaded = compiler.load_object(compiler.compile_object(ir, Target.host()), Target.host())
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)(loaded.address("f"))(b"seven..") == 7
    assert ctypes.c_void_p.from_address(loaded.address("q")).value == python
