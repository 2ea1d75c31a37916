"""Files that ask for more than they hold: reading takes time in proportion to the file, and at most twice its size plus 64 MB.

Memory is what the system counts of a process that reads one file, and time the number of calls for n and 2n: neither depends on how fast
the machine is.
"""

import gc
import hashlib
import json
import os
import random
import re
import subprocess
import sys

import pytest
from exhaustive import exhaustive

from tengen import load, load_graph
from tengen.base.errors import FileFormatError
from tengen.deploy.tensorfile import NO_SUM
from tengen.ir import plain_json
from tengen.ir.plain_json import depth, load_json, weigh

CHILD = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}


def sealed(meta, tensors=None, rest=b"") -> bytes:
    """A file with a checksum that fits. meta: the table of texts, or the whole header."""
    header = meta if isinstance(meta, str) else json.dumps({"__metadata__": {**meta, "checksum": NO_SUM}, **(tensors or {})})
    data = len(raw := header.encode()).to_bytes(8, "little") + raw + rest
    return data.replace(NO_SUM.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def model(graph: str, tensors=None, rest=b"", **more) -> bytes:
    return sealed({"format": "tengen-model", "version": "1", "tengen": "0.1", "graph": graph, **more}, tensors, rest)


def checkpoint(structure: str) -> bytes:
    return sealed({"format": "tengen-checkpoint", "version": "1", "tengen": "0.1", "structure": structure})


def graph(**parts) -> str:
    g = {
        "name": "g",
        "inputs": [["x", "f32[2]"]],
        "constants": [],
        "states": [],
        "nodes": [],
        "outputs": [["y", 0]],
        "checks": [],
    }
    return json.dumps({"format": "tengen-graph", "version": 1, "graph": {**g, **parts}}, separators=(",", ":"))


def node(op="neg", inputs=(0,), attrs=None, type="f32[2]", where="a.py:3"):
    return {"op": op, "inputs": list(inputs), "attrs": attrs or {}, "outputs": [["", type]], "where": where}


def chain(n):
    return {"nodes": [node(inputs=[i]) for i in range(n)], "outputs": [["y", n]]}


def many_constants(n):
    table = {f"c{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(n)}
    return model(graph(constants=[[f"c{i}", "f32[0]"] for i in range(n)]), table)


# what a file may hold: n -> the file. All of it loads, or fails for a reason that is found at the end
FAMILIES = {
    "nodes": lambda n: model(graph(**chain(n))),
    "inputs": lambda n: model(graph(inputs=[[f"x{i}", "f32[2]"] for i in range(n)])),
    "outputs": lambda n: model(graph(outputs=[[f"y{i}", 0] for i in range(n)])),
    "constants": many_constants,
    "types": lambda n: model(graph(inputs=[[f"x{i}", f"f32[{i}]"] for i in range(n)])),
    "symbols": lambda n: model(graph(inputs=[[f"x{i}", f"f32[N{i}]"] for i in range(n)])),
    "extents": lambda n: model(
        graph(inputs=[["x", "f32[N]"]], nodes=[node(type="f32[" + ",".join(["N * 2 + N * 3"] * 60) + "]")] * n)
    ),
    "operands": lambda n: model(graph(nodes=[node("concat", [0] * n, {"axis": 0}, f"f32[{2 * n}]")])),
    "keys of attributes": lambda n: model(graph(nodes=[node(attrs={f"k{i}": 0 for i in range(n)})])),
    "checks": lambda n: model(
        graph(nodes=[node("any", [0], {"axes": {"tuple": [0]}, "keepdims": False}, "bool[]")], checks=[[1, "IndexOutOfRange", "m", None]] * n)
    ),
    "graphs inside": lambda n: model(graph(nodes=[node(attrs={"body": {"graph": json.loads(graph(**chain(n)))["graph"]}})])),
    "numbers": lambda n: checkpoint('{"list":[' + "1," * n + "1]}"),
    "lists": lambda n: checkpoint('{"list":[' + '{"list":[]},' * n + "1]}"),
    "texts": lambda n: checkpoint(json.dumps({"list": [f"a{i}" for i in range(n)]})),
    "dict": lambda n: checkpoint(json.dumps({"dict": [[f"a{i}", 1] for i in range(n)]})),
    "tensors": lambda n: sealed({}, {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(n)}),
    "schedules": lambda n: model(graph(), schedules=json.dumps({f"{i:032x}": "grain(elements=1)" for i in range(n)})),
}  # fmt: skip
READERS = {name: load if name in ("numbers", "lists", "texts", "dict", "tensors") else load_graph for name in FAMILIES}


def calls(reader, path) -> tuple[int, str]:
    """How many functions are called, C's too, and what came of it. None that end the life of what other tests have left."""
    n = 0
    gc.collect()
    gc.disable()

    def count(frame, event, arg):
        nonlocal n
        n += event in ("call", "c_call")

    try:
        sys.setprofile(count)
        try:
            reader(path)
        finally:
            sys.setprofile(None)
            gc.enable()
    except FileFormatError as e:
        return n, str(e)
    return n, "loaded"


@pytest.mark.parametrize("name", FAMILIES)
def test_time_is_linear(name, tmp_path):
    found = []
    for n in (100, 100, 400, 800):  # the first imports what reading needs
        (tmp_path / "f").write_bytes(FAMILIES[name](n))
        found.append(calls(READERS[name], tmp_path / "f"))
    assert len({why[:40] for _, why in found}) == 1, found
    _, (few, _), (some, _), (more, _) = found
    assert more - some < 1.6 * (some - few) + 200, (
        "from 400 to 800 not more than 4/3 of what it takes from 100 to 400, and some"
    )


def graphs_in_graphs(n):
    attrs = {"body": {"graph": None}, "carries": 1, "limit": None, "keep": False, "wants": {"tuple": []}}
    before, behind = graph(nodes=[node("while_loop", attrs=attrs)]).split("null", 1)
    inner = before.removeprefix('{"format":"tengen-graph","version":1,"graph":')
    return before + inner * (n - 1) + json.dumps(json.loads(graph())["graph"]) + behind.removesuffix("}") * (n - 1) + behind


# what no file of this size may hold, or what takes more memory than its text: the file, and what the message says
HOSTILE = {
    "objects": (lambda: model("[" + "{}," * 2_000_000 + "{}]"), "too many values for a file of"),
    "inputs": (lambda: model(graph(inputs=[[f"x{i}", "f32[2]"] for i in range(200_000)])), "too many values"),
    "nodes": (lambda: model(graph(**chain(60_000))), "too many values"),
    "schedules": (lambda: model(graph(), schedules="[" + "{}," * 1_000_000 + "{}]"), "its schedules: .*too many values"),
    "lists": (lambda: checkpoint("[" + "[]," * 1_000_000 + "[]]"), "its structure: .*too many values"),
    "numbers": (lambda: checkpoint('{"list":[' + "7777," * 2_000_000 + "1]}"), "too many values"),
    "texts": (lambda: checkpoint(json.dumps({"list": [f"{i}" for i in range(700_000)]})), "too many values"),
    "keys": (lambda: sealed("{" + ",".join(f'"a{i}":0' for i in range(700_000)) + "}"), "its header: .*too many values"),
    "tensors": (
        lambda: sealed({}, {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(100_000)}),
        "its header: .*too many values",
    ),
    "deep": (lambda: checkpoint("[" * 2_000_000), "too many values"),
    "deep objects": (lambda: checkpoint('{"a":' * 100_000), "nested too deeply"),
    "graphs in graphs": (lambda: model(graphs_in_graphs(10_000)), "nested too deeply"),
    "quotes": (lambda: checkpoint('"' + '\\"' * 5_000_000), "Unterminated string"),
    "backslashes": (lambda: checkpoint('"' + "\\\\" * 5_000_000 + '\\"'), "Unterminated string"),
    "one wide character": (lambda: checkpoint(json.dumps("x" * 20_000_000 + "\U0001f600")), "too many values"),
    "a wide header": (lambda: sealed('{"__metadata__":{"a":"' + "x" * 9_000_000 + '\U0001f600"}}'), "is not ASCII"),
    "a long integer": (lambda: checkpoint("1" * 9_000_000), "the integer 1111.*is too large"),
    "a long float": (lambda: checkpoint("1." + "1" * 9_000_000), "the number 1.11.*is too large, or too long"),
    "a float beyond all": (lambda: checkpoint("1e400"), "the number 1e400... is too large"),
    "no number": (lambda: checkpoint("NaN"), "NaN is not JSON"),
    "a key twice": (lambda: checkpoint('{"dict":[],"dict":[]}'), "a key stands twice"),
    "a long name": (lambda: model(graph(name="x" * 9_000_000)), "is not a name for a graph"),
    "a long op": (lambda: model(graph(nodes=[node("x" * 9_000_000)])), "is not a name for an op"),
    "a long place": (lambda: model(graph(nodes=[node(type="f32[3]", where="x" * 9_000_000)])), "its outputs are"),
    "a long type": (lambda: model(graph(inputs=[["x", "f32[" + "N+" * 3_000_000 + "N]"]])), "a type has 6000006 characters"),
    "long extents": (lambda: model(graph(inputs=[["x", "f32[" + "N+" * 300 + "N]"]])), "more than 256 terms"),
    "a long attribute": (lambda: model(graph(nodes=[node(attrs={"a": "x" * 9_000_000})])), "has 9000000 characters"),
    "many operands": (lambda: model(graph(nodes=[node("concat", [0] * 100_000, {"axis": 0})])), "operands, 16384 are allowed"),
    "a long checksum": (
        lambda: sealed('{"__metadata__":{"checksum":"' + "y" * 9_000_000 + '"}}'), "its checksum is not one"
    ),
}  # fmt: skip
# what is legitimate and large loads, within the same memory
LARGE = {
    "nodes": (lambda: model(graph(**chain(12_000))), load_graph),
    "bytes": (lambda: checkpoint(json.dumps({"bytes": "AAAA" * 5_000_000})), load),
    "a text": (lambda: checkpoint(json.dumps("字" * 2_000_000 + "," * 5_000_000)), load),
    "numbers": (lambda: checkpoint('{"list":[' + "1," * 500_000 + "1]}"), load),
}

MEASURE = """
import json, os, resource, sys
from forked import apart
import test_large_files as t
import tengen

def case(kind, name):
    return t.HOSTILE[name] if kind == "HOSTILE" else t.LARGE[name]

def write(kind, name):
    with open(sys.argv[1], "wb") as f:
        f.write(case(kind, name)[0]())

def read(kind, name):
    with open(sys.argv[1], "rb") as f:
        model = b'"tengen-model"' in f.read(3000)
    reader = case(kind, name)[1] if kind == "LARGE" else tengen.load_graph if model or name == "a long name" else tengen.load
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        reader(sys.argv[1])
        what = "loaded"
    except tengen.base.errors.FileFormatError as e:
        what = str(e)[:3000]
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    print(json.dumps([kind, name, what, peak, os.path.getsize(sys.argv[1])]), flush=True)

for reader in (tengen.load, tengen.load_graph):  # what reading imports
    with open(sys.argv[1], "wb") as f:
        f.write(t.checkpoint('{"list":[1]}') if reader is tengen.load else t.model(t.graph(**t.chain(2))))
    reader(sys.argv[1])
for kind, name in json.loads(sys.argv[2]):
    apart(write, kind, name)
    apart(read, kind, name)
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What became of a file, read in a process of its own, which a child forks for each of them; its memory is checked."""
    cases = [("HOSTILE", name) for name in HOSTILE] + [("LARGE", name) for name in LARGE]
    command = [sys.executable, "-c", MEASURE, str(tmp_path_factory.mktemp("large") / "f"), json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, env=CHILD, timeout=600)
    lines = map(json.loads, done.stdout.splitlines())
    found = {(kind, name): (what, peak, size) for kind, name, what, peak, size in lines}

    def of(kind: str, name: str) -> str:
        assert (kind, name) in found, f"the child ended ({done.returncode}) before it had read this file: {done.stderr[-2000:]}"
        what, peak, size = found[kind, name]
        assert peak <= 2 * size + (64 << 20), f"{peak} bytes for a file of {size}"
        assert kind == "HOSTILE" or peak > size, "what loads has its size at least: otherwise memory is not counted"
        return what

    return of


@exhaustive
@pytest.mark.parametrize("name", HOSTILE)
def test_memory_of_hostile_files(name, measured):
    assert re.search(HOSTILE[name][1], measured("HOSTILE", name))


@exhaustive
@pytest.mark.parametrize("name", LARGE)
def test_memory_of_large_files(name, measured):
    assert measured("LARGE", name) == "loaded"


# ---- the scale itself


def test_strings_are_weighed_as_strings():
    """What looks like structure inside of a text is text; keys are counted exactly."""
    for text, pairs in (
        ('"' + "{}[]," * 1_000_000 + '"', 0), ('{"a": 1, "b" : {"c":"d"}, "e\\"f":[":"]}', 4), ("[]", 0), ('{"a":{"a":{}}}', 2),
        ('{"\\\\":1,"\\"":2}', 2),
    ):  # fmt: skip
        assert weigh(text) == pairs
        assert load_json(text) == json.loads(text)
    for text in ('{"a":1,"a":2}', '[{"a":1},{"b":1,"b":1}]', '{"a":{"c":1,"c":2},"b":3}'):
        for whole in (text, f'["{"x" * plain_json.LIGHT}", {text}]'):  # keys are counted in another way where a text is long
            with pytest.raises(FileFormatError, match="a key stands twice"):
                load_json(whole)
    with pytest.raises(FileFormatError, match="too many values"):
        weigh("[" + "0," * 2_000_000 + "0]")
    assert weigh("[" + "0," * 2_000_000 + "0]", size=400 << 20) == 0  # a large file may hold many


def test_a_string_with_a_wide_character_is_weighed_as_wide():
    """Each of its characters may take four bytes. A `u` behind an escaped backslash is no escape: it makes no string wide, and a wide
    one no shorter."""
    rng = random.Random(7)
    for _ in range(500):
        pieces = rng.choices(["x", "u", "\\", '"', "\n", "\\u", "\U0001f600"], [4, 4, 4, 1, 1, 4, 0.3], k=rng.randrange(1, 60))
        text = json.dumps(x := "".join(pieces))
        more = plain_json._widened(f"[{text}]", 1, 1 + len(text))
        assert more == 0 if x.isascii() else len(text) + more >= 4 * len(x), x


def test_depth():
    assert [depth(x) for x in (1, [], [1], {"a": [1]}, [[], [[]], {"a": {}}])] == [1, 1, 2, 3, 3]
