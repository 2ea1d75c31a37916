"""Files of others that ask for more than they hold: reading one takes at most twice its size and 64 MB, or is one FileFormatError.

A child process imports the readers and forks for each file, so that what the system counts of memory is that of one file.
"""

import json
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from exhaustive import exhaustive
from onnx import helper, parser

pytest.importorskip("tflite", reason="the package tflite is not installed: TFLite files are not read")

from tengen.base.errors import FileFormatError
from tengen.deploy.tensorfile import write_tensors
from tengen.interop.onnx import load, network, to_module
from tengen.interop.onnx.wire import header, varint_of
from tengen.interop.tflite.schema import form

CHILD = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
N = 2 << 20  # bytes of a file whose parts take one or two each


# ---- ONNX: messages by their bytes -----------------------------------------------------------------------------------------


def field(number, body):
    return header(number, len(body)) + body


def model(graph):
    """A model of opset 17."""
    return b"\x08\x08" + field(8, field(1, b"") + b"\x10\x11") + field(7, graph)


def net(op="Identity", inputs=field(1, b"x"), attribute=b""):
    """A graph of one node, from x to y."""
    x = field(11, field(1, b"x") + field(2, field(1, b"\x08\x01" + field(2, b""))))
    return field(1, inputs + field(2, b"y") + field(4, op.encode()) + attribute) + x + field(12, field(1, b"y"))


def array(shape, kind, *data, name=b"w"):
    return b"".join(b"\x08" + varint_of(d) for d in shape) + b"\x10" + varint_of(kind) + field(8, name) + b"".join(data)


def constant(name, kind, body):
    """The attribute of a Constant."""
    return field(5, field(1, name) + b"\xa0\x01" + varint_of(kind) + body)


def raw(kind, size):
    """A file that is one array."""
    bits = {22: 4}.get(kind, onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize * 8)
    node = field(1, field(1, b"x") + field(2, b"y") + field(4, b"Identity"))
    return model(field(5, array([size * 8 // bits], kind, field(9, bytes(size)), name=b"x")) + node + field(12, field(1, b"y")))


def calls(n):
    """Functions that call others twice each: 2^n nodes."""
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "l": 1]> g (float[2] x) => (float[2] y) {{ y = l.f{n - 1}(x) }}')
    for i in range(n):
        body = "a = Neg(x) y = Neg(a)" if i == 0 else f"a = l.f{i - 1}(x) y = l.f{i - 1}(a)"
        made.functions.append(parser.parse_function(f'<domain: "l", opset_import: ["": 17, "l": 1]> f{i} (x) => (y) {{ {body} }}'))
    return made.SerializeToString()


def sparse():
    values, places = helper.make_tensor("s", 1, [1], [1.0]), helper.make_tensor("i", 7, [1], [5])
    s = helper.make_sparse_tensor(values, places, [1 << 28])
    node, out = helper.make_node("Identity", ["s"], ["y"]), helper.make_empty_tensor_value_info("y")
    g = helper.make_graph([node], "g", [], [out], sparse_initializer=[s])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


def text(body):
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {body}').SerializeToString()


def grown(op, kind="int64"):
    """A constant that an operator makes large. op: what makes c of it, with a constant `big` of 2^28."""
    return text(f"""({kind}[1] x) => ({kind}[n] y) {{ big = Constant<value = int64[1] {{268435456}}>()
        one = Constant<value = {kind}[1] {{1}}>() {op} y = Add(c, x) }}""")


TOO_MUCH = "would take more memory than its size and 48 MB"
ONNX = {  # the file, what becomes of it, and the reader
    "nodes": (lambda: model(b"\x0a\x00" * (N // 2) + net()), TOO_MUCH), "arrays": (lambda: model(b"\x2a\x00" * (N // 2) + net()), TOO_MUCH),
    "functions": (lambda: model(net()) + b"\xca\x01\x00" * (N // 3), TOO_MUCH),
    "types of values": (lambda: model(b"\x6a\x00" * (N // 4) + net()), "loaded"),
    "opsets": (lambda: model(net()) + b"\x42\x00" * (N // 2), TOO_MUCH),
    "a group": (lambda: model(net()) + b"\xfb\x07\xfc\x07" + b"\x42\x00" * (N // 2), "no field of a message"),
    "integers": (lambda: model(net("Constant", b"", constant(b"value_ints", 7, field(8, bytes(N))))), TOO_MUCH),
    "floats": (lambda: model(net("Constant", b"", constant(b"value_floats", 6, field(7, bytes(3 * N))))), TOO_MUCH),
    "int64_data": (lambda: model(net() + field(5, array([N], 7, field(7, bytes(N))))), TOO_MUCH),
    "int32_data": (lambda: model(net() + field(5, array([N], 6, field(5, bytes(N))))), TOO_MUCH),
    "texts": (lambda: model(net() + field(5, array([N // 2], 8, b"\x32\x00" * (N // 2)))), TOO_MUCH),
    "dims": (lambda: model(net() + field(5, field(1, bytes(N)) + b"\x10\x01")), TOO_MUCH), "a sparse array": (sparse, TOO_MUCH),
    **{f"large, kind {kind}": (lambda kind=kind: raw(kind, 72 << 20), "loaded") for kind in (7, 22)},
    "a large Constant": (
        lambda: model(net("Constant", b"", constant(b"value", 4, field(5, array([18 << 20], 1, field(9, bytes(72 << 20))))))), "loaded"
    ),
}  # fmt: skip
RECORDED = {
    "Expand": (lambda: grown("c = Expand(one, big)"), "loaded"), "of floats": (lambda: grown("c = Expand(one, big)", "float"), "loaded"),
    "Tile": (lambda: grown("c = Tile(one, big)"), "loaded"),
    "ConstantOfShape": (lambda: grown("c = ConstantOfShape<value = int64[1] {1}>(big)"), "loaded"),
    "Pad": (lambda: grown("w = Constant<value = int64[2] {0, 268435456}>() c = Pad(one, w)"), "loaded"),
    "a window": (lambda: grown("c = HannWindow(big)", "float"), "268,435,456 elements that have to be known"),
    "Concat": (
        lambda: grown("a0 = Identity(one) " + " ".join(f"a{i + 1} = Concat<axis = 0>(a{i}, a{i})" for i in range(28)) + " c = Neg(a28)"),
        "loaded",
    ),
    "Loop": (lambda: grown("""b = Constant<value = bool {1}>() c = Loop<body = b (int64 i, bool c, int64[1] v) => (bool d, int64[1] w)
        { d = Identity(c) w = Add(v, v) }>(big, b, x)"""), "loaded"),
}  # fmt: skip


# ---- TFLite: tables that have vectors in common ----------------------------------------------------------------------------


def table(b, name, **values):
    """A table; texts, vectors and tables by their places."""
    fields = form(name).fields
    b.StartObject(max(f.slot for f in fields.values()) // 2 - 1)
    for key, v in values.items():
        f = fields[key]
        if f.kind == "number":
            word = "Bool" if f.dtype.kind == "b" else f.dtype.name.capitalize()
            getattr(b, f"Prepend{word}Slot")((f.slot - 4) // 2, v, f.default)
        else:
            b.PrependUOffsetTRelativeSlot((f.slot - 4) // 2, v, 0)
    return b.EndObject()


def tables(b, places):
    b.StartVector(4, len(places), 4)
    for p in reversed(places):
        b.PrependUOffsetTRelative(p)
    return b.EndVector()


def tflite(make):
    """A file; make: the builder -> tensors, operators, buffers, of which tensor 0 goes in and comes out."""
    import flatbuffers

    b = flatbuffers.Builder(1 << 20)
    codes = tables(b, [table(b, "OperatorCode", DeprecatedBuiltinCode=101, BuiltinCode=101, Version=1)])  # ABS
    first = table(b, "Tensor", Shape=b.CreateNumpyVector(np.array([2], np.int32)), Name=b.CreateString("x"))
    tensors, operators, buffers = make(b)
    ends = b.CreateNumpyVector(np.zeros(1, np.int32))
    graph = table(b, "SubGraph", Tensors=tables(b, [first, *tensors]), Operators=tables(b, operators), Inputs=ends, Outputs=ends)
    buffers = tables(b, [table(b, "Buffer"), *buffers])
    b.Finish(table(b, "Model", Version=3, OperatorCodes=codes, Subgraphs=tables(b, [graph]), Buffers=buffers), b"TFL3")
    return bytes(b.Output())


def many_tensors(b, count, extent=2, **values):
    shape = b.CreateNumpyVector(np.array([extent], np.int32))
    return [table(b, "Tensor", Shape=shape, Name=b.CreateString(f"t{i}"), **values) for i in range(count)]


def one_buffer(kind, size):
    """Tensors of one buffer of 1 MB."""

    def make(b):
        data = b.CreateNumpyVector(np.ones(1 << 20, np.uint8))
        return many_tensors(b, 300, (1 << 20) // size, Type=kind, Buffer=1), [], [table(b, "Buffer", Data=data)]

    return lambda: tflite(make)


def one_vector(name, dtype):
    """Operators that have one vector in common."""

    def make(b):
        given = {"Inputs": b.CreateNumpyVector(np.zeros(1, np.int32)), name: b.CreateNumpyVector(np.zeros(1 << 20, dtype))}
        tensors = many_tensors(b, 100)
        outs = [b.CreateNumpyVector(np.array([i + 1], np.int32)) for i in range(len(tensors))]
        return tensors, [table(b, "Operator", **given, Outputs=o) for o in outs], []

    return lambda: tflite(make)


def one_scale(b):
    scales, zeros = b.CreateNumpyVector(np.ones(1 << 18, np.float32)), b.CreateNumpyVector(np.zeros(1, np.int64))
    q = table(b, "QuantizationParameters", Scale=scales, ZeroPoint=zeros)
    return many_tensors(b, 100, 1 << 18, Type=9, Quantization=q), [], []


def four_bits(b):
    data = b.CreateNumpyVector(np.ones(72 << 20, np.uint8))
    return many_tensors(b, 1, 144 << 20, Type=17, Buffer=1), [], [table(b, "Buffer", Data=data)]


def many_dimensions(b):
    shape = b.CreateNumpyVector(np.ones(N, np.int32))
    return [table(b, "Tensor", Shape=shape, Name=b.CreateString("t"))], [], []


TFLITE = {
    **{f"one buffer, kind {kind}": (one_buffer(kind, size), "loaded") for kind, size in ((0, 4), (1, 2), (2, 4), (6, 1))},
    "large, of 4 bits": (lambda: tflite(four_bits), "loaded"),
    "inputs": (one_vector("Inputs", np.int32), "more tables and offsets"), "options": (one_vector("CustomOptions", np.uint8), "loaded"),
    "scales": (lambda: tflite(one_scale), "its arrays are more than"), "dimensions": (lambda: tflite(many_dimensions), "2097152 dimensions"),
}  # fmt: skip


# ---- MegEngine's graphs, and folders of Hugging Face -----------------------------------------------------------------------


def megengine(kind, settings):
    graph = {"inputs": [0], "outputs": [0], "calls": [], "layers": {"l": {"class": kind, "settings": settings}}}
    return lambda path: write_tensors(path, {"l.weight": np.zeros(4, np.float32)}, {"megengine": json.dumps(graph)})


def folder(**config):
    def write(path):
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(config, f)
        write_tensors(os.path.join(path, "model.safetensors"), {"w": np.zeros(100, np.float32)}, {}, padded=False)

    return write


MEGENGINE = {
    "groups of a Linear": (megengine("Linear", {"in_features": 30_000, "out_features": 30_000, "groups": 30_000}), "more than the 4 numbers"),
    "groups of a GroupNorm": (megengine("GroupNorm", {"num_channels": 1 << 28, "num_groups": 1, "groups": 1 << 30}), "has 1073741824 groups"),
    "a LayerNorm": (megengine("LayerNorm", {"normalized_shape": [1 << 28]}), "more than the 4 numbers"),
}  # fmt: skip
FOLDERS = {
    "layers": (folder(model_type="gpt2", n_layer=1 << 31, n_embd=1, n_head=1, n_positions=1, vocab_size=1), "describes a network of at least"),
    "a picture": (
        folder(model_type="vit", num_hidden_layers=1, hidden_size=1, num_attention_heads=1, intermediate_size=1, image_size=1 << 30,
               patch_size=1 << 29),
        "describes a network",
    ),
}  # fmt: skip


# ---- safetensors, one file and shards with an index ------------------------------------------------------------------------


def tensors(rows, data=b"", pad=0):
    """A file of the safetensors format; rows: name -> (dtype, shape, begin, end)."""
    table = {name: {"dtype": d, "shape": shape, "data_offsets": [a, b]} for name, (d, shape, a, b) in rows.items()}
    text = json.dumps(table).encode() + b" " * pad
    return len(text).to_bytes(8, "little") + text + data


def of_one_file(*args):
    def write(path):
        os.makedirs(path)
        with open(os.path.join(path, "model.safetensors"), "wb") as f:
            f.write(tensors(*args))

    return write


def shards(table, files):
    """A folder of shards. table: name -> file; files: name -> bytes."""

    def write(path):
        os.makedirs(path)
        with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
            json.dump({"weight_map": table}, f)
        for name, data in files.items():
            with open(os.path.join(path, name), "wb") as f:
                f.write(data)

    return write


def long_rows(size, pad=0):
    """Floats behind a header after which none is where its dtype may be, so that they are copied."""
    text = tensors({"w": ("F32", [size // 4], 0, size)}, b"", pad)
    return long_rows(size, pad + 1) if len(text) % 4 == 0 else text + bytes(size)


def written(data):
    def write(path):
        os.makedirs(path)
        with open(os.path.join(path, "model.safetensors"), "wb") as f:
            f.write(data())

    return write


EMPTY = {f"t{i}": ("U8", [0], 0, 0) for i in range(100_000)}
ONE = tensors({"w": ("F32", [4], 0, 16)}, bytes(16))
SAFETENSORS = {
    "tensors": (of_one_file(EMPTY), "its header: .*too many values"),
    "large, at odd places": (written(lambda: long_rows(72 << 20)), "loaded"),
    "large, of bools": (of_one_file({"w": ("BOOL", [72 << 20], 0, 72 << 20)}, bytes(72 << 20)), "loaded"),
    "one extent": (of_one_file({"w": ("F32", [1 << 62, 1 << 62], 0, 16)}, bytes(16)), "its tensor 'w': .* more than"),
    "extents": (of_one_file({"w": ("F32", [1 << 62] * 64, 0, 16)}, bytes(16)), "its tensor 'w'"),
    "one over another": (
        of_one_file({f"t{i}": ("U8", [1 << 20], 0, 1 << 20) for i in range(100)}, bytes(1 << 20)), "belong to no tensor, or to two"
    ),
    "names of an index": (shards({f"w{i}": "a.safetensors" for i in range(500_000)}, {"a.safetensors": ONE}), "too many values"),
    "files of an index": (shards({f"w{i}": f"{i}.safetensors" for i in range(20_000)}, {}), "it names 20000 files"),
    "shards": (
        shards({f"w{i}": f"{i}.safetensors" for i in range(3000)},
               {f"{i}.safetensors": tensors({f"w{i}": ("F32", [4], 0, 16)}, bytes(16)) for i in range(3000)}), "loaded"
    ),
    "one tensor in two shards": (
        shards({"w": "a.safetensors", "v": "b.safetensors"}, {"a.safetensors": ONE, "b.safetensors": ONE}), "does not place there"
    ),
}  # fmt: skip
KINDS = {"safetensors": SAFETENSORS, "ONNX": ONNX, "program": RECORDED, "TFLite": TFLITE, "MegEngine": MEGENGINE, "folder": FOLDERS}
FILES = {f"{kind}: {name}": case for kind, cases in KINDS.items() for name, case in cases.items()}

MEASURE = """
import json, os, resource, sys
from forked import apart
import test_hostile_files as t
from tengen import models
from tengen.base.errors import FileFormatError
from tengen.interop import onnx, tflite
from tengen.interop.migrate import load_megengine
from tengen.interop.weights.store import read_state

READERS = {"safetensors": read_state, "ONNX": onnx.to_module, "program": onnx.load, "TFLite": tflite.to_module, "MegEngine": load_megengine,
           "folder": models.from_pretrained}

def write(name, path):
    made = t.FILES[name][0]
    if name.split(":")[0] in ("MegEngine", "folder", "safetensors"):
        return made(path)
    with open(path, "wb") as f:
        f.write(made())

def read(name, path):
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))  # what asks for more is an error, and not the end of the machine
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        READERS[name.split(":")[0]](path)
        what = "loaded"
    except FileFormatError as e:
        what = str(e)[:3000]
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    size = sum(os.path.getsize(os.path.join(path, f)) for f in os.listdir(path)) if os.path.isdir(path) else os.path.getsize(path)
    print(json.dumps([name, what, peak, size]), flush=True)

onnx.load(t.text("(float[1] x) => (float[1] y) { y = Add(x, x) }"))  # what reading imports
tflite.to_module(t.tflite(lambda b: ([], [], [])))
for i, name in enumerate(t.FILES):
    path = os.path.join(sys.argv[1], str(i))
    apart(write, name, path)
    apart(read, name, path)
    os.path.isdir(path) or os.remove(path)
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What became of each file: (message, bytes of memory, bytes of the file)."""
    command = [sys.executable, "-c", MEASURE, str(tmp_path_factory.mktemp("files"))]
    done = subprocess.run(command, capture_output=True, text=True, env=CHILD, timeout=600)
    found = {name: row for name, *row in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == FILES.keys(), f"the child ended ({done.returncode}) before it had read all: {done.stderr[-2000:]}"
    return found


@exhaustive
@pytest.mark.parametrize("name", FILES)
def test_memory_of_reading(name, measured):
    what, peak, size = measured[name]
    assert re.search(FILES[name][1], what), what
    assert peak <= 2 * size + (64 << 20), f"{peak >> 20} MB for a file of {size >> 20} MB"
    if "large" in name:
        assert peak > size, "what loads has its size at least: otherwise memory is not counted"


def test_nodes_that_are_written_out_are_counted(monkeypatch):
    monkeypatch.setattr(network, "MOST_RECORDED", 500)
    with pytest.raises(FileFormatError, match="more than 500 nodes, with loops and functions written out"):
        load(calls(9))
    assert load(calls(6))(np.ones(2, np.float32)).numpy().tolist() == [1, 1]


# ---- arrays beside an ONNX model -------------------------------------------------------------------------------------------


def beside(path, places, size):
    """A model with arrays of 8 floats at these offsets of a file of so many bytes."""
    arrays = []
    for i, at in enumerate(places):
        t = onnx.TensorProto(name=f"w{i}", data_type=1, dims=[8], data_location=onnx.TensorProto.EXTERNAL)
        for key, value in {"location": "w.data", "offset": at, "length": 32}.items():
            t.external_data.add(key=key, value=str(value))
        arrays.append(t)
    nodes = [helper.make_node("Sum", [t.name for t in arrays], ["y"])]
    m = helper.make_model(helper.make_graph(nodes, "g", [], [helper.make_empty_tensor_value_info("y")], arrays))
    path.write_bytes(m.SerializeToString())
    np.arange(size // 4, dtype=np.float32).tofile(path.parent / "w.data")


def test_more_arrays_beside_a_model_than_files_that_may_be_open(tmp_path):
    """Each of them used to be a mapping of its own, with a descriptor."""
    beside(tmp_path / "net.onnx", [32 * i for i in range(1500)], 32 * 1500)
    got = to_module(tmp_path / "net.onnx")().numpy()
    assert got.tolist() == np.arange(12_000, dtype=np.float32).reshape(1500, 8).sum(0).tolist()


def test_arrays_of_one_place_are_one_array(tmp_path):
    beside(tmp_path / "net.onnx", [4, 4, 4, 36], 100)
    net = to_module(tmp_path / "net.onnx")
    assert net().numpy().tolist() == (3 * np.arange(1, 9, dtype=np.float32) + np.arange(9, 17)).tolist()
    net.weights["w0"][:] = 0.0  # the others keep theirs
    assert net().numpy().tolist() == (2 * np.arange(1, 9, dtype=np.float32) + np.arange(9, 17)).tolist()


def test_what_a_model_names_beside_it_is_one_error(tmp_path):
    """A file that is not there, a folder, a pipe that would be waited for."""
    file = tmp_path / "w.data"
    for there in (lambda: None, file.mkdir, lambda: os.mkfifo(file)):
        beside(tmp_path / "net.onnx", [0], 64)
        file.unlink()
        there()
        with pytest.raises(FileFormatError, match="cannot be read|only regular files"):
            to_module(tmp_path / "net.onnx")
        file.rmdir() if file.is_dir() else file.unlink(missing_ok=True)
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(FileFormatError, match="only regular files are read"):
        to_module(tmp_path / "pipe.onnx")
