"""What `import tengen` may load and do, counted: its time follows from that, and grows unnoticed otherwise."""

from __future__ import annotations

import copy
import inspect
import json
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace

import pytest

from tengen.base.record import NamedTuple, record

# Modules from outside that NumPy has not loaded already. What takes long (json, subprocess, shutil, fractions, tempfile) is imported
# where it is needed.
ALLOWED = {"__future__", "atexit", "copy", "dataclasses", "errno", "fcntl", "mmap", "ml_dtypes", "threading"}

# What every op is made of, and of what calls with complex numbers and of several ops are made.
PARTS_OF_OPS = "attributes calls complex_forms define names op registry rules widths".split()

LOAD = """
import sys
import numpy
before = set(sys.modules)
compiled = 0
def count(event, args):
    global compiled
    compiled += event == "compile" and not str(args[1]).endswith(".py")  # a module that has no byte code yet
sys.addaudithook(count)
import tengen
new = [m for m, module in sys.modules.items() if m not in before and module.__spec__]  # views of other modules were not loaded
written = [
    f"{c.__qualname__}.{key}" for name in new if name.startswith("tengen") for c in vars(sys.modules[name]).values()
    if isinstance(c, type) and c.__module__ == name
    for key, f in vars(c).items() if hasattr(f, "__code__") and f.__code__.co_filename == "<string>"
]
import json
print(json.dumps([new, sorted(written), compiled]))
"""


@pytest.fixture(scope="module")
def loaded():
    """(modules that `import tengen` loads after NumPy, the methods of its classes that were compiled from text, how many texts were)."""
    return json.loads(subprocess.run([sys.executable, "-c", LOAD], stdout=subprocess.PIPE, text=True, check=True).stdout)


def test_nothing_heavy_from_outside(loaded):
    outside = {m.partition(".")[0] for m in loaded[0]} - {"tengen", "ctypes"}  # NumPy loads ctypes, but for what lays out structures
    assert not (more := {m for m in outside if not m.startswith("_")} - ALLOWED), f"loads {sorted(more)}"


def test_what_only_a_first_program_needs_is_not_loaded(loaded):
    later = {"tengen.loops.math", "tengen.loops.reals", "tengen.runtime.process", "tengen.tensor.recorder", "tengen.jit", "tengen.module"}
    assert not later & set(loaded[0])
    families = {m for m in loaded[0] if m.startswith("tengen.ops.")} - {f"tengen.ops.{m}" for m in PARTS_OF_OPS}
    assert families == {"tengen.ops.elementwise"}, "a family of ops is loaded when one of its ops is first named"
    assert len([m for m in loaded[0] if m.startswith("tengen")]) <= 112


def test_few_records_are_made(loaded):
    assert all(name.endswith(".__init__") for name in loaded[1]), f"{loaded[1]} are compiled, and no closures"
    assert len(loaded[1]) <= 16, f"{loaded[1]} are compiled while importing"


def test_few_texts_are_compiled(loaded):
    """Each takes as long as what a small module does: `typing.NamedTuple` compiles one for each field, `dataclass` up to six."""
    assert loaded[2] <= 35


def imported(*command):
    """(the modules that a command line imports, what it prints)."""
    done = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}, done.stdout


@pytest.mark.parametrize("command", [["-m", "tengen"], [os.path.join(os.path.dirname(sys.executable), "tengen")]])
def test_what_starts_other_processes_loads_nothing_to_compute_with(command):
    """`tengen run` would have its processes wait for its own import; nor do words that are printed wait."""
    if not (command[0] == "-m" or os.path.exists(command[0])):
        pytest.skip("Tengen is not installed in this environment")
    for arguments in (["run", "--help"], ["--help"], ["--version"], ["completion", "bash"]):
        found, printed = imported(*command, *arguments)
        assert "tengen.cli.main" in found and printed
        assert not (more := found & {"numpy", "llvmlite", "tengen.tensor", "tengen.ops"}), f"{arguments} loads {sorted(more)}"


@pytest.mark.parametrize("arguments, most", [("info --help", 45), ("cache info", 10), ("targets", 95), ("config", 10)])
def test_a_command_waits_for_its_own_imports_alone(arguments, most, loaded, tmp_path, monkeypatch):
    """At most so many of Tengen's modules beside those of `import tengen`; all commands together load some 320 more."""
    if arguments in ("cache info", "config"):  # they look at every entry of the cache
        monkeypatch.setenv("TENGEN_CACHE_DIR", str(tmp_path / "cache"))
    found, _ = imported("-m", "tengen", *arguments.split())
    ours = {m for m in found if m.partition(".")[0] == "tengen"} - set(loaded[0])
    assert "tengen.tensor" in found and "tengen.cli.main" in ours
    assert len(ours) <= most, f"loads {sorted(ours)}"


@pytest.mark.parametrize("command", [["-m", "other", "run"], ["tengen", "run"]])
def test_another_program_that_is_called_alike_has_tensors(tmp_path, command):
    text = "import tengen; print(tengen.tensor([1.0]) + 1)"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "__init__.py").write_text(text)
    (tmp_path / "other" / "__main__.py").write_text("")
    (tmp_path / "tengen").write_text(text)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [command[0] if command[0] == "-m" else str(tmp_path / command[0]), *command[1:]]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.returncode == 0 and "[2.]" in done.stdout, done.stderr


READ_BACK = """
import sys
import tengen, tengen.functional as F
x = tengen.Tensor([[1.0, 2.0, 4.0]])
for y in (x + x, F.softmax(x, 1), x.sum(1), F.concat([x, x], 0), x[0], tengen.load_graph("net.tgn")(x) if sys.argv[1:] else x):
    y.numpy()
makers = "tengen.codegen.llvm", "tengen.compiler.building", "tengen.compiler.driver", "tengen.passes.fuse", "tengen.passes.lower"
print(*(m for m in makers if m in sys.modules))
"""
WRITE = """
import tengen, tengen.functional as F
from tengen import trace
trace(lambda x: F.relu(x) * 2, example_input=tengen.Tensor([[1.0, 2.0, 4.0]])).dump("net.tgn")
"""


def test_a_process_that_finds_its_programs_loads_nothing_that_makes_them(tmp_path):
    env = {**os.environ, "TENGEN_CACHE_DIR": str(tmp_path / "cache"), "TENGEN_QUICK_COMPILE": "0", "TENGEN_PACK": "0"}
    run = lambda *command: subprocess.run([sys.executable, "-c", *command], capture_output=True, text=True, cwd=tmp_path, env=env, check=True)
    run(WRITE)
    made, found = run(READ_BACK, "model").stdout, run(READ_BACK, "model").stdout
    assert "tengen.compiler.driver" in made and "tengen.codegen.llvm" in made and found == "\n"


FIRST_STEP = """
import sys
import numpy
before = set(sys.modules)
import tengen, tengen.functional as F, tengen.module as M
from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.ops import calls
from tengen.ops.define import REGISTRY
from tengen.optimizer import SGD
compiled = [op.name for op in REGISTRY.values() if op.call.__code__ is not calls._FIRST]
net = tengen.models.mlp((4, 2))
gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1)
@trace
def step(x):
    with gm:
        loss = F.mean(F.relu(net(x)))
        gm.backward(loss)
    opt.step().clear_grad()
    return loss
step(Tensor(numpy.ones((2, 1, 2, 2), "float32"))).item()
new = [m for m, module in sys.modules.items() if m not in before and module.__spec__]
import tengen.distributed
import json
print(json.dumps([new, compiled, list(sys.modules)]))
"""


@pytest.fixture(scope="module")
def stepped():
    """(Modules that are loaded when a first traced training step is done, ops whose functions were compiled before it, modules that are
    loaded when `tengen.distributed` is, too)."""
    return json.loads(subprocess.run([sys.executable, "-c", FIRST_STEP], stdout=subprocess.PIPE, text=True, check=True).stdout)


def test_a_first_traced_step_loads_no_way_out(stepped):
    formats = {m for m in stepped[0] if m.startswith(("tengen.interop.", "tengen.models.pretrained", "tengen.quantization"))}
    artifacts = {f"tengen.deploy.{m}" for m in ("compile", "loader", "packages", "run", "verify")} & set(stepped[0])
    assert not formats and not artifacts


def test_functions_are_compiled_when_they_are_called(stepped):
    assert len(stepped[1]) <= 5, f"{stepped[1]} were compiled before anything was called"


def test_a_rank_loads_no_network_protocols(stepped):
    """Its server of values, which most jobs never ask for, is called by XML-RPC, over HTTP."""
    assert not {"xmlrpc", "http", "ssl", "email", "mpi4py"} & {m.partition(".")[0] for m in stepped[2]}


def test_names_of_packages_that_load_later():
    from tengen import deploy, interop, models

    assert deploy.load is deploy.load_graph and deploy.verify_artifact is deploy.verify.verify
    assert {"onnx", "weights"} <= set(dir(interop)) and "load" in dir(deploy) and "from_pretrained" in dir(models)
    assert interop.onnx.load.__module__ == "tengen.interop.onnx.load" and callable(models.from_pretrained)
    with pytest.raises(AttributeError, match="help: is it verify_artifact"):
        deploy.verify_artefact  # noqa: B018  (the name is asked for)


# ---- functions that are compiled when they are first called ------------------------------------------------------------


def test_threads_make_the_first_calls_at_once():
    from tengen.ops.calls import with_line

    for _ in range(50):
        start, found = threading.Barrier(4), []

        @with_line
        def f(x, *, axis: int = 3, more=(1,)):
            return x, axis, more

        def call(f=f, start=start, found=found):
            start.wait()
            found.append(f(7, axis=5))

        workers = [threading.Thread(target=call) for _ in range(4)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        assert found == [(7, 5, (1,))] * 4 and f(1, dim=2) == (1, 2, (1,))


def test_a_first_call_says_what_is_wrong_with_it():
    from tengen.ops.calls import with_line

    @with_line
    def f(x, y=1):
        raise ValueError("no")

    with pytest.raises(TypeError, match=r"f\(\) missing 1 required positional argument: 'x'"):
        f()
    with pytest.raises(ValueError, match="no"):
        f(1)
    assert f.__code__.co_filename == __file__ and f.__defaults__ == (1,)


# ---- records -----------------------------------------------------------------------------------------------------------


@record(frozen=True)
class Point:
    x: int
    y: int = 0


@record
class Bag:
    name: str
    things: list = field(default_factory=list)

    def __post_init__(self):
        self.things.append(self.name)


@record
class Sized(Bag):
    size: int = 1


@record(eq=False, slots=True)
class Slim:
    a: int
    b: int | None = None

    @property
    def both(self):
        return self.a, self.b


def test_a_record_is_a_dataclass():
    assert Point(1) == Point(1, 0) != Point(2) and hash(Point(1)) == hash(Point(1, 0)) and repr(Point(3)) == "Point(x=3, y=0)"
    assert [f.name for f in fields(Point)] == ["x", "y"] and replace(Point(1), y=2) == Point(1, 2) and Point.y == 0
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2
    match Point(5, 6):
        case Point(x, 6):
            assert x == 5


def test_a_record_derives_from_one_that_was_never_made():
    s = Sized("a", size=3)
    assert (s.name, s.things, s.size) == ("a", ["a"], 3) and Bag("b").things == ["b"] and Bag("b") == Bag("b")


def test_what_can_change_has_no_hash():
    assert Bag("a") == Bag("a") and Bag.__hash__ is None and Sized("a").__hash__ is None
    with pytest.raises(TypeError):
        hash(Bag("a"))


def test_what_dataclasses_does_with_one():
    """`fields`, `replace`, `asdict` and a dataclass that derives from a record see a dataclass, whether or not a record was made."""

    @record(frozen=True, slots=True)
    class Fixed:
        a: int
        b: list = field(default_factory=list, compare=False, repr=False)
        c: int = field(default=3, kw_only=True)

    assert [f.name for f in fields(Fixed)] == ["a", "b", "c"] and is_dataclass(Fixed) and Fixed.__match_args__ == ("a", "b")
    one = Fixed(1)
    assert repr(one) == "test_what_dataclasses_does_with_one.<locals>.Fixed(a=1, c=3)"
    assert one == Fixed(1, [7]) and hash(one) == hash(Fixed(1)) and one.b == [] and one.b is not Fixed(1).b
    assert replace(one, c=4) == Fixed(1, c=4) != one and asdict(one) == {"a": 1, "b": [], "c": 3}
    assert copy.copy(one) == one
    with pytest.raises(FrozenInstanceError):
        del one.a
    with pytest.raises(TypeError, match=r"Fixed.__init__\(\) missing 1 required positional argument: 'a'"):
        Fixed()
    assert [p.name for p in inspect.signature(Fixed).parameters.values()] == ["a", "b", "c"]

    @dataclass(frozen=True)
    class More(Point):
        z: int = 5

    assert More(1, 2, 3) == More(1, 2, 3) != More(1, 2) and [f.name for f in fields(More)] == ["x", "y", "z"]
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):
        dataclass(type("Free", (Point,), {}))


def test_records_of_one_and_of_no_field():
    """NaN is itself and equals no other one, as in tuples, which dataclasses compare."""

    @record(frozen=True)
    class One:
        x: object

    @record
    class Empty:
        pass

    nan = float("nan")
    assert One(nan) == One(nan) and One(nan) != One(float("nan")) and hash(One(1)) == hash((1,)) and One((1,)) != One(1)
    assert Empty() == Empty() and repr(Empty()).endswith("Empty()") and Empty() != One(1)


def test_methods_of_its_own_stay():
    @record(frozen=True)
    class Own:
        x: int

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 7

        def __repr__(self):
            return "own"

    assert Own(1) == Own(2) and hash(Own(1)) == 7 and repr(Own(1)) == "own"


def test_a_list_is_no_default():
    @record
    class Shared:
        x: list = []

    with pytest.raises(ValueError, match="mutable default <class 'list'> for field x"):
        Shared()


class Pair(NamedTuple):
    """Two."""

    a: int
    b: int = 2

    @property
    def sum(self) -> int:
        return self.a + self.b


def test_tuples_with_names():
    p = Pair(1)
    assert p == (1, 2) and p.sum == 3 and repr(p) == "Pair(a=1, b=2)" and p._replace(b=5).b == 5 and Pair.__doc__ == "Two."
    assert Pair._fields == ("a", "b") and Pair._field_defaults == {"b": 2} and pickle.loads(pickle.dumps(p)) == p
    assert Pair.__annotations__ == {"a": "int", "b": "int"} and Pair.__module__ == __name__
    a, b = p
    assert (a, b) == (1, 2) and isinstance(p, tuple) and type(pickle.loads(pickle.dumps(p))) is Pair


def test_slots():
    assert Slim(1).both == (1, None) and Slim(1) != Slim(1) and repr(Slim(1)) == "Slim(a=1, b=None)"
    with pytest.raises(AttributeError):
        Slim(1).c = 1


def test_a_record_that_is_unpickled_before_any_was_made():
    code = (
        "import pickle, sys; sys.path.insert(0, sys.argv[1]); import test_import as t\n"
        "p, s, b = pickle.loads(bytes.fromhex(sys.argv[2]))\n"
        "assert p == t.Point(1, 2) and s.both == (3, 4) and b == t.Bag('x')"
    )
    data = pickle.dumps((Point(1, 2), Slim(3, 4), Bag("x"))).hex().replace(__name__.encode().hex(), b"test_import".hex())
    done = subprocess.run([sys.executable, "-c", code, __file__.rpartition("/")[0], data], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


def test_threads_make_the_first_records_at_once():
    for _ in range(50):
        made, start = [], threading.Barrier(4)

        @record(frozen=True)
        class Fresh:
            a: int
            b: tuple = ()

        def make(cls=Fresh, made=made, start=start):
            start.wait()
            made.append(cls(1))

        workers = [threading.Thread(target=make) for _ in range(4)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        assert made == [Fresh(1)] * 4


@pytest.mark.parametrize("change, words", [
    ("sys.platform = 'win32'", "Tengen runs on Linux, and this is win32; help: a Linux container, or WSL 2 on Windows"),
    ("sys.platform = 'darwin'", "Tengen runs on Linux, and this is darwin"),
    ("sys.version_info = (3, 10, 13)", "Tengen needs CPython 3.11 or newer, and this is cpython"),
    ("sys.implementation.name = 'pypy'", "Tengen needs CPython 3.11 or newer, and this is pypy"),
])  # fmt: skip
def test_what_is_not_supported_is_one_sentence(change, words):
    done = subprocess.run([sys.executable, "-c", f"import sys; {change}; import tengen"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(f"ImportError: {words}")


LISTED = """
import importlib, json, pkgutil
import tengen
packages = ["tengen", *(m.name for m in pkgutil.walk_packages(tengen.__path__, "tengen.") if m.ispkg)]
found = {name: importlib.import_module(name) for name in packages}
print(json.dumps({n: sorted({*getattr(m, "__all__", ())} - {*dir(m)}) for n, m in found.items()}))
"""


def test_dir_lists_names_that_load_later():
    """What completes names in a notebook asks `dir`: it knew none of `tengen.quantization`."""
    missing = json.loads(subprocess.check_output([sys.executable, "-c", LISTED], text=True))
    assert len(missing) > 60 and not {name: names for name, names in missing.items() if names}


def test_what_a_record_takes_is_known_before_any_was_made():
    @record(frozen=True)
    class Point:
        x: int
        tags: list = field(default_factory=list)

    class Named(Point):
        def __init__(self, name):
            super().__init__(len(name))

    assert str(inspect.signature(Named)) == "(name)" and Named("ab").x == 2
    assert str(inspect.signature(Point)) == "(x: 'int', tags: 'list' = <factory>) -> None"
