"""Files that belong together: a writer that is killed at any call, or whose disk is full, leaves the old ones, the new ones, or no entry,
without which nobody takes the others."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recorded import dumped

from tengen import Tensor, deploy, models, trace
from tengen.base.errors import FileFormatError
from tengen.base.files import replacing, replacing_set
from tengen.deploy.verify import verify

CALLS = ("replace", "unlink", "fsync")  # what a set of files is put in its place by


def raw(folder: Path) -> tuple[Callable[[], None], Callable[[], None], str]:
    """Three files, of which the new set has another one."""

    def write(content: bytes, more: str, less: str) -> None:
        with replacing_set(folder / "entry") as files:
            for name in ("a", "entry", more):
                files.new(folder / name).write(content)
            files.remove(folder / less)

    return lambda: write(b"old", "b", "c"), lambda: write(b"new content", "c", "b"), "entry"


def _dumped(folder: Path, factor: int) -> Path:
    file = folder.parent / f"m{factor}.tgn"
    weights = Tensor(np.arange(6, dtype="f4").reshape(2, 3) * factor)
    if not file.exists():
        dumped(lambda x: x @ weights if factor == 1 else (x * 2, x @ weights), [Tensor(np.ones((1, 2), "f4"))], file)
    return file


def artifact(folder: Path) -> tuple[Callable[[], None], Callable[[], None], str]:
    old, new = (_dumped(folder, n) for n in (1, 2))
    return lambda: deploy.compile_model(old, "aarch64", folder, "m"), lambda: deploy.compile_model(new, "aarch64", folder, "m"), "m.h"


def pretrained(folder: Path) -> tuple[Callable[[], None], Callable[[], None], str]:
    """Shards of the same names with other weights; the old set has a shard more."""
    nets = [models.gpt(1, 8, 2, 8, 11) for _ in range(2)]
    return (
        lambda: models.save_pretrained(nets[0], folder, shard=600), lambda: models.save_pretrained(nets[1], folder, shard=900), "config.json"
    )  # fmt: skip


def onnx(folder: Path) -> tuple[Callable[[], None], Callable[[], None], str]:
    pytest.importorskip("onnx")
    from tengen.interop.onnx import save

    def one(factor: int):
        weights = Tensor(np.arange(3000, dtype="f4").reshape(30, 100) * factor)
        return trace(lambda x: x @ weights, example_input=Tensor(np.ones((2, 30), "f4")))

    old, new = map(one, (1, 2))
    return lambda: save(old, folder / "m.onnx"), lambda: save(new, folder / "m.onnx"), "m.onnx"


WRITERS = {f.__name__: f for f in (raw, artifact, pretrained, onnx)}


@pytest.fixture(params=WRITERS)
def written(request, tmp_path, monkeypatch):
    """(writes the old set, writes the new one, the entry, the folder)."""
    if request.param == "onnx":
        pytest.importorskip("onnx")
        from tengen.interop.onnx import save  # noqa: F401  (loads the module)

        monkeypatch.setattr(sys.modules["tengen.interop.onnx.save"], "LARGEST", 1000)
    folder = tmp_path / "set"
    folder.mkdir()
    return *WRITERS[request.param](folder), folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix != ".part"}


def parts(folder: Path) -> list[Path]:
    return list(folder.rglob("*.part"))


def interrupted(write: Callable[[], None], at: int, how: Callable[[], None]) -> None:
    """Calls `write`; `how` is called before or behind one of `CALLS`, the at-th of all."""
    numbers, plain = itertools.count(), {name: getattr(os, name) for name in CALLS}

    def told(f):
        def call(*args, **kwargs):
            if next(numbers) == at:
                how()
            made = f(*args, **kwargs)
            if next(numbers) == at:
                how()
            return made

        return call

    try:
        for name, f in plain.items():
            setattr(os, name, told(f))
        write()
    finally:
        for name, f in plain.items():
            setattr(os, name, f)


def killed(write: Callable[[], None], at: int) -> bool:
    """Whether a process that is to be killed at a call comes to it."""
    pid = os.fork()
    if not pid:
        try:
            interrupted(write, at, lambda: os.kill(os.getpid(), signal.SIGKILL))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or status == 0, "the writer failed by itself"
    return status != 0


def state(folder: Path, entry: str, old: dict[str, bytes], new: dict[str, bytes]) -> str:
    found = contents(folder)
    if entry not in found:
        return "none"
    assert found in (old, new), f"a set of {found.keys()}, of which some are old and some are new"
    return "old" if found == old else "new"


def sets(write_old, write_new, folder):
    write_new()
    new = contents(folder)
    write_old()
    old = contents(folder)
    assert old != new and old.keys() & new.keys() and not parts(folder)
    return old, new


def test_a_writer_that_is_killed_at_any_call(written):
    write_old, write_new, entry, folder = written
    old, new = sets(write_old, write_new, folder)
    found = []
    for at in itertools.count():
        write_old()
        assert contents(folder) == old, "what a killed one left is replaced"
        died = killed(write_new, at)
        found.append(state(folder, entry, old, new))
        if not died:
            break
    assert not parts(folder), "the next one that writes such files removes the parts that killed ones left"
    assert [name for name, _ in itertools.groupby(found)] == ["old", "none", "new"], found
    assert len(found) > 2 * len(new)


def test_a_disk_that_is_full_at_any_call(written):
    write_old, write_new, entry, folder = written
    old, new = sets(write_old, write_new, folder)

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    found = set()
    for at in itertools.count():
        write_old()
        try:
            interrupted(write_new, at, full)
        except OSError as e:
            now = state(folder, entry, old, new)
            said = {"old": "what was there is as it was", "none": f"{entry} was removed before; help: write all again", "new": ""}[now]
            assert e.errno == errno.ENOSPC and str(e).endswith(said) and "cannot write" in str(e), (now, e)
            found.add(now)
        else:
            assert state(folder, entry, old, new) == "new", "a call that failed was taken for one that did not"
            if at > 4 * len(new) + 20:
                break
        assert not parts(folder)
    assert found >= {"old", "none"}


def test_an_entry_alone_is_replaced_without_being_removed(tmp_path, monkeypatch):
    for content in (b"old", b"new"):
        with monkeypatch.context() as m:
            m.setattr(os, "unlink", lambda path: pytest.fail(f"{path} was removed"))
            with replacing_set(tmp_path / "entry") as files:
                files.new(tmp_path / "entry").write(content)
        assert (tmp_path / "entry").read_bytes() == content


def test_a_block_that_fails_leaves_the_old_set(tmp_path):
    write_old, _, _ = raw(tmp_path)
    write_old()
    for error in (ValueError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)), replacing_set(tmp_path / "entry") as files:
            files.new(tmp_path / "entry").write(b"new")
            files.new(tmp_path / "a").write(b"new")
            files.remove(tmp_path / "b")
            raise error
        assert contents(tmp_path) == dict.fromkeys(("a", "b", "entry"), b"old") and not parts(tmp_path)
    with pytest.raises(ValueError, match="has no entry .*entry"), replacing_set(tmp_path / "entry") as files:
        files.new(tmp_path / "a").write(b"new")
    with pytest.raises(OSError, match="cannot write .*it is a directory"), replacing_set(tmp_path / "entry") as files:
        files.new(tmp_path / "entry").write(b"new")
        (tmp_path / "folder").mkdir()
        files.new(tmp_path / "folder")
    assert contents(tmp_path) == dict.fromkeys(("a", "b", "entry"), b"old") and not parts(tmp_path)


def test_modes_and_links_are_kept(tmp_path):
    write_old, write_new, _ = raw(tmp_path)
    write_old()
    (tmp_path / "there").write_bytes(b"old")
    (tmp_path / "there").chmod(0o640)
    (tmp_path / "a").chmod(0o600)
    (tmp_path / "entry").unlink()
    (tmp_path / "entry").symlink_to("there")
    write_new()
    assert (tmp_path / "entry").is_symlink() and (tmp_path / "there").read_bytes() == b"new content"
    assert [os.stat(tmp_path / name).st_mode & 0o777 for name in ("there", "a")] == [0o640, 0o600]


def test_another_set_of_one_name_does_not_take_parts(tmp_path):
    """Two that write at once: each set is whole, and the later one stays."""
    one, other = replacing_set(tmp_path / "entry"), replacing_set(tmp_path / "entry")
    first, second = one.__enter__(), other.__enter__()
    for files, content in ((first, b"1"), (second, b"2")):
        for name in ("a", "entry"):
            files.new(tmp_path / name).write(content)
    one.__exit__(None, None, None)
    assert contents(tmp_path) == {"a": b"1", "entry": b"1"}
    other.__exit__(None, None, None)
    assert contents(tmp_path) == {"a": b"2", "entry": b"2"} and not parts(tmp_path)
    with replacing(tmp_path / "a") as f:
        f.write(b"3")
    assert contents(tmp_path) == {"a": b"3", "entry": b"2"}


def test_many_write_one_set_at_once(tmp_path):
    """All files that are there at the end were written by one of them."""
    failed = []

    def work(i: int) -> None:
        try:
            for j in range(20):
                with replacing_set(tmp_path / "entry") as files:
                    for name in ("entry", "a", "b", "c"):
                        files.new(tmp_path / name).write(f"{i} {j}".encode())
        except Exception as e:
            failed.append(e)

    for _ in range(3):
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        found = contents(tmp_path)
        assert not failed and found.keys() == {"entry", "a", "b", "c"} and len(set(found.values())) == 1, (failed, found)
        assert not parts(tmp_path)


def test_readers_say_that_an_entry_is_missing(tmp_path):
    model = _dumped(tmp_path / "set", 1)
    made = deploy.compile_model(model, "aarch64", tmp_path / "set", "m")
    os.unlink(made.files[1])
    with pytest.raises(FileFormatError, match=r"holds no m\.h; help: tengen compile writes them"):
        verify(model, tmp_path / "set")
    with pytest.raises(FileFormatError, match=r"m\.h is not that of this artifact: it was compiled anew, or removed"):
        deploy.package(made, "static")
    models.save_pretrained(models.gpt(1, 8, 2, 8, 11), tmp_path / "net")
    os.unlink(tmp_path / "net" / "config.json")
    with pytest.raises(FileFormatError, match=r"it has no config\.json"):
        models.from_pretrained(tmp_path / "net")


def test_an_artifact_that_was_compiled_anew_is_not_packaged(tmp_path):
    """Its interface would be packaged with the code of another one."""
    old, new = (_dumped(tmp_path / "set", n) for n in (1, 2))
    first = deploy.compile_model(old, "cortex-m4", tmp_path / "set", "m")
    second = deploy.compile_model(new, "cortex-m4", tmp_path / "set", "m")
    for form in ("arduino", "section", "static", "cpp"):
        with pytest.raises(FileFormatError, match="compiled anew, or removed; help: package what that returned"):
            deploy.package(first, form)
        assert deploy.package(second, form)


def test_shards_of_an_older_set_are_removed(tmp_path):
    """Programs that read every model*.safetensors of a folder would read them too."""
    net = models.gpt(1, 8, 2, 8, 11)
    shards = lambda: {p.name for p in tmp_path.glob("model*")}
    models.save_pretrained(net, tmp_path, shard=600)
    many = shards()
    (tmp_path / "model-of-mine.safetensors").write_bytes(b"mine")
    models.save_pretrained(net, tmp_path, shard=1500)
    few = shards()
    assert len(many) > len(few) > 3 and not many & few - {"model.safetensors.index.json"}
    models.save_pretrained(net, tmp_path)
    assert shards() == {"model.safetensors", "model-of-mine.safetensors"}
    models.save_pretrained(net, tmp_path, shard=600)
    assert shards() == {*many, "model-of-mine.safetensors"}
    same = models.from_pretrained(tmp_path)
    assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(net.tensors(), same.tensors()))
