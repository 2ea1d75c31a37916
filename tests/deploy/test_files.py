"""Bad files and bad disks: any bytes give a model or FileFormatError, and what was on the disk stays."""

import errno
import hashlib
import json
import os
import pickle
import subprocess
import sys
import time
import tracemalloc

import models
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tengen
from tengen.base.config import config
from tengen.base.errors import FileFormatError, TengenError
from tengen.deploy import Model, tensorfile
from tengen.deploy.tensorfile import LONG, NO_SUM, fail, parse_tensors, read_tensors, write_tensors

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The bytes of a sound model file."""
    f, _, _ = models.mlp()
    f.dump(tmp_path_factory.mktemp("good") / "m.tgn", arg_names=["data"])
    return next(tmp_path_factory.getbasetemp().glob("good*/m.tgn")).read_bytes()


@pytest.fixture
def load(tmp_path):
    """bytes -> Model, or the FileFormatError's text."""

    def load(data: bytes):
        (tmp_path / "bad.tgn").write_bytes(data)
        try:
            m = tengen.load_graph(tmp_path / "bad.tgn")
        except FileFormatError as e:
            assert "bad.tgn: " in str(e)
            return str(e)
        assert isinstance(m, Model)
        return m

    return load


def parts(data: bytes):
    """(header, graph, what follows the header)."""
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    return header, json.loads(header["__metadata__"]["graph"]), data[8 + n :]


def sealed(header, graph, rest: bytes) -> bytes:
    """A file with a checksum that fits, so that the checks behind it are reached. header: a dict, or its text."""
    if isinstance(header, dict):
        meta = {**header["__metadata__"], "checksum": NO_SUM}
        meta["graph"] = graph if isinstance(graph, str) else json.dumps(graph)
        header = json.dumps({**header, "__metadata__": meta})
    raw = header.encode()
    data = len(raw).to_bytes(8, "little") + raw + rest
    return data.replace(NO_SUM.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def test_resealing_keeps_a_good_file_good(good, load):
    assert isinstance(load(good), Model) and isinstance(load(sealed(*parts(good))), Model)


def with_length(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


@quick
@given(at=st.integers(0, 1 << 30), bit=st.integers(0, 7))
def test_every_flipped_bit_is_seen(good, load, at, bit):
    data = bytearray(good)
    data[at % len(data)] ^= 1 << bit
    assert isinstance(load(bytes(data)), str)


@quick
@given(at=st.integers(0, 1 << 30), more=st.binary(max_size=80))
def test_truncated_and_grown(good, load, at, more):
    assert isinstance(load(good[: at % len(good)]), str)
    assert not more or isinstance(load(good + more), str)


@quick
@given(data=st.one_of(st.binary(max_size=300), st.text(max_size=100).map(lambda s: with_length(s.encode()))))
def test_any_bytes(load, data):
    assert isinstance(load(data), str)


def paths(x, here=()):
    """Every place in a JSON value."""
    yield here
    inner = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    for k, v in inner:
        yield from paths(v, (*here, k))


def changed(x, path, change):
    if not path:
        return change(x)
    copy = dict(x) if isinstance(x, dict) else list(x)
    copy[path[0]] = changed(x[path[0]], path[1:], change)
    return copy


VALUES = [
    None, True, 0, 1, -1, 3, 1 << 62, 1 << 70, 1.5, "", "x", "f32[3,7]", "f32[0]", "f32[99999999999]", "f32[N]", "add", "fused",
    [], {}, [0], [[]], {"tuple": [0]}, {"tuple": [1, 1]}, {"dtype": "f64"}, {"float": "nan"}, {"dim": "N"}, {"graph": {}},
    "\ud800",
]  # fmt: skip


def check_mutant(m):
    """What loads has a graph that can be looked at."""
    if isinstance(m, Model):
        assert repr(m) and m.ops() is not None and m.n_parameters >= 0


@settings(quick, max_examples=400)
@given(data=st.data(), value=st.sampled_from(VALUES), how=st.sampled_from(["set", "remove", "twice", "swap"]))
def test_mutated_graphs(good, load, data, value, how):
    header, graph, rest = parts(good)
    path = data.draw(st.sampled_from([p for p in paths(graph) if p]))

    def mutate(parent):
        parent = dict(parent) if isinstance(parent, dict) else list(parent)
        k = path[-1]
        if how == "set":
            parent[k] = value
        elif how == "remove":
            del parent[k]
        elif isinstance(parent, list):
            parent.insert(k, parent[k] if how == "twice" else parent.pop())
        else:
            parent[f"{k}2"] = parent[k]
        return parent

    check_mutant(load(sealed(header, changed(graph, path[:-1], mutate), rest)))


@settings(quick, max_examples=200)
@given(data=st.data(), value=st.sampled_from(VALUES))
def test_mutated_headers(good, load, data, value):
    header, graph, rest = parts(good)
    path = data.draw(st.sampled_from([p for p in paths(header) if p and p[-1] not in ("graph", "checksum", "__metadata__")]))
    check_mutant(load(sealed(changed(header, path, lambda _: value), graph, rest)))


def test_every_attribute_and_op_is_checked(good, load):
    header, graph, rest = parts(good)
    for i, n in enumerate(graph["graph"]["nodes"]):
        for k in n["attrs"]:
            for value in ({"tuple": [0]}, -5, "sum", None):
                got = load(sealed(header, changed(graph, ("graph", "nodes", i, "attrs", k), lambda _, v=value: v), rest))
                check_mutant(got)
        assert "no op named" in load(sealed(header, changed(graph, ("graph", "nodes", i, "op"), lambda _: "system"), rest))


def test_keys_that_stand_twice(good, load):
    header, graph, rest = parts(good)
    text = json.dumps({**header, "__metadata__": {**header["__metadata__"], "checksum": NO_SUM}})
    row = json.dumps(header["w1"])
    for twice in (text[:-1] + f', "w1": {row}}}', text.replace('"dtype": "F32"', '"dtype": "F32", "dtype": "F32"', 1)):
        assert "twice" in load(sealed(twice, None, rest))
    inner = header["__metadata__"]["graph"].replace('"version":1', '"version":1,"version":1')
    assert "twice" in load(sealed(header, inner, rest))


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [1 << 40, 1 << 40]}, {"shape": [1 << 62]}, {"shape": [0, 1 << 62]}, {"shape": [-1]}, {"shape": [1] * 70},
        {"data_offsets": [0, 1 << 50]}, {"data_offsets": [64, 0]}, {"data_offsets": [-64, 0]}, {"data_offsets": [0]},
        {"dtype": "F8_E4M3"}, {"dtype": 3}, {"more": 1},
    ],
)  # fmt: skip
def test_tensors_that_promise_too_much(good, load, change):
    header, graph, rest = parts(good)
    assert isinstance(load(sealed({**header, "w1": {**header["w1"], **change}}, graph, rest)), str)


def test_huge_promises_cost_nothing(good, load):
    header, graph, rest = parts(good)
    size = len(good)
    tracemalloc.start()
    begin = time.perf_counter()
    for n in (size, 1 << 40, 100_000_000, (1 << 64) - 1):
        assert isinstance(load(n.to_bytes(8, "little") + good[8:]), str)
    huge = f"f32[{1 << 40},7]"
    for i in (0, 1):
        graph["graph"]["inputs"] = [["data", huge]] if i else graph["graph"]["inputs"]
        graph["graph"]["constants"][0][1] = huge if not i else graph["graph"]["constants"][0][1]
        assert isinstance(load(sealed(header, graph, rest)), str)
    deep = "[" * 100_000 + "]" * 100_000
    assert isinstance(load(sealed(header, deep, rest)), str)
    assert time.perf_counter() - begin < 5
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_a_bool_is_zero_or_one(tmp_path):
    write_tensors(tmp_path / "t", {"b": np.array([0, 1, 1], bool)}, {})
    assert list(parse_tensors((tmp_path / "t").read_bytes()).arrays["b"]) == [False, True, True]
    with pytest.raises(FileFormatError, match="checksum"):
        parse_tensors((tmp_path / "t").read_bytes().replace(b"\0\1\1", b"\0\2\1"))


def test_the_checksum_of_a_large_file_is_computed_beside_what_reads_it(tmp_path):
    """A damaged file says so, whatever became of what was read meanwhile, and nothing that was made of it is handed out."""
    write_tensors(tmp_path / "t", {"a": np.zeros(LONG + 1, np.uint8)}, {})
    data = (tmp_path / "t").read_bytes()
    assert parse_tensors(data, lambda found: found.arrays["a"].size) == LONG + 1
    for at in (-1, -LONG, len(data) // 2):
        damaged = bytearray(data)
        damaged[at] ^= 1
        for use in (None, lambda found: found, lambda found: fail("it makes no sense"), lambda found: 1 / 0):
            with pytest.raises(FileFormatError, match="its checksum does not fit its content"):
                parse_tensors(bytes(damaged), use)
    with pytest.raises(FileFormatError, match="it makes no sense"):
        parse_tensors(data, lambda found: fail("it makes no sense"))


def test_a_long_file_that_has_not_changed_is_summed_once(tmp_path, monkeypatch):
    """What the system says of a file tells whether it may have changed, and within its clock's tick nothing does."""
    sums, path = [], tmp_path / "t"
    write_tensors(path, {"a": np.arange(LONG, dtype=np.uint8)}, {})
    monkeypatch.setattr(tensorfile, "sha256_of_much", lambda data: sums.append(1) or hashlib.sha256(data))

    def sums_of(n: int) -> int:
        sums.clear()
        for _ in range(n):
            assert read_tensors(path).arrays["a"].size == LONG
        return len(sums)

    assert sums_of(3) == 3  # it has just been written
    monkeypatch.setattr(tensorfile, "SETTLED_S", -60)
    assert sums_of(3) == 1
    with config.scope(check=True):
        assert sums_of(3) == 3
    with config.scope(cache=False):
        assert sums_of(3) == 3
    before = os.stat(path)
    for flip, fits in ((1, False), (1, True)):  # damaged in place, and mended
        with open(path, "r+b") as f:
            f.seek(-1, os.SEEK_END)
            byte = f.read(1)[0]
            f.seek(-1, os.SEEK_END)
            f.write(bytes([byte ^ flip]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        for _ in range(2):
            if fits:
                assert read_tensors(path).arrays["a"][-1] == 255
                continue
            with pytest.raises(FileFormatError, match="its checksum does not fit its content"):
                read_tensors(path)
    write_tensors(path, {"a": np.ones(LONG, np.uint8)}, {})
    assert sums_of(2) == 1


def test_other_kinds_and_versions(good, load, tmp_path):
    header, graph, rest = parts(good)
    newer = {**header, "__metadata__": {**header["__metadata__"], "version": "2"}}
    assert "version 2 of the format" in load(sealed(newer, graph, rest))
    tengen.save({"a": 1}, tmp_path / "c")
    with pytest.raises(FileFormatError, match="tengen.load reads"):
        tengen.load_graph(tmp_path / "c")
    with pytest.raises(FileNotFoundError):
        tengen.load_graph(tmp_path / "none")


@quick
@given(at=st.integers(0, 1 << 30), value=st.sampled_from(VALUES), data=st.data())
def test_mutated_checkpoints(tmp_path, at, value, data):
    tengen.save({"w": [np.ones(3, "f4"), 2, "t", float("nan"), (None, b"x")], "n": 1 << 70}, tmp_path / "c")
    whole = (tmp_path / "c").read_bytes()
    n = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + n])
    structure = json.loads(header["__metadata__"]["structure"])
    path = data.draw(st.sampled_from(list(paths(structure))))
    meta = {**header["__metadata__"], "structure": json.dumps(changed(structure, path, lambda _: value)), "checksum": NO_SUM}
    (tmp_path / "c").write_bytes(sealed(json.dumps({**header, "__metadata__": meta}), None, whole[8 + n :]))
    try:
        tengen.load(tmp_path / "c")
    except FileFormatError:
        pass


AUDIT = """
import sys, tengen
tengen.load_graph(sys.argv[1])
seen = []
sys.addaudithook(lambda event, args: seen.append((event, args)))
m = tengen.load_graph(sys.argv[1])
calm = [e for e in seen if not e[0].startswith(("builtins.id", "mmap."))]
print([(e, str(a[0])) for e, a in calm])
from tengen.runtime import compile
before = compile.compilations
assert m._executable is None
"""


def test_loading_opens_one_file_and_executes_nothing(good, tmp_path):
    (tmp_path / "m.tgn").write_bytes(good)
    env = {**os.environ, "TENGEN_CACHE": "0"}  # else what this user's cache knows of the file is read, too
    done = subprocess.run([sys.executable, "-c", AUDIT, tmp_path / "m.tgn"], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([("open", str(tmp_path / "m.tgn"))])


# ---- disks


def dumped(tmp_path):
    """(a function that dumps, the file as it was before)."""
    f, _, _ = models.mlp()
    path = tmp_path / "m.tgn"
    f.dump(path)
    return lambda: f.dump(path), path, path.read_bytes()


@pytest.mark.parametrize("call", ["fsync", "replace", "fchmod"])
def test_a_failing_disk_keeps_the_old_file(tmp_path, monkeypatch, call):
    dump, path, before = dumped(tmp_path)

    def fails(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(OSError, match=r"cannot write .*m\.tgn: No space left on device") as e:
        dump()
    assert e.value.errno == errno.ENOSPC
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m.tgn"]


FULL = """
import resource, signal, sys, numpy, tengen
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
tengen.save({"a": numpy.ones(10)}, sys.argv[1])
try:
    tengen.save({"a": numpy.ones(100_000)}, sys.argv[1])
except OSError as e:
    print("refused:", e.strerror)
print(tengen.load(sys.argv[1])["a"].sum())
"""


def test_a_disk_that_takes_no_more(tmp_path):
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path / "c"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "refused: cannot write" in done.stdout and done.stdout.endswith("10.0\n")
    assert os.listdir(tmp_path) == ["c"]


def test_places_that_cannot_be_written(tmp_path):
    f, _, _ = models.mlp()
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "none" / "m", tmp_path / "file" / "m", tmp_path / "folder", "/proc/self/m"):
        with pytest.raises(OSError, match="cannot write"):
            f.dump(place)
    if os.geteuid():
        (tmp_path / "folder").chmod(0o555)
        with pytest.raises(PermissionError, match="cannot write"):
            f.dump(tmp_path / "folder" / "m")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_modes_and_links(tmp_path):
    f, _, _ = models.mlp()
    old = os.umask(0o027)
    try:
        f.dump(tmp_path / "m")
    finally:
        os.umask(old)
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o640


def test_dumping_over_a_loaded_file(tmp_path):
    f, x, y = models.mlp()
    f.dump(tmp_path / "m")
    m = tengen.load_graph(tmp_path / "m")
    f.dump(tmp_path / "m")
    assert models.same(m(x), y)


def test_errors_are_tengens_own():
    assert issubclass(FileFormatError, TengenError) and issubclass(FileFormatError, ValueError)


def test_files_of_others_are_called_by_name(tmp_path):
    """They were said to be truncated, with a header of 379676406402707 bytes, and NumPy's archives to be PyTorch's."""
    x = np.ones((2, 3), "float32")
    np.save(tmp_path / "numpy.load.npy", x)
    np.savez(tmp_path / "numpy.load.npz", **{"a" * 100: x})
    (tmp_path / "to_safetensors.py").write_bytes(pickle.dumps({"a": 1}))
    for file in tmp_path.iterdir():  # each is named as what is told
        for load in (tengen.load, tengen.load_graph):
            with pytest.raises(FileFormatError, match=file.name.removesuffix(".npy").removesuffix(".npz")):
                load(file)
