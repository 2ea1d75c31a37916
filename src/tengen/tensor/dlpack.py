"""DLPack: tensors that share memory with other libraries, without copying (the protocol of the array API standard).

Out: `Tensor.__dlpack__` gives a capsule whose memory lives until the consumer calls its deleter. In: `from_dlpack` wraps a
producer's memory. A Tensor is a value: exported memory is marked read-only, and who shares memory with a Tensor never sees it
change.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tengen.base.arguments import flags
from tengen.base.device import Device
from tengen.base.dtype import BY_SHORT, DType
from tengen.base.errors import TraceError
from tengen.compiler.plans import Layout
from tengen.runtime import native
from tengen.tensor.tensor import Tensor, settled, tensor_over, view_as_numpy

CPU, PINNED = 1, 3  # DLPack's numbers of the processor, and of its memory that a GPU reads too
KINDS = {"cpu": CPU}  # of `Device` -> of DLPack
READ_ONLY, COPIED = 1, 2
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
BFLOAT = 4


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = [("dl", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("dl", _DLTensor),
    ]  # fmt: skip


def _api(name: str, result, *arguments):
    f = ctypes.pythonapi[name]
    f.restype, f.argtypes = result, arguments
    return f


_NAMES = {False: b"dltensor", True: b"dltensor_versioned"}
_USED = {False: b"used_dltensor", True: b"used_dltensor_versioned"}
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # a consumer may call it without the interpreter's lock
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new = _api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)
_is_valid = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_is_valid_raw = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_raw = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

_exported: dict[int, tuple] = {}  # address of a managed tensor -> everything that it points to


@_DELETER
def _release(managed: int) -> None:
    _exported.pop(managed, None)


@_DESTRUCTOR
def _drop(capsule: int) -> None:
    """A capsule that nobody consumed still owns its tensor."""
    for name in _NAMES.values():
        if _is_valid_raw(capsule, name):
            _exported.pop(_pointer_raw(capsule, name), None)


def to_dlpack(self: Tensor, *, stream: Any = None, max_version=None, dl_device=None, copy: bool | None = None) -> Any:
    """A DLPack capsule over this tensor's memory, marked read-only where the consumer speaks DLPack 1.0.

    Args: stream: must be None. max_version: the newest version that the consumer knows. dl_device: must be the tensor's own,
        for the processor (1, 0). copy: True copies; otherwise the memory is shared, and the tensor copies before its next
        write.
    Errors: BufferError for another device or a stream; TraceError inside a trace.

    >>> import numpy as np
    >>> np.from_dlpack(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    if stream is not None:
        raise BufferError(f"__dlpack__(stream={stream!r}): a processor has no streams; help: pass None")
    if dl_device is not None and tuple(dl_device) != device_of(self):
        raise BufferError(f"__dlpack__(dl_device={dl_device!r}): the tensor is on {self.device}, DLPack's {device_of(self)}")
    if not settled(self):
        view_as_numpy(self)  # raises the error that names the user's line
        raise TraceError("a traced tensor has no memory")
    t = Tensor(self.numpy()) if copy else self.detach()
    versioned = max_version is not None and max_version[0] >= 1
    m: Any = _ManagedVersioned() if versioned else _Managed()
    numbers = (ctypes.c_int64 * max(2 * t.ndim, 1))(*t.shape, *t.strides)
    first = ctypes.cast(numbers, ctypes.POINTER(ctypes.c_int64))
    second = ctypes.cast(ctypes.addressof(numbers) + 8 * t.ndim, ctypes.POINTER(ctypes.c_int64))
    d = t.dtype
    code = BFLOAT if d.name == "bfloat16" else CODES[d.kind]
    data = native.address(t._data) if t.size else None
    m.dl = _DLTensor(data, *device_of(t), t.ndim, code, 8 * d.size, 1, first, second, 0)
    if versioned:
        m.major, m.minor, m.flags = 1, 0, COPIED if copy else READ_ONLY
    m.deleter = ctypes.cast(_release, ctypes.c_void_p)
    address = ctypes.addressof(m)
    _exported[address] = (m, numbers, t._data)
    return _new(address, _NAMES[versioned], _drop)


def device_of(self: Tensor) -> tuple[int, int]:
    """DLPack's name of the tensor's device: (1, 0) for the processor. Errors: BufferError for one that DLPack does not know."""
    d = self.device
    if d.kind not in KINDS:
        raise BufferError(f"DLPack has no number for the device {d}")
    return KINDS[d.kind], d.index


class _Owner:
    """Keeps a producer's memory until the last buffer over it is gone."""

    def __init__(self, managed: Any):
        self.managed = managed

    def __del__(self) -> None:
        if self.managed.deleter:
            _DELETER(self.managed.deleter)(ctypes.addressof(self.managed))


@flags
def from_dlpack(x: Any, /, *, device=None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of any object with ``__dlpack__`` (NumPy, PyTorch, JAX ...), without copying.

    The tensor never writes that memory: it copies before it is changed. If the other side writes, the tensor sees it.

    Args: device: where the tensor shall lie, by any of its names; None: where the memory is. copy: True copies, False raises
        BufferError where a copy would be needed.
    Errors: TypeError for an object without the protocol, or a dtype that Tengen does not have; BufferError for memory on
        another device; DeviceError for a device that is not here.

    >>> import numpy as np
    >>> from_dlpack(np.arange(3)).tolist()
    [0, 1, 2]
    """
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"a {type(x).__name__} has no __dlpack__; help: Tensor(x) copies arrays and sequences")
    if device is not None:
        Device.named(device)  # the only one that there is
    if hasattr(x, "__dlpack_device__") and (kind := x.__dlpack_device__())[0] not in (CPU, PINNED):
        raise BufferError(f"the memory is on DLPack's device {tuple(map(int, kind))}; help: move it to the processor first")
    try:
        capsule = x.__dlpack__(max_version=(1, 0))
    except TypeError as e:
        if "argument" not in str(e):  # it knows the argument, and refuses for a reason of its own
            raise
        capsule = x.__dlpack__()
    versioned = bool(_is_valid(capsule, _NAMES[True]))
    if not versioned and not _is_valid(capsule, _NAMES[False]):
        raise TypeError(f"{type(x).__name__}.__dlpack__ gave no DLPack capsule that is still to be used")
    m = (_ManagedVersioned if versioned else _Managed).from_address(_pointer(capsule, _NAMES[versioned]))
    if versioned and m.major > 1:
        raise BufferError(f"DLPack version {m.major}.{m.minor} is newer than 1")
    d = _dtype_of(m.dl)
    _rename(capsule, _USED[versioned])
    t = _wrapped(m.dl, d, _Owner(m))
    misaligned = bool(t.size) and native.address(t._data) % d.size
    if misaligned and copy is False:
        raise BufferError("the memory is not aligned to its elements, so it must be copied")
    return Tensor(view_as_numpy(t)) if copy or misaligned else t


def _dtype_of(dl: _DLTensor) -> DType:
    kinds = {code: kind for kind, code in CODES.items()} | {BFLOAT: "bf"}
    name = f"{kinds.get(dl.code, '?')}{1 if dl.code == CODES['b'] else dl.bits}"
    if dl.lanes != 1 or name not in BY_SHORT:
        raise TypeError(f"DLPack type code {dl.code} of {dl.bits} bits (lanes: {dl.lanes}) is no dtype of Tengen")
    return BY_SHORT[name]


def _wrapped(dl: _DLTensor, d: DType, owner: _Owner) -> Tensor:
    shape = tuple(dl.shape[i] for i in range(dl.ndim))
    strides = tuple(dl.strides[i] for i in range(dl.ndim)) if dl.strides else None
    if 0 in shape:
        return tensor_over(native.new_buffer(0), Layout(shape, d))
    return tensor_over(native.wrap(dl.data + dl.byte_offset, owner), Layout(shape, d, strides))
