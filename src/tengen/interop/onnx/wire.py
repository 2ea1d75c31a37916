"""The bytes of an ONNX model before the package onnx sees them: weighed, and without large arrays and what is never read.

In: the bytes of a file. Out: bytes of the same model in which large tensors, at any depth of the main graph, have a mark in place of their
`raw_data`, and views of what was left out: the package onnx would copy each of them several times. Notes that have no meaning for results
(documentation, types of values inside, metadata, training) are left out as well.

Two bytes of a message can ask for hundreds of bytes of memory, so what the fields take is summed before anything is made of them.
"""

from __future__ import annotations

import mmap
import secrets
from collections.abc import Iterator
from dataclasses import field
from typing import NoReturn

import numpy as np

from tengen.base.errors import FileFormatError
from tengen.base.record import record

LARGE = 1 << 16  # bytes of a tensor from which on its array is left out
DEEPEST = 100  # messages in messages, as protobuf has it
OVERHEAD = 48 << 20  # bytes of memory beside the arrays, for any file; and its size
LENGTH_DELIMITED, WIDTHS = 2, {1: 8, 5: 4}  # kinds of fields; bytes of those that have a fixed width
RAW_DATA, EXTERNAL_DATA = 9, 13  # fields of TensorProto

MESSAGES = {  # the messages that are looked into: of each field that is one, which
    "Model": {7: "Graph", 8: "Pair", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 11: "Value", 12: "Value", 15: "Sparse"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 14: "Type", 15: "Type", 22: "Sparse", 23: "Sparse"},
    "Tensor": {3: "Pair", 13: "Pair"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Function": {7: "Node", 9: "Pair", 11: "Attribute"},
    "Value": {2: "Type"},
    "Type": {1: "Array", 4: "Inner", 5: "Inner", 8: "Array", 9: "Inner"},
    "Array": {2: "Shape"},
    "Inner": {1: "Type", 2: "Type"},
    "Shape": {1: "Pair"},
    "Pair": {},
}  # fmt: skip
UNREAD = {  # fields that nothing here reads
    "Model": {6, 14, 20, 26}, "Graph": {10, 13, 14, 16}, "Node": {6, 9, 10}, "Attribute": {13}, "Tensor": {12, 16}, "Function": {8, 12, 14},
    "Value": {3, 4},
}  # fmt: skip
NUMBERS = {  # lists of numbers: how many bytes each has at least
    "Attribute": {7: 4, 8: 1}, "Tensor": {1: 1, 4: 4, 5: 1, 7: 1, 10: 8, 11: 1}, "Sparse": {3: 1},
}  # fmt: skip
COSTS = {"Node": 900, "Attribute": 300, "Graph": 1000, "Function": 1000, "Tensor": 1800, "Value": 300, "Sparse": 2000}  # bytes, about, in all
COST, TEXT, NUMBER = 100, 60, 36  # of another message; of a text beside its letters; of a number in a list


@record
class Arrays:
    """What was left out of a model, by the numbers that stand in its tensors beside a mark that no file can know."""

    mark: str = field(default_factory=lambda: secrets.token_hex(16))
    views: list[memoryview] = field(default_factory=list)
    left: int = OVERHEAD  # bytes of memory that what is made of the model may still take

    def take(self, size: int) -> None:
        """Counts memory. FileFormatError where it is out of proportion to the file."""
        self.left -= size
        if self.left < 0:
            raise FileFormatError(
                f"its nodes, names and numbers would take more memory than its size and {OVERHEAD >> 20} MB; help: arrays are kept as raw_data"
            )

    def of(self, tensor) -> memoryview | None:
        """The bytes that were left out of a TensorProto. FileFormatError for one that has others too, whose order is lost."""
        found = [self.views[int(e.value)] for e in tensor.external_data if e.key == self.mark] if self.views else []
        if found and tensor.HasField("raw_data"):
            raise FileFormatError(f"array {tensor.name!r} has its data twice")
        return found[-1] if found else None


def without_arrays(data: bytes | mmap.mmap) -> tuple[bytes, Arrays]:
    """(The model's bytes without large arrays and what is not read, the arrays).

    Errors: FileFormatError for bytes that are no protobuf message, and where its messages take memory out of proportion to the file.
    """
    arrays = Arrays(left=OVERHEAD + len(data))
    return b"".join(Reducing(memoryview(data), arrays).message("Model", 0, len(data), 0, False)), arrays


def odd(at: int) -> NoReturn:
    """FileFormatError for what is no field of a message."""
    raise FileFormatError(f"this is no ONNX model: at byte {at} lies no field of a message")


class Reducing:
    """Reads the messages of one model, and counts in `arrays` what they take."""

    def __init__(self, data: memoryview, arrays: Arrays):
        self.data, self.arrays, self.take = data, arrays, arrays.take

    def message(self, kind: str, at: int, end: int, depth: int, function: bool) -> list[bytes | memoryview]:
        """The parts of a message that are left of it. function: whether it is in a function, whose arrays stay."""
        if depth > DEEPEST:
            raise FileFormatError(f"this is no ONNX model: messages lie more than {DEEPEST} deep in each other")
        inside, unread, numbers = MESSAGES[kind], UNREAD.get(kind, ()), NUMBERS.get(kind, {})
        cut = kind == "Tensor" and end - at >= LARGE and not function
        parts: list[bytes | memoryview] = []
        kept = at  # from where on bytes stay as they are
        for number, start, body, last in fields(self.data, at, end):
            if number in inside and body is not None:
                self.take(COSTS.get(inside[number], COST))
                made = self.message(inside[number], body, last, depth + 1, function or inside[number] == "Function")
                if len(made) < 2 and sum(map(len, made)) == last - body:
                    continue  # one piece, as it was
                self.keep(parts, kept, start, header(number, sum(map(len, made))), *made)
            elif number in unread:
                self.keep(parts, kept, start)
            elif cut and number == RAW_DATA and body is not None:
                entry = pair(self.arrays.mark, str(len(self.arrays.views)))
                self.arrays.views.append(self.data[body:last])
                self.take(last - body)
                self.keep(parts, kept, start, header(EXTERNAL_DATA, len(entry)), entry)
            else:
                width = numbers.get(number)
                count = 0 if width is None else 1 if body is None else (last - body) // width if width > 1 else ends(self.data[body:last])
                self.take(NUMBER * count if count else TEXT + 2 * (last - body) if body is not None else 0)
                continue
            kept = last
        self.keep(parts, kept, end)
        return parts

    def keep(self, parts: list[bytes | memoryview], start: int, end: int, *more: bytes | memoryview) -> None:
        """Adds to the parts of a message what stays of it, and others behind that."""
        if end > start:
            self.take(COST)
            parts.append(self.data[start:end])
        parts += more


def ends(numbers: memoryview) -> int:
    """How many numbers of 7 bits a byte end in these bytes."""
    return sum(b < 128 for b in numbers) if len(numbers) < 64 else int((np.frombuffer(numbers, np.uint8) < 128).sum())


def header(number: int, size: int) -> bytes:
    """What stands before the bytes of a field that has a length."""
    return varint_of(number << 3 | LENGTH_DELIMITED) + varint_of(size)


def pair(key: str, value: str) -> bytes:
    """A StringStringEntryProto."""
    return b"".join(header(i, len(s)) + s.encode() for i, s in ((1, key), (2, value)))


def fields(message: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int | None, int]]:
    """The fields of a message: (number, where it starts, where its bytes start if it has a length, where it ends).

    Errors: FileFormatError.
    """
    while at < end:
        start = at
        key = message[at]
        at += 1
        if key > 127:
            key, at = varint(message, start, end)
        kind, body = key & 7, None
        if kind == LENGTH_DELIMITED:
            length, body = varint(message, at, end)
            at = body + length
        elif kind == 0:
            _, at = varint(message, at, end)
        elif kind in WIDTHS:
            at += WIDTHS[kind]
        else:
            odd(start)  # groups, which no field of ONNX is
        if at > end or not key >> 3:
            odd(start)
        yield key >> 3, start, body, at


def varint(message: memoryview, at: int, end: int) -> tuple[int, int]:
    """(A number of 7 bits a byte, where it ends). Errors: FileFormatError."""
    value = 0
    for i in range(min(10, end - at)):
        byte = message[at + i]
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, at + i + 1
    odd(at)


def varint_of(value: int) -> bytes:
    """A number in 7 bits a byte."""
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])
