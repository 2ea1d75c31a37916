"""Files that are no TFLite models, or damaged ones: every one gives a network or one error, in bounded memory and time."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tflite_cases import Case, T, k, theirs, to_bytes
from tflite_integer_ops import integer_lstms
from tflite_ops import both_ways

pytest.importorskip("tflite", reason="the package tflite is not installed: TFLite files are not read")

from tengen.base.errors import ArgumentError, FileFormatError, TraceError
from tengen.interop.tflite import flat, schema, to_module
from tengen.interop.tflite.flexbuffer import flat_map
from tengen.interop.tflite.load import load
from tengen.interop.tflite.reader import read

FILES = sorted((Path(__file__).parent / "tflite").glob("*.tflite"))
MADE = {  # what TensorFlow's converter made no file of
    repr(c): to_bytes(c) for c in (*integer_lstms(), *both_ways())
}
GOOD = {p.stem: p.read_bytes() for p in FILES} | MADE
X = T(np.ones((2, 3), np.float32))


def offsets(data):
    """Where a file has what looks like an offset, a length or a place in a vtable: small numbers."""
    words = np.frombuffer(data[: len(data) // 4 * 4], np.uint32)
    return (np.flatnonzero((words > 0) & (words < len(data))) * 4).tolist()


PLACES = {name: offsets(data) for name, data in GOOD.items()}


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_any_bytes_give_a_network_or_an_error(data):
    """Files cut off, bytes changed, and numbers changed that may be offsets and lengths."""
    name = data.draw(st.sampled_from(sorted(GOOD)))
    text = bytearray(GOOD[name])
    kind = data.draw(st.sampled_from(["noise", "cut", "bytes", "words"]))
    if kind == "noise":
        text = struct.pack("<I", 16) + b"TFL3" + data.draw(st.binary(max_size=300))
    elif kind == "cut":
        text = text[: data.draw(st.integers(0, len(text)))]
    for _ in range(data.draw(st.integers(1, 6))):
        if kind == "bytes":
            text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
        if kind == "words":
            word = data.draw(
                st.sampled_from([0, 1, 4, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFFFFFC, len(text)]) | st.integers(0, 400)
            )
            struct.pack_into("<I", text, data.draw(st.sampled_from(PLACES[name])), word)
    try:
        to_module(bytes(text))
    except (FileFormatError, ArgumentError):
        pass


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_damaged_file_becomes_a_program_or_an_error(data):
    """Beside structure, shapes, dtypes and options that do not fit one another are found when the program is recorded."""
    name = data.draw(st.sampled_from(["cnn_int8", "cnn_float", "branches", "counter", "audio", "sparse", *MADE]))
    text = bytearray(GOOD[name])
    for _ in range(data.draw(st.integers(1, 3))):
        struct.pack_into("<I", text, data.draw(st.sampled_from(PLACES[name])), data.draw(st.integers(0, 40)))
    try:
        load(bytes(text))
    except (FileFormatError, ArgumentError, TraceError):
        pass


@pytest.mark.parametrize("read", [to_module, load])
def test_a_variable_of_another_shape_than_its_first_value(read):
    """What the file itself gives a variable does not fit it: the file is damaged, whoever reads it."""
    text = bytearray(GOOD["counter"])
    places = [i for i in range(0, len(text) - 4, 4) if _refused(read, text, i)]
    assert places, "no change of one word to 0 makes such a file"


def _refused(read, text: bytearray, i: int) -> bool:
    changed = bytearray(text)
    struct.pack_into("<I", changed, i, 0)
    try:
        read(bytes(changed))
    except FileFormatError as e:
        return "/Variable" in str(e) and "is given a value of shape" in str(e)
    except (ArgumentError, TraceError):
        pass
    return False


def model(**changed):
    """A file with a graph that is changed."""
    tensor = {"Shape": np.array([2], np.int32), "Name": "x"}
    relu = {"OpcodeIndex": 0, "Inputs": np.array([0], np.int32), "Outputs": np.array([1], np.int32)}
    graph = {
        "Tensors": [tensor, {**tensor, "Name": "y"}],
        "Inputs": np.array([0], np.int32),
        "Outputs": np.array([1], np.int32),
        "Operators": [relu],
    }
    graph = {**graph, **changed.pop("graph", {})}
    code = {"DeprecatedBuiltinCode": 19, "BuiltinCode": 19}
    whole = {"Version": 3, "OperatorCodes": [code], "Subgraphs": [graph], "Buffers": [{}], **changed}
    return flat.write("Model", whole, b"TFL3")


def test_what_does_not_fit():
    assert to_module(model())(np.array([-1, 1], np.float32)).tolist() == [0, 1]
    ints = lambda *v: np.array(v, np.int32)
    relu = {"OpcodeIndex": 0, "Inputs": ints(0), "Outputs": ints(1)}
    tensor = {"Shape": ints(2), "Name": "x"}
    second = {"Tensors": [{**tensor, "Buffer": 1}, tensor]}
    for match, data in (
        ("is no TFLite model", b""),
        ("is no TFLite model", bytes(100)),
        ("version 4", model(Version=4)),
        ("without a graph", model(Subgraphs=[])),
        ("has the code 7 of 1", model(graph={"Operators": [{**relu, "OpcodeIndex": 7}]})),
        ("names tensor 9 of 2", model(graph={"Operators": [{**relu, "Inputs": ints(9)}]})),
        ("output without a tensor", model(graph={"Operators": [{**relu, "Outputs": ints(-1)}]})),
        ("reads tensor 1, which nothing before it computes", model(graph={"Operators": [{**relu, "Inputs": ints(1), "Outputs": ints(1)}]})),
        ("writes tensor 0, which is there already", model(graph={"Operators": [{**relu, "Outputs": ints(0)}]})),
        ("gives tensor 1, which nothing computes", model(graph={"Operators": []})),
        ("names tensor 3 of 2", model(graph={"Outputs": ints(3)})),
        (r"shape \(-3,\)", model(graph={"Tensors": [{**tensor, "Shape": ints(-3)}, tensor]})),
        ("has the shape", model(graph={"Tensors": [{**tensor, "Shape": ints(*[1 << 30] * 3)}, tensor]})),
        ("buffer 5 of 1", model(graph={"Tensors": [{**tensor, "Buffer": 5}, tensor]})),
        ("needs 8 bytes, its buffer has 5", model(Buffers=[{}, {"Data": np.zeros(5, np.uint8)}], graph=second)),
        ("lies at bytes", model(Buffers=[{}, {"Offset": 1 << 40, "Size": 8}], graph=second)),
        ("unknown dtype 99", model(graph={"Tensors": [{**tensor, "Type": 99}, tensor]})),
        ("finite", model(graph={"Tensors": [{**tensor, "Quantization": {"Scale": np.array([np.inf], np.float32)}}, tensor]})),
        ("3 scales along axis 0", model(graph={"Tensors": [{**tensor, "Quantization": {"Scale": np.ones(3, np.float32)}}, tensor]})),
    ):  # fmt: skip
        with pytest.raises(FileFormatError, match=match):
            to_module(data)


def test_operators_without_what_they_need():
    """Too few inputs, no outputs, a result that is no tensor."""
    ints = lambda *v: np.array(v, np.int32)
    code = lambda n: [{"DeprecatedBuiltinCode": min(n, 127), "BuiltinCode": n}]
    handle = {"Shape": ints(), "Type": 13, "Name": "v"}
    x = {"Shape": ints(2), "Name": "x"}
    q8 = {**x, "Type": 9, "Quantization": {"Scale": np.ones(1, np.float32)}}
    for number, graph in (
        (144, {"Operators": [{"OpcodeIndex": 0, "Inputs": ints(0), "Outputs": ints()}], "Outputs": ints(0)}),
        (142, {"Operators": [{"OpcodeIndex": 0, "Inputs": ints(), "Outputs": ints(1)}], "Tensors": [x, handle]}),
        (
            9,
            {
                "Operators": [{"OpcodeIndex": 0, "Inputs": ints(0, 1), "Outputs": ints()}],
                "Tensors": [x, q8],
                "Inputs": ints(0, 1),
            },
        ),
        (0, {"Operators": [{"OpcodeIndex": 0, "Inputs": ints(0), "Outputs": ints(1)}]}),
    ):
        with pytest.raises(FileFormatError):
            load(model(OperatorCodes=code(number), graph=graph))


CONV = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
LAYERS = {
    "CONV_2D": ((1, 4, 4, 3), (2, 3, 3, 3), "Conv2DOptions", CONV),
    "DEPTHWISE_CONV_2D": ((1, 4, 4, 3), (1, 3, 3, 3), "DepthwiseConv2DOptions", {**CONV, "DepthMultiplier": 1}),
    "FULLY_CONNECTED": ((2, 3), (4, 3), "FullyConnectedOptions", {}),
    "BATCH_MATMUL": ((2, 3, 4), (2, 4, 3), "BatchMatMulOptions", {}),
    "ADD": ((2, 3), (2, 3), "AddOptions", {}),
}


@pytest.mark.parametrize("op", LAYERS)
@pytest.mark.parametrize("kind, scale", [("float32", None), ("int8", (0.05, 3)), ("int8", None), ("int16", (0.05, 0))])
def test_weights_of_int8_without_scales_are_refused(op, kind, scale):
    """Nothing says what they stand for: TFLite refuses the layers, or multiplies by a scale of 0."""
    shape, weights, table, options = LAYERS[op]
    x, w = T(np.ones(shape, kind), quant=scale), k(np.ones(weights, np.int8), np.int8)
    with pytest.raises(ArgumentError, match=f"{op}, its input '.*' of INT8 has no scale, so that nothing says what its integers stand for"):
        to_module(to_bytes(Case(op, [x, w], [T(dtype=kind, quant=scale)], table, options)))


def test_tables_of_int8_without_scales_are_refused_where_floats_are_looked_up():
    table = k(np.arange(6).reshape(2, 3), np.int8)
    with pytest.raises(ArgumentError, match="EMBEDDING_LOOKUP, its input '.*' of INT8 has no scale"):
        to_module(to_bytes(Case("EMBEDDING_LOOKUP", [k([0, 1]), table], [T(dtype="float32")])))


def test_arrays_of_int8_without_scales_are_integers():
    """What moves elements, and a cast, have the bits of TFLite's interpreter."""
    a, b = np.array([[-128, 0, 127], [5, -6, 7]], np.int8), np.array([[1, -2, 3]], np.int8)
    for case, want in (
        (Case("GATHER", [k(a, np.int8), k([1, 0])], [T(dtype="int8")], "GatherOptions"), a[[1, 0]]),
        (Case("CONCATENATION", [T(b), k(a, np.int8)], [T(dtype="int8")], "ConcatenationOptions", {"Axis": 0}), np.concatenate([b, a])),
        (Case("CAST", [k(a, np.int8)], [T(dtype="float32")], "CastOptions"), a.astype(np.float32)),
        (Case("ADD", [T(a.astype(np.int16)), k(a, np.int16)], [T(dtype="int16")], "AddOptions"), a.astype(np.int16) * 2),
    ):
        data, given = to_bytes(case), [t.array for t in case.inputs if not t.fixed]
        got = to_module(data)(*given).numpy()
        assert got.dtype == want.dtype and got.tobytes() == want.tobytes() == theirs(data, *given)[0].tobytes(), case


def test_graphs_that_run_themselves():
    run = {"OpcodeIndex": 0, "BuiltinOptions": ("CallOnceOptions", {"InitSubgraphIndex": 0})}
    code = [{"DeprecatedBuiltinCode": 127, "BuiltinCode": 129}]
    empty = {"Operators": [run], "Tensors": [], "Inputs": np.zeros(0, np.int32), "Outputs": np.zeros(0, np.int32)}
    with pytest.raises(FileFormatError, match="graph 0 runs itself"):
        to_module(model(OperatorCodes=code, Subgraphs=[empty]))
    chain = [
        {**empty, "Operators": [{**run, "BuiltinOptions": ("CallOnceOptions", {"InitSubgraphIndex": i + 1})}] * 9}
        for i in range(8)
    ]
    with pytest.raises(FileFormatError, match="more than 1,000,000 operators"):
        to_module(model(OperatorCodes=code, Subgraphs=[*chain, {**empty, "Operators": []}]))
    with pytest.raises(FileFormatError, match="runs graph 8 of 8"):
        to_module(model(OperatorCodes=code, Subgraphs=chain))


def test_tables_that_lie_over_one_another_take_no_more_memory():
    """Ten thousand tensors that are one table, and as many graphs that are one, in a file of 40 kB; and more offsets than a file may hold."""
    good = bytearray(model(graph={"Tensors": [{"Shape": np.array([2], np.int32), "Name": "x"}] * 10_000}))
    tracemalloc.start()
    with pytest.raises(FileFormatError):
        read(bytes(good[:-4]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * len(good) + (64 << 20)
    b = flat.Bytes(bytes(range(200)) * 10)
    with pytest.raises(FileFormatError, match="more tables and offsets"):
        b.part(flat.MOST_PARTS + 100)


def test_memory_of_a_large_file():
    """Reading takes at most twice the file and 64 MB."""
    weight = k(np.zeros((4096, 2048)), np.float32)
    data = to_bytes(Case("FULLY_CONNECTED", [T(np.ones((1, 2048), np.float32)), weight], ["float32"], "FullyConnectedOptions"))
    tracemalloc.start()
    net = to_module(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert net.weights and peak < 2 * len(data) + (64 << 20)


def test_sparse_arrays():
    """Compressed rows of blocks, made dense; what does not fit is refused."""

    def sparse(**changed):
        level = lambda n: {"Format": 0, "DenseSize": n}
        rows = {"ArraySegments": ("Uint8Vector", {"Values": np.array([0, 1, 1], np.uint8)})}
        at = {"ArrayIndices": ("Uint8Vector", {"Values": np.array([1], np.uint8)})}
        about = {
            "TraversalOrder": np.array([0, 1, 2], np.int32), "BlockMap": np.array([1], np.int32),
            "DimMetadata": [level(2), {"Format": 1, **rows, **at, **changed}, level(2)],
        }  # fmt: skip
        tensor = {"Shape": np.array([2, 6], np.int32), "Name": "w", "Buffer": 1, "Sparsity": about}
        out = {"Shape": np.array([2, 6], np.int32), "Name": "y"}
        graph = {"Tensors": [tensor, out], "Inputs": np.zeros(0, np.int32)}
        code = [{"DeprecatedBuiltinCode": 124, "BuiltinCode": 124}]
        return model(OperatorCodes=code, Buffers=[{}, {"Data": np.array([1, 2], np.float32).view(np.uint8)}], graph=graph)

    found = read(sparse()).graph.tensors[0].data
    assert found.tolist() == [[0, 0, 1, 2, 0, 0], [0] * 6]
    (want,) = theirs(sparse())
    assert to_module(sparse())().tolist() == want.tolist() == found.tolist()
    for values in ([7], [1, 2]):
        with pytest.raises(FileFormatError, match="segments and .* indices do not fit"):
            read(sparse(ArrayIndices=("Uint8Vector", {"Values": np.array(values, np.uint8)})))


def test_options_of_custom_operators():
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    given_ = {"a": 1, "b": -2.5, "long name": 1 << 40, "yes": True, "text": "ab"}
    good = bytes(flexbuffers.Dumps(given_))
    assert flat_map(good) == given_
    for i in range(len(good)):
        for bad in (good[:i], good[:i] + bytes([good[i] ^ 0x55]) + good[i + 1 :]):
            try:
                flat_map(bad)
            except FileFormatError:
                pass


def test_names_that_are_no_text():
    """Names of a file may be anything; those of a program are printable, short and different."""
    names = ["a`b", "a\nb", "", "", "x" * 5000]
    tensors = [{"Shape": np.array([2], np.int32), "Name": n} for n in names] + [
        {"Shape": np.array([2], np.int32), "Name": "x" * 5000}
    ]
    graph = {"Tensors": tensors, "Inputs": np.arange(5, dtype=np.int32), "Outputs": np.array([5], np.int32), "Name": "`\0"}
    add = {"OpcodeIndex": 0, "Inputs": np.arange(5, dtype=np.int32), "Outputs": np.array([5], np.int32)}
    made = load(model(OperatorCodes=[{"DeprecatedBuiltinCode": 106, "BuiltinCode": 106}], graph={**graph, "Operators": [add]}))
    assert [p.name for p in made.inputs] == ["a?b", "a?b_1", "unnamed", "unnamed_1", "x" * 200] and made.name == "??"
    assert made(*np.ones((5, 2), np.float32)).tolist() == [5, 5]


def test_every_table_of_the_schema_is_known():
    """The stand-in for a table finds what each accessor of the schema package reads."""
    for union in set(schema.UNIONS.values()):
        for name in schema.names_of(union).values():
            assert name == "NONE" or schema.form(name).name == name
    fields = schema.form("Conv2DOptions").fields
    assert fields["StrideW"].slot == 6 and fields["DilationHFactor"].default == 1 and fields["StrideW"].dtype == np.int32
