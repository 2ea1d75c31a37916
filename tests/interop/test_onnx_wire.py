"""Large arrays of ONNX files are read where they lie: what is read is what the package onnx reads, also from damaged bytes."""

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import tengen.interop.onnx.wire as wire
from tengen.base.errors import FileFormatError
from tengen.interop.onnx import load, to_module
from tengen.interop.onnx.reader import read
from tengen.interop.onnx.wire import varint_of, without_arrays

RNG = np.random.default_rng(0)
MANY = wire.LARGE  # elements, so that arrays of one byte each are left out too


def model(*arrays, name="w"):
    """A model that gives its arrays as they are."""
    names = [f"{name}{'x' * i}" for i in range(len(arrays))]  # of several lengths, so that some arrays are not aligned
    nodes = [helper.make_node("Identity", [n], [f"y{i}"]) for i, n in enumerate(names)]
    g = helper.make_graph(
        nodes, "g", [], [helper.make_empty_tensor_value_info(f"y{i}") for i in range(len(arrays))],
        [numpy_helper.from_array(a, n) for a, n in zip(arrays, names)],
    )  # fmt: skip
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 21)])


INITIALIZER, GRAPH = 5, 7  # fields of GraphProto and ModelProto


def tensors(m):
    """All TensorProtos in a message."""
    for f, v in m.ListFields():
        if f.type == f.TYPE_MESSAGE:
            for inner in v if f.is_repeated else (v,):
                yield from (inner,) if inner.DESCRIPTOR.name == "TensorProto" else tensors(inner)


def whole(small, arrays):
    """The model that the parts stand for, as its bytes in one order."""
    m = onnx.ModelProto.FromString(small)
    for t in tensors(m):
        if (raw := arrays.of(t)) is not None:
            t.raw_data = bytes(raw)
            kept = [e for e in t.external_data if e.key != arrays.mark]
            del t.external_data[:]
            t.external_data.extend(kept)
    return m.SerializeToString(deterministic=True)


def as_read(data):
    """A model without what nothing reads, as its bytes in one order."""

    def clear(m):
        for number in wire.UNREAD.get({"ModelProto": "Model", "GraphProto": "Graph", "NodeProto": "Node", "TensorProto": "Tensor",
                                       "ValueInfoProto": "Value"}.get(m.DESCRIPTOR.name, ""), ()):  # fmt: skip
            if number in m.DESCRIPTOR.fields_by_number:
                m.ClearField(m.DESCRIPTOR.fields_by_number[number].name)
        for f, v in m.ListFields():
            if f.type == f.TYPE_MESSAGE:
                for inner in v if f.is_repeated else (v,):
                    clear(inner)

    clear(m := onnx.ModelProto.FromString(data))
    m.DiscardUnknownFields()  # what has the number of one that is not read, and another kind
    return m.SerializeToString(deterministic=True)


def test_arrays_of_every_kind(tmp_path):
    """Floats of three widths, integers, bfloat16; small and large, aligned and not; from bytes and from a file."""
    import ml_dtypes

    kinds = [np.float32, np.float16, np.float64, np.int8, np.int64, np.bool_, ml_dtypes.bfloat16]
    arrays = [RNG.integers(-2, 3, n).astype(k) for k in kinds for n in (MANY, 7)]
    m = model(*arrays)
    data = m.SerializeToString()
    small, left_out = without_arrays(data)
    assert len(left_out.views) == len(kinds) and len(small) < 10_000
    assert {np.frombuffer(v, np.uint8).ctypes.data % 8 for v in left_out.views} != {0}
    assert whole(small, left_out) == m.SerializeToString(deterministic=True)
    (tmp_path / "net.onnx").write_bytes(data)
    for source in (data, bytearray(data), tmp_path / "net.onnx", m):
        for a, t in zip(arrays, to_module(source)()):
            assert t.numpy().tobytes() == a.tobytes() and t.shape == a.shape


def test_a_mapped_file_is_let_go(tmp_path):
    """A model has its own memory: the file may be written again, or be cut."""
    a = RNG.standard_normal((512, 1024)).astype(np.float32)
    q = RNG.integers(-9, 9, (600, 1024)).astype(np.int8)
    (file := tmp_path / "net.onnx").write_bytes(model(a, q).SerializeToString())
    net, program = to_module(file), load(file)
    with open(file, "r+b") as f:
        f.truncate(100)
    for made in (net(), program()):
        assert made[0].numpy().tobytes() == a.tobytes() and made[1].numpy().tobytes() == q.tobytes()


def test_wrong_sizes_are_refused():
    for shape in ([MANY + 1], [3, MANY]):
        m = model(np.zeros(MANY, np.float32))
        m.graph.initializer[0].dims[:] = shape
        with pytest.raises(FileFormatError, match="reshape"):
            read(m.SerializeToString())


def tensor(*parts):
    return b"".join([varint_of(INITIALIZER << 3 | 2), varint_of(sum(map(len, parts))), *parts])


def raw(byte, size):
    return b"".join([varint_of(wire.RAW_DATA << 3 | 2), varint_of(size), byte * size])


def graph(*parts):
    return b"".join([varint_of(GRAPH << 3 | 2), varint_of(sum(map(len, parts))), *parts])


ODD = {  # what protobuf takes and few write
    "data twice": graph(tensor(raw(b"a", MANY), raw(b"b", MANY))), "then little": graph(tensor(raw(b"a", MANY), raw(b"b", 3))),
    "graph twice": graph(tensor(raw(b"a", 3))) + graph(tensor(raw(b"b", MANY)), tensor(raw(b"c", 4))) + graph(tensor(raw(b"d", MANY))),
    "unknown fields": graph(tensor(b"\xf8\x07\x05", raw(b"a", MANY)), b"\xf9\x07" + b"8" * 8) + b"\xfd\x07" + b"4444",
    "long numbers": graph(tensor(raw(b"a", MANY), b"\x10\x81\x80\x00")), "another kind": graph(tensor(b"\x48\x05", raw(b"a", MANY))),
}  # fmt: skip


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_odd_messages_mean_the_same(data):
    small, arrays = without_arrays(data)
    assert arrays.views and whole(small, arrays) == onnx.ModelProto.FromString(data).SerializeToString(deterministic=True)


SEED = graph(tensor(b"\x08\x03\x10\x03", raw(b"a", 40)), b"\x12\x01g", tensor(raw(b"b", 50))) + b"\x08\x09"


@settings(max_examples=600, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SEED)), st.integers(0, 2), st.binary(max_size=3)), max_size=4))
@example([])
def test_damaged_bytes_are_what_they_were(changes):
    """Bytes that are changed, put in or taken out: the same model, or no model."""
    data = SEED
    for at, taken, put in changes:
        data = data[:at] + put + data[at + taken :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "LARGE", 16)
        try:
            small, arrays = without_arrays(data)
            found = as_read(whole(small, arrays))
        except FileFormatError:
            return  # what has groups, too: no field of ONNX is one
        except DecodeError:
            found = None
    try:
        want = as_read(data)
    except DecodeError:
        assert found is None or len(small) < len(data)  # what is damaged may lie in what is not read
    else:
        assert found == want
    assert sum(map(len, arrays.views)) + len(small) <= len(data) + 50 * len(arrays.views)
