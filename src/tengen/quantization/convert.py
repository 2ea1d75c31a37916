"""From float networks to quantisation-aware training, and from there to integers, under MegEngine's names.

In: a `Module` whose layers have quantisable classes. `quantize_qat` puts `module.qat` layers in their place, `quantize` puts
`module.quantized` layers there. Plain functions between them stay what they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tengen import functional as F
from tengen import module as Float
from tengen.base.errors import UsageWarning, warn_once
from tengen.logger import get_logger
from tengen.module import qat as QAT
from tengen.module import quantized as Quantized
from tengen.module.module import HOOKS, Module
from tengen.module.qat import QATModule
from tengen.quantization.dtypes import QuantizationError
from tengen.quantization.observer import PassiveObserver
from tengen.quantization.qconfig import QConfig, ema_fakequant_qconfig
from tengen.tensor import Tensor

NAMES = [name for name in Quantized.__all__ if name != "QuantizedModule"]
FLOAT_TO_QAT: dict[type, Any] = {getattr(Float, name): getattr(QAT, name) for name in NAMES}
QAT_TO_QUANTIZED: dict[type, Any] = {getattr(QAT, name): getattr(Quantized, name) for name in NAMES}


def check_module(module: Any) -> None:
    """TypeError for what is no module: functions have no layers to be replaced."""
    if not isinstance(module, Module):
        raise TypeError(f"quantization of layers takes a module, got a {type(module).__name__}; help: quantization.ptq takes functions too")


def replace_modules(module: Module, make: Callable[[Module], Module | None]) -> Module:
    """The module with what `make` gives in the place of each module that it gives something for, the same for the same one."""
    check_module(module)
    made: dict[int, Module] = {}

    def walk(m: Module) -> Module:
        if id(m) not in made:
            new = make(m)
            made[id(m)] = m if new is None else new
            if new is None:
                for name, value in list(m.__dict__.items()):
                    if name not in HOOKS:
                        new_value = inside(value)
                        if new_value is not value:
                            setattr(m, name, new_value)
        return made[id(m)]

    def inside(value: Any) -> Any:
        if isinstance(value, Module):
            return walk(value)
        if type(value) in (list, tuple):
            new = [inside(v) for v in value]
            return value if all(a is b for a, b in zip(new, value)) else type(value)(new)
        if type(value) is dict:
            for k, v in value.items():
                value[k] = inside(v)
        return value

    return walk(module)


def quantize_qat(
    module: Module, inplace: bool = True, qconfig: QConfig = ema_fakequant_qconfig, mapping: dict | None = None
) -> Module:
    """Puts `module.qat` layers in the place of float layers, with the same parameters, and gives them a configuration.

    Args:
        module: the network. A layer whose `disable_quantize()` was called stays as it is, with all inside.
        inplace: change the network itself; else a copy. qconfig: observers and fake quantisation.
        mapping: classes of layers of yours to classes with `from_float_module`.
    Returns: the network; another object where `module` itself is such a layer.

    A layer of a class that derives from a float layer and computes as that does (has its `forward`, `calc_conv` and `calc_linear`), is such a
    layer, and so are linear layers and convolutions of images of PyTorch's dialect, which keep the shapes of their parameters, and take batches
    from then on. One that computes in its own way, or whose weight is computed (`weight_norm`), stays float, which a warning says.

    >>> from tengen import module as M
    >>> from tengen.quantization import quantize_qat
    >>> type(quantize_qat(M.Sequential(M.Linear(2, 3)))[0]).__module__
    'tengen.module.qat.layers'
    """
    table, stay = FLOAT_TO_QAT | (mapping or {}), dict[str, None]()

    def make(m: Module) -> Module | None:
        if getattr(m, "quantize_disabled", False) or isinstance(m, QATModule):
            return m
        computed = isinstance(getattr(type(m), "weight", None), property)  # by weight_norm and its like, from tensors that would be left behind
        known = None if computed else next((c for c in type(m).__mro__ if c in table and m._computes_as(c)), None)
        if known is None and isinstance(m, tuple(FLOAT_TO_QAT)):
            stay[f"{type(m).__module__}.{type(m).__qualname__}"] = None
        return None if known is None else table[known].from_float_module(m)

    made = replace_modules(module if inplace else copy.deepcopy(module), make)
    if stay:
        help = "help: mapping={class: a class with from_float_module}, or disable_quantize() on layers that are to stay"
        warn_once(f"quantize_qat(): layers of {', '.join(stay)} stay float, since they compute in their own way; {help}", UsageWarning)
    propagate_qconfig(made, qconfig)
    return made


def quantize(module: Module, inplace: bool = True, mapping: dict | None = None) -> Module:
    """Puts `module.quantized` layers in the place of `module.qat` layers that were trained or calibrated.

    Args: module: the network. inplace: change it; else a copy. mapping: classes of layers of yours to classes with
        `from_qat_module`.

    Errors: QuantizationError where something has no scale yet, or one that cannot be
    """
    table = QAT_TO_QUANTIZED | (mapping or {})
    return replace_modules(
        module if inplace else copy.deepcopy(module), lambda m: table[type(m)].from_qat_module(m) if type(m) in table else None
    )


def _qat_modules(module: Module) -> list[QATModule]:
    check_module(module)
    return [m for m in module.modules() if isinstance(m, QATModule)]


def reset_qconfig(module: Module, qconfig: QConfig, inplace: bool = True) -> Module:
    """Gives `module.qat` layers another configuration, which begins with the scales that they have.

    Args: module: the network. qconfig: the configuration. inplace: change it; else a copy.
    """
    module = module if inplace else copy.deepcopy(module)

    def begun(make: Any, qparams: Any) -> Any:
        made = None if make is None else make()
        if hasattr(made, "set_qparams") and qparams is not None:
            made.set_qparams(qparams)
        return made

    for m in _qat_modules(module):
        for of in ("weight",) * m.with_weight + ("inp",) * m.with_weight + ("act",) * m.with_act:
            kind = "weight" if of == "weight" else "act"
            known = _known(m, of)
            made = {name: begun(getattr(qconfig, f"{kind}_{name}"), known) for name in ("observer", "fake_quant")}
            for name, value in made.items():
                if value is not None:
                    value.training = m.training
                setattr(m, f"{of}_{name}", value)
    return module


def _known(m: QATModule, of: str) -> Any:
    """What is known of a scale; None where nothing was watched."""
    asks = {"weight": m.get_weight_qparams, "act": m.get_activation_qparams, "inp": m.get_input_qparams}
    try:
        return asks[of]()
    except QuantizationError:
        if of == "inp":  # the layer before says it
            return None
        raise


def propagate_qconfig(module: Module, qconfig: QConfig) -> None:
    """Gives all `module.qat` layers inside a configuration. TypeError for what is none."""
    if not isinstance(qconfig, QConfig):
        raise TypeError(f"qconfig must be a QConfig, got {qconfig!r}; help: quantization.min_max_fakequant_qconfig is one")
    for m in _qat_modules(module):
        m.set_qconfig(qconfig)


def disable_fake_quant(module: Module) -> None:
    """Layers cease to round."""
    for m in _qat_modules(module):
        m.set_fake_quant(False)


def enable_fake_quant(module: Module) -> None:
    """Layers begin to round."""
    for m in _qat_modules(module):
        m.set_fake_quant(True)


def disable_observer(module: Module) -> None:
    """Layers cease to watch."""
    for m in _qat_modules(module):
        m.set_observer(False)


def enable_observer(module: Module) -> None:
    """Layers begin to watch, also in evaluation."""
    for m in _qat_modules(module):
        m.set_observer(True)


def hook_qat_module(module: Module, func: Callable) -> list:
    """Adds a forward hook to all `module.qat` layers inside; their handles."""
    return [m.register_forward_hook(func) for m in _qat_modules(module)]


def apply_easy_quant(module: Module, data: Tensor, start: float = 0.8, stop: float = 1.2, num: int = 40) -> Module:
    """Searches, layer by layer, for scales that bring its result nearest to the float layer's, by the cosine between both (Wu
    et al.,
    "EasyQuant", 2020): first those of weights, then those of activations.

    Args:
        module: a network with `easyquant_qconfig`, by `reset_qconfig` of a calibrated one. data: a batch.
        start, stop, num: factors of the calibrated scale, and how many between them are tried.

    Errors: QuantizationError for a network without calibrated scales of such a configuration, an empty batch, and factors that are
        none
    """
    if type(num) is not int or num < 1 or not 0 < start <= stop < float("inf"):
        raise QuantizationError(f"start={start!r}, stop={stop!r}, num={num!r}: needs 0 < start <= stop, and num from 1 on")
    if not data.ndim or not data.size:
        raise QuantizationError(f"EasyQuant needs a batch of data, got the shape {data.shape}")
    observers = [getattr(m, where) for m in _qat_modules(module) for where in ("weight_observer", "act_observer")]
    if not any(isinstance(o, PassiveObserver) and o.qparams is not None for o in observers):
        raise QuantizationError("no layer has a scale to begin with; help: calibrate, then reset_qconfig(net, easyquant_qconfig)")
    batch = data.shape[0]

    def cosine(x: Tensor, y: Tensor) -> float:
        a, b = (t.numpy().reshape(t.shape[0], -1).astype(np.float64) for t in (x, y))
        size = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        return float(np.mean((a * b).sum(1) / np.where(size == 0, 1, size)))

    def search(where: str, mod: QATModule, inputs: Any, outputs: Any) -> Any:
        normal, rounded = ([x[part] for x in inputs] for part in (slice(None, batch), slice(batch, None)))
        observer, hooks = getattr(mod, where), dict(mod._forward_hooks)
        mod._forward_hooks.clear()
        try:
            disable_fake_quant(mod)
            wanted = mod(*normal)
            enable_fake_quant(mod)
            if not isinstance(observer, PassiveObserver) or observer.qparams is None:
                return F.concat([wanted, outputs[batch:]])
            best, factor = 0.0, None
            for f in np.linspace(start, stop, num):
                observer.scale = observer.orig_scale * np.float32(f)
                if (found := cosine(wanted, mod(*rounded))) > best:
                    best, factor = found, f
            if factor is None:
                get_logger(__name__).warning("EasyQuant finds no better scale")
            observer.scale = observer.orig_scale * np.float32(1 if factor is None else factor)
            return F.concat([wanted, mod(*rounded)])
        finally:
            mod._forward_hooks.update(hooks)

    both = F.concat([data, data])
    for where in ("weight_observer", "act_observer"):
        handles = hook_qat_module(module, partial(search, where))
        try:
            module(both)
        finally:
            for h in handles:
                h.remove()
    return module
