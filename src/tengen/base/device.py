"""Devices: where tensors lie and programs run. The processor is the only one so far.

In: a name in MegEngine's or PyTorch's spelling. Out: a `Device`. Layouts, plans, programs and the memory pool know theirs by
it; two devices are one object or different.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tengen.base.errors import DeviceError


class Device:
    """A device, interned: compare with `is`. It equals whatever names it: ``x.device == "cpu"``, ``x.device == "cpu0"``. As
    with `DType`, not all that is equal hashes alike: the hash is that of the name.

    Attributes:
        kind: "cpu". index: its number among those of its kind. name: as PyTorch writes it, "cpu", or of other kinds "test:1".

    >>> Device.named("cpu:0") is Device.named("xpux"), str(cpu), cpu == "cpu0"
    (True, 'cpu', True)
    """

    __slots__ = ("index", "kind", "name")
    kind: str
    index: int
    name: str
    _table: dict[str, Device] = {}

    def __new__(cls, kind: str, index: int = 0) -> Device:
        made = super().__new__(cls)
        for slot, value in (("kind", kind), ("index", index), ("name", kind if (kind, index) == ("cpu", 0) else f"{kind}:{index}")):
            object.__setattr__(made, slot, value)
        return cls._table.setdefault(made.name, made)

    @staticmethod
    def named(name: Any = None) -> Device:
        """The device of a name. None and "default" name the default device.

        Args:
            name: a `Device`, or what has such a text: "cpu", "cpu0", "cpu:0" or "cpux" the processor, "xpu", "xpux" or "xpu0"
                the best device of this machine, "multithread4:0" the processor too (how many threads it uses is said by
                `set_threads`, and changes no result); torch.device("cpu").

        Errors: DeviceError for a name of no device, or of one that is not here.
        """
        if name is None or str(name) == "default":
            return _default[0]
        found = (name.kind, name.index) if isinstance(name, Device) else _read(str(name))
        for d in HERE:
            if found == (d.kind, d.index):
                return d
        text = repr(str(name))
        why = f"there is no device {text}" if found else f"{text} names no device"
        raise DeviceError(f"{why}; devices here: {', '.join(map(str, HERE))}; help: leave the device out, or name one of these")

    @property
    def type(self) -> str:
        """The kind, by PyTorch's name."""
        return self.kind

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Device does not change: {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Device does not change: {name!r} cannot be deleted")

    def __reduce__(self):
        return Device, (self.kind, self.index)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Device({self.name!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str):
            return self is other
        return self is _default[0] if other == "default" else _read(other) == (self.kind, self.index) or other == self.name

    def __hash__(self) -> int:
        return hash(self.name)


cpu = Device("cpu")
HERE = (cpu,)  # the devices of this machine, the best first
_default = [cpu]

# What kinds of devices are called in MegEngine and PyTorch -> the kind
KINDS = {
    "cpu": "cpu", "multithread": "cpu", "gpu": "cuda", "cuda": "cuda", "rocm": "rocm", "cambricon": "cambricon", "atlas": "atlas",
    "mps": "mps", "meta": "meta", "xpu": HERE[0].kind,
}  # fmt: skip
# a kind and an index ("x": any); behind ":" PyTorch's index, or after an index MegEngine's stream
_NAME = re.compile(r"([a-z]+?)(\d{1,9}|x)?(?::(\d{1,9}))?", re.ASCII)


def _read(name: str) -> tuple[str, int] | None:
    """(kind, index) of the device that a name means, whether or not it is here; None for a name of no device."""
    found = _NAME.fullmatch(name)
    kind, number, after = ("", None, None) if found is None else found.groups()
    if kind == "multithread":  # a number of threads, and an index
        return (KINDS[kind], int(after or 0)) if number not in (None, "x") and int(number) else None
    if kind not in KINDS or (number is not None and int(after or 0)):  # no device has a second stream
        return None
    return KINDS[kind], int(after or 0) if number is None else 0 if number == "x" else int(number)


def default_device() -> Device:
    """The device of tensors that are made without naming one."""
    return _default[0]


def set_default_device(device: Any) -> None:
    """Sets the device of tensors that are made without naming one. Errors: DeviceError, see `Device.named`."""
    _default[0] = Device.named(device)


def common_device(devices: Iterable[Device]) -> Device:
    """The one device of an operation's operands; the default device where there are none.

    Errors: DeviceError with the names of the devices, where they are several.
    """
    found = list(dict.fromkeys(devices))
    if len(found) > 1:
        first, second = map(str, found[:2])
        raise DeviceError(f"one operand lies on {first} and another on {second}; help: x.to({first!r}) brings a tensor to that device")
    return found[0] if found else _default[0]
