"""The bytes of an ONNX model without its large arrays, which stay where they are: the package onnx would copy each of them twice.

In: the bytes of a file. Out: bytes of the same model in which initializers of the main graph lack their `raw_data`, and views of what was
left out. Bytes that are no protobuf message come back as they are: the package onnx says what is wrong with them.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9  # fields of ModelProto, GraphProto and TensorProto
LARGE = 1 << 16  # bytes of a tensor from which on its array is left out
LENGTH_DELIMITED, WIDTHS = 2, {1: 8, 5: 4}  # kinds of fields; bytes of those that have a fixed width


class Odd(Exception):
    """What is no field of a message."""


def without_arrays(data: bytes | mmap.mmap) -> tuple[bytes, dict[int, memoryview]]:
    """(The model's bytes without large arrays, the arrays by the number of the initializer)."""
    arrays: dict[int, memoryview] = {}
    try:
        parts = list(without(memoryview(data), arrays))
    except Odd:
        arrays = {}
    return (b"".join(parts), arrays) if arrays else (bytes(data), {})


def without(model: memoryview, arrays: dict[int, memoryview]) -> Iterator[bytes | memoryview]:
    """The parts of a model; `arrays` takes what is left out. Errors: Odd."""
    count = 0
    for number, start, body, end in fields(model):
        if number != GRAPH or body is None:
            yield model[start:end]
            continue
        parts: list[bytes | memoryview] = []
        for inner, first, tensor, last in fields(graph := model[body:end]):
            if inner == INITIALIZER and tensor is not None:
                parts += cut(graph[tensor:last], count, arrays) if last - tensor >= LARGE else [graph[first:last]]
                count += 1
            else:
                parts.append(graph[first:last])
        yield from header(GRAPH, parts)


def cut(tensor: memoryview, count: int, arrays: dict[int, memoryview]) -> list[bytes | memoryview]:
    """The initializer of this number without its `raw_data`, the last one of which goes to `arrays`."""
    kept: list[bytes | memoryview] = []
    for number, start, body, end in fields(tensor):
        if number == RAW_DATA and body is not None:
            arrays[count] = tensor[body:end]
        else:
            kept.append(tensor[start:end])
    return header(INITIALIZER, kept)


def header(number: int, parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """A field that holds a message, from the parts of that."""
    return [varint_of(number << 3 | LENGTH_DELIMITED) + varint_of(sum(map(len, parts))), *parts]


def fields(message: memoryview) -> Iterator[tuple[int, int, int | None, int]]:
    """The fields of a message: (number, where it starts, where its bytes start if it has a length, where it ends). Errors: Odd."""
    at = 0
    while at < len(message):
        start = at
        key, at = varint(message, at)
        kind, body = key & 7, None
        if kind == 0:
            _, at = varint(message, at)
        elif kind == LENGTH_DELIMITED:
            length, body = varint(message, at)
            at = body + length
        elif kind in WIDTHS:
            at += WIDTHS[kind]
        else:
            raise Odd  # groups, which no field of ONNX is
        if at > len(message) or not key >> 3:
            raise Odd
        yield key >> 3, start, body, at


def varint(message: memoryview, at: int) -> tuple[int, int]:
    """(A number of 7 bits a byte, where it ends). Errors: Odd."""
    value = 0
    for i, byte in enumerate(message[at : at + 10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, at + i + 1
    raise Odd


def varint_of(value: int) -> bytes:
    """A number in 7 bits a byte."""
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])
