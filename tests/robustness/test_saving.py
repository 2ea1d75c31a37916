"""Saving: modes, links, owners, parts that dead processes left, open files, and that what is saved is what is loaded."""

import gzip
import io
import math
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tengen
from tengen import Tensor, trace
from tengen.base import files
from tengen.base.errors import FileFormatError
from tengen.cli.main import main
from tengen.deploy.compile import compile_model
from tengen.deploy.dump import dump_model
from tengen.deploy.verify import verify

CHILD = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def traced():
    f = trace(lambda x: x * 2 + 1)
    f(Tensor([1.0, 2.0]))
    return f


def mode(path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


WRITERS = {
    "save": lambda path: tengen.save({"w": np.ones(3)}, path),
    "dump": lambda path: traced().dump(path),
    "dump_model": lambda path: dump_model(tengen.load_graph(io.BytesIO(dumped())), path),
}


def dumped() -> bytes:
    f = io.BytesIO()
    traced().dump(f)
    return f.getvalue()


@pytest.fixture(params=WRITERS)
def write(request):
    return WRITERS[request.param]


# ---- what stands there keeps its mode, its links and its owner


@pytest.mark.parametrize("old", [0o600, 0o640, 0o644, 0o400, 0o777])
def test_the_mode_of_an_existing_file_is_kept(write, tmp_path, old):
    (tmp_path / "c").write_bytes(b"old")
    (tmp_path / "c").chmod(old)
    write(tmp_path / "c")
    assert mode(tmp_path / "c") == old and os.listdir(tmp_path) == ["c"]


UMASK = """
import os, sys, threading, tengen
def saved(mask):
    os.umask(int(mask, 8))
    seen, done = set(), threading.Event()
    def watch():
        while not done.is_set():
            seen.add(open("/proc/self/status").read().split("Umask:")[1].split()[0])
    t = threading.Thread(target=watch)
    t.start()
    for i in range(50):
        tengen.save({"a": 1}, os.path.join(sys.argv[1], mask))
    done.set()
    t.join()
    print(*seen)
for mask in sys.argv[2:]:
    saved(mask)
"""


def test_a_new_file_follows_the_umask(tmp_path):
    wanted = {"022": 0o644, "077": 0o600, "027": 0o640, "002": 0o664}
    done = subprocess.run([sys.executable, "-c", UMASK, tmp_path, *wanted], capture_output=True, text=True, env=CHILD)
    assert done.returncode == 0, done.stderr
    assert {mask: mode(tmp_path / mask) for mask in wanted} == wanted
    assert done.stdout.split() == [f"0{mask}" for mask in wanted], "another thread saw another umask"


def test_nobody_sets_the_umask(write, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask of the process was set"))
    for _ in range(2):
        write(tmp_path / "c")


def test_a_link_stays_and_its_target_is_written(write, tmp_path):
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "c"
    target.write_bytes(b"old")
    target.chmod(0o600)
    (tmp_path / "middle").symlink_to(Path("there") / "c")
    (tmp_path / "link").symlink_to(tmp_path / "middle")
    write(tmp_path / "link")
    assert os.readlink(tmp_path / "link") == str(tmp_path / "middle") and mode(target) == 0o600
    assert target.read_bytes() != b"old" and os.listdir(tmp_path / "there") == ["c"]
    (tmp_path / "dangling").symlink_to(tmp_path / "there" / "new")
    write(tmp_path / "dangling")
    assert (tmp_path / "there" / "new").stat().st_size and (tmp_path / "dangling").is_symlink()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(OSError, match="cannot write .*circle"):
        write(tmp_path / "circle")


@pytest.fixture
def odd(tmp_path):
    """Paths that are no regular files, by what they are called in messages."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to_fifo").symlink_to("fifo")
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(tmp_path / "socket"))
    yield {
        tmp_path / "fifo": "a FIFO", tmp_path / "to_fifo": "a FIFO", tmp_path / "folder": "a directory",
        tmp_path / "socket": "a socket", "/dev/null": "a device", "/dev/zero": "a device",
    }  # fmt: skip
    s.close()


@pytest.fixture
def alarm():
    """What blocks is interrupted, and fails."""

    def ring(*_):
        raise AssertionError("it blocks")

    old = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def test_what_is_no_regular_file_is_not_replaced(write, odd, alarm):
    for path, kind in odd.items():
        with pytest.raises(OSError, match=f"cannot write .*it is {kind}"):
            write(path)
        assert not stat.S_ISREG(os.stat(path).st_mode)


def test_owners(tmp_path):
    if os.geteuid():
        pytest.skip("only root can make files of others")
    (tmp_path / "c").write_bytes(b"old")
    os.chown(tmp_path / "c", 12345, 23456)
    tengen.save({"a": 1}, tmp_path / "c")
    st = os.stat(tmp_path / "c")
    assert (st.st_uid, st.st_gid) == (12345, 23456)


def test_an_owner_that_cannot_be_kept(tmp_path, monkeypatch):
    def refuses(*args):
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "c").write_bytes(b"old")
    real = os.fstat
    fake = lambda fd: os.stat_result([*real(fd)[:4], 4242, *real(fd)[5:10]])
    monkeypatch.setattr(files.os, "fchown", refuses)
    monkeypatch.setattr(files.os, "fstat", fake)
    with pytest.raises(PermissionError, match="it belongs to user .* help: remove it first"):
        tengen.save({"a": 1}, tmp_path / "c")
    monkeypatch.undo()
    assert (tmp_path / "c").read_bytes() == b"old" and os.listdir(tmp_path) == ["c"]


def test_long_names(tmp_path):
    for name in ("x" * 255, "字" * 85):
        tengen.save({"a": 1}, tmp_path / name)
        assert tengen.load(tmp_path / name) == {"a": 1}
    with pytest.raises(OSError, match="cannot write"):
        tengen.save({"a": 1}, tmp_path / ("x" * 256))
    with pytest.raises(OSError, match="cannot write"):
        tengen.save({"a": 1}, "a\0b")


# ---- parts

KILLED = """
import os, sys, threading, tengen
from tengen.base import files
class Stuck:
    pass
with files.replacing(sys.argv[1]) as f:
    f.write(b"half")
    f.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_parts_of_the_dead_go_and_those_of_the_living_stay(tmp_path):
    start = lambda: subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path / "c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=CHILD
    )
    parts = lambda: {p for p in os.listdir(tmp_path) if p.endswith(".part")}
    children = [start() for _ in range(2)]
    for child in children:
        assert child.stdout.readline() == "writing\n"
    assert len(parts()) == 2
    tengen.save({"a": 1}, tmp_path / "c")
    tengen.save({"a": 1}, tmp_path / "c.d")
    assert len(parts()) == 2, "a part that is being written was removed"
    children[0].kill()
    children[0].communicate()
    left = parts()
    tengen.save({"a": 1}, tmp_path / "c.d")
    assert parts() == left, "a part of another file was removed"
    tengen.save({"a": 2}, tmp_path / "c")
    assert len(parts()) == 1
    children[1].communicate("")  # the living one ends, and its file is whole
    assert children[1].returncode == 0 and (tmp_path / "c").read_bytes() == b"half" and not parts()


def test_what_looks_like_a_part_and_is_none_stays(tmp_path):
    (tmp_path / ".c.0123456789abcdef.part").mkdir()
    (tmp_path / ".c.mine.part").write_text("")
    os.mkfifo(tmp_path / ".c.0123456789abcdee.part")
    tengen.save({"a": 1}, tmp_path / "c")
    assert len(os.listdir(tmp_path)) == 4


def test_many_save_the_same(tmp_path):
    """Threads and their cleaning do not take parts from one another."""
    failed = []

    def work(i):
        try:
            for _ in range(20):
                tengen.save({"a": i}, tmp_path / "c")
                assert tengen.load(tmp_path / "c")["a"] in range(6)
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failed and os.listdir(tmp_path) == ["c"]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "ro").mkdir()
    (tmp_path / "ro" / "c").write_bytes(b"old")
    (tmp_path / "ro").chmod(0o555)
    try:
        if os.access(tmp_path / "ro", os.W_OK):
            pytest.skip("root writes everywhere")
        with pytest.raises(PermissionError, match="cannot write .*what was there is as it was"):
            tengen.save({"a": 1}, tmp_path / "ro" / "c")
    finally:
        (tmp_path / "ro").chmod(0o755)


def test_artifacts_and_profiles_keep_modes_too(tmp_path):
    (tmp_path / "m").write_bytes(dumped())
    a = compile_model(tmp_path / "m", "x86-64-v3", tmp_path / "out")
    for f in a.files:
        os.chmod(f, 0o600)
    compile_model(tmp_path / "m", "x86-64-v3", tmp_path / "out")
    assert {mode(f) for f in a.files} == {0o600}
    (tmp_path / "t.json").write_text("")
    (tmp_path / "t.json").chmod(0o600)
    with tengen.profile() as p:
        tengen.load_graph(tmp_path / "m")(np.ones(2, "float32"))
    p.save(tmp_path / "t.json")
    assert mode(tmp_path / "t.json") == 0o600


# ---- only regular files are read


def test_only_regular_files_are_read(odd, alarm, tmp_path):
    readers = {
        "load": tengen.load, "load_graph": tengen.load_graph, "compile": lambda p: compile_model(p, "x86-64-v3", tmp_path / "out"),
        "verify": lambda p: verify(p, tmp_path),
    }  # fmt: skip
    for path, kind in odd.items():
        for read in readers.values():
            with pytest.raises(FileFormatError, match=f"it is {kind}; only regular files are read"):
                read(path)
        if kind != "a directory":  # click says so itself
            for words in (["info"], ["compile", "-o", tmp_path / "out"], ["profile"], ["tune"]):
                r = CliRunner().invoke(main, [*map(str, words[:1]), str(path), *map(str, words[1:])])
                assert r.exit_code == 1 and f"it is {kind}" in r.output, r.output


def test_a_fifo_that_takes_a_files_place_does_not_block(tmp_path, monkeypatch, alarm):
    """Between the look and the opening another may stand there."""
    (tmp_path / "c").write_bytes(b"")
    os.mkfifo(tmp_path / "fifo")
    real = os.open
    monkeypatch.setattr(files.os, "open", lambda path, *flags: real(tmp_path / "fifo", *flags))
    with pytest.raises(FileFormatError, match="it is a FIFO"):
        tengen.load(tmp_path / "c")


def test_no_descriptor_is_left(tmp_path, odd):
    tengen.save({"a": np.ones(3)}, tmp_path / "c")
    count = lambda: len(os.listdir("/proc/self/fd"))
    tengen.load(tmp_path / "c")
    before = count()
    for _ in range(5):
        tengen.load(tmp_path / "c")
        tengen.save({"a": 1}, tmp_path / "d")
        for path in odd:
            with pytest.raises(FileFormatError):
                tengen.load(path)
            with pytest.raises(OSError):
                tengen.save({}, path)
    assert count() == before


# ---- open files


def test_open_files(tmp_path):
    data = {"w": np.arange(5.0), "n": [1, None, "x"], "t": Tensor([1.0])}
    f = io.BytesIO()
    size = tengen.save(data, f)
    assert size == len(f.getvalue()) and tengen.save(data, tmp_path / "c") == size
    assert (tmp_path / "c").read_bytes() == f.getvalue()
    for mmap in (False, True):
        f.seek(0)
        back = tengen.load(f, mmap=mmap)
        assert back["w"].tobytes() == data["w"].tobytes() and back["n"] == data["n"] and back["t"].tolist() == [1.0]
    assert not back["w"].flags.writeable
    back["t"][0] = 5.0
    assert back["t"].tolist() == [5.0]
    with open(tmp_path / "c", "rb") as g:
        assert tengen.load(g)["n"] == data["n"]
    f.seek(7)
    with pytest.raises(FileFormatError, match="<BytesIO>: "):
        tengen.load(f)
    with pytest.raises(FileFormatError, match="<BytesIO>: it has 0 bytes"):
        tengen.load(io.BytesIO())


def test_files_that_cannot_seek_or_take_little(tmp_path):
    """A pipe, a compressed file, an unbuffered one, one that takes three bytes at a time, and one that stops in the middle."""

    class Slow(io.RawIOBase):
        data = b""

        def writable(self):
            return True

        def write(self, b):
            self.data += bytes(b[:3])
            return min(len(b), 3)

    slow = Slow()
    assert tengen.save({"a": 1}, slow) == len(slow.data) and tengen.load(io.BytesIO(slow.data)) == {"a": 1}
    with gzip.open(tmp_path / "z", "wb") as z:
        tengen.save({"w": np.ones(300)}, z)
    with gzip.open(tmp_path / "z") as z:
        assert tengen.load(z)["w"].sum() == 300
    r, w = os.pipe()
    with open(w, "wb", buffering=0) as out:
        tengen.save({"a": 1}, out)
    with open(r, "rb") as back:
        assert tengen.load(back) == {"a": 1}
    with tempfile.NamedTemporaryFile() as t:
        tengen.save({"a": 2}, t)
        t.seek(0)
        assert tengen.load(t) == {"a": 2} == tengen.load(t.name)

    class Full(Slow):
        def write(self, b):
            return 0 if len(self.data) > 20 else super().write(b)

    with pytest.raises(OSError, match="took 0 of"):
        tengen.save({"a": 1}, Full())
    Full.write = lambda self, b: None
    with pytest.raises(BlockingIOError, match="takes no more"):
        tengen.save({"a": 1}, Full())


def test_models_in_open_files(tmp_path):
    f = io.BytesIO()
    d = traced().dump(f)
    assert d.bytes == len(f.getvalue()) and d.file == "<BytesIO>"
    m = tengen.load_graph(io.BytesIO(f.getvalue()))
    assert m([1.0, 2.0]).tolist() == [3.0, 5.0] and m.bytes == d.bytes
    g = io.BytesIO()
    dump_model(m, g)
    assert tengen.load_graph(io.BytesIO(g.getvalue()))([1.0, 2.0]).tolist() == [3.0, 5.0]
    a = compile_model(io.BytesIO(f.getvalue()), "x86-64-v3", tmp_path)
    assert os.path.exists(a.files[0])
    bad = bytearray(f.getvalue())
    bad[-1] ^= 1
    with pytest.raises(FileFormatError, match="<BytesIO>: its checksum"):
        tengen.load_graph(io.BytesIO(bytes(bad)))


def test_text_files_and_other_objects(tmp_path):
    with open(tmp_path / "t", "w+") as t:
        for call in (lambda f: tengen.save({}, f), tengen.load, tengen.load_graph, lambda f: traced().dump(f)):
            for f in (t, io.StringIO()):
                with pytest.raises(TypeError, match="open as text; help: open it with"):
                    call(f)
            for f in (3, None, object()):
                with pytest.raises(TypeError, match="a path or an open binary file is needed"):
                    call(f)

    class Words:
        def read(self):
            return "x"

        def write(self, b):
            raise TypeError("words only")

    with pytest.raises(TypeError, match="gives str, not bytes"):
        tengen.load(Words())
    with pytest.raises(TypeError, match="does not take bytes"):
        tengen.save({}, Words())
    with open(tmp_path / "t", "rb") as only_read, pytest.raises(OSError):
        tengen.save({}, only_read)


# ---- what is saved is loaded

KEYS = st.one_of(
    st.text(max_size=4), st.integers(-(1 << 70), 1 << 70), st.sampled_from(["0" * 64, "__metadata__", "_", "a", "1"])
)
DTYPES = ["f4", "f8", "f2", "i1", "i8", "u2", ">f4", ">i8", "?"]
ARRAYS = st.tuples(st.sampled_from(DTYPES), st.sampled_from([(), (0,), (3,), (2, 0, 3), (2, 3)]), st.booleans()).map(
    lambda t: np.asfortranarray(np.arange(math.prod(t[1])).reshape(t[1]).astype(t[0])) if t[2] else np.zeros(t[1], t[0])
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.floats(), st.binary(max_size=9), ARRAYS, ARRAYS.map(lambda a: a[()]) , st.text(max_size=9),
    st.text(st.characters(categories=["Cs", "Lo"]), max_size=4), st.integers(),
    st.sampled_from([10**3999, -(10**3999), 10**4000, -(10**4000), 10**4200, 1 << 60, -(1 << 60), 1 << 13287, (1 << 13287) - 1]),
    st.sampled_from([1 + 2j, object(), {1, 2}, np.array(["x"]), np.ma.array([1, 2], mask=[0, 1]), np.complex64(1), {1.5: 2}]),
    st.just(np.frombuffer(b"\x00\x01\x02\xff", "?")),
)  # fmt: skip
NESTED = st.recursive(
    VALUES,
    lambda v: st.one_of(st.lists(v, max_size=3), st.tuples(v, v), st.dictionaries(KEYS, v, max_size=3)),
    max_leaves=8,
)


def same(a, b) -> bool:
    if isinstance(a, (np.ndarray, np.generic)):
        native = a.dtype.newbyteorder("=")
        as_bytes = lambda x: (
            np.ascontiguousarray(x).astype(native).tobytes() if native.kind != "b" else (np.asarray(x) != 0).tolist()
        )
        return type(a) is type(b) and b.dtype == native and a.shape == b.shape and as_bytes(a) == as_bytes(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b) if isinstance(a, float) else a == b


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(x=NESTED)
@example(x={"0" * 64: np.ones(3)})
@example(x=[10**4200])
@example(x="\ud83d" + "\ude00")
@example(x={"\ud83d" + "\ude00": 1})
@example(x={10**30: 1})
@example(x=np.frombuffer(b"\x00\x02", "?"))
@example(x={"a": {"b": np.ones(2)}, "a.b": np.zeros(2)})
def test_what_is_saved_is_loaded(x):
    """Saving is refused with a TypeError or ValueError that says what and where, or loading gives the same."""
    f = io.BytesIO()
    try:
        tengen.save(x, f)
    except (TypeError, ValueError) as e:
        assert "cannot save" in str(e), e
        return
    assert same(x, tengen.load(io.BytesIO(f.getvalue())))


def test_refusals_say_where():
    for x, why in (
        ({"opt": [10**4200]}, "opt.0: an integer of 13953 bits"),
        ({"a": {10**30: 1}}, "a: a key is an int of more than 60 bits"),
        ({"m": np.ma.array([1], mask=[1])}, "m: it is a MaskedArray"),
        ({"t": ["\ud83d" + "\ude00"]}, "t.0: it holds two surrogates"),
        ({"t": [{} for _ in range(400_000)]}, "could not be loaded again.*too many values"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"cannot save .*{why}"):
            tengen.save(x, io.BytesIO())


def test_what_was_refused_keeps_the_old_file(tmp_path):
    tengen.save({"a": 1}, tmp_path / "c")
    for x in ({"a": 10**4200}, {"a": object()}):
        with pytest.raises((TypeError, ValueError)):
            tengen.save(x, tmp_path / "c")
    assert tengen.load(tmp_path / "c") == {"a": 1} and os.listdir(tmp_path) == ["c"]


# ---- complex numbers of 128 bits, which the format has not


def test_complex128_is_kept_as_pairs(tmp_path):
    saved = {"a": Tensor(np.array([[1 + 2j, -0.0], [np.nan, 1j]])), "none": Tensor(np.zeros((0, 3)) + 0j)}
    saved["one"] = Tensor(2 + 1j, dtype="complex128")
    path = tmp_path / "x"
    tengen.save(saved, path)
    for mmap in (False, True):
        for k, t in tengen.load(path, mmap=mmap).items():
            assert t.dtype == "complex128" and t.shape == saved[k].shape and t.numpy().tobytes() == saved[k].numpy().tobytes()
    weight = saved["a"] * 2.0
    run = trace(lambda x: x * weight)
    want = run(saved["a"]).numpy()
    run.dump(path, arg_names=["x"])
    assert tengen.load_graph(path)(x=saved["a"]).numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '["a", "a"]', '["b"]', '["flat"]', '["whole"]', '"a"', "[" * 5000, '["nothing"]'])
def test_a_list_of_complex_tensors_that_is_none(text, tmp_path):
    from tengen.deploy import tensorfile

    arrays = {"a": np.zeros((3, 2)), "flat": np.array(1.0), "b": np.zeros((3, 3)), "whole": np.zeros((3, 2), "int64")}
    path = tmp_path / "x"
    tensorfile.write_tensors(path, arrays, {"tengen.complex12*": text})
    raw = path.read_bytes().replace(b"tengen.complex12*", b"tengen.complex128").replace(b'"checksum"', b'"checksun"')
    with pytest.raises(FileFormatError, match="complex"):
        tensorfile.parse_tensors(raw)
    with pytest.raises(ValueError, match="not a text to be given"):
        tensorfile.write_tensors(path, arrays, {tensorfile.PAIRS: "[]"})
