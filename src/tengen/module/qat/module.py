"""`QATModule`: a layer that rounds its weight, bias and result as it trains; and evaluates by integers.

A layer that multiplies needs to know what its input was rounded to. The layer before says so (`Tensor.qparams`); where nobody
did, behind a pooling or a reshape, the layer rounds its input itself, with an observer like that of activations.
"""

from __future__ import annotations

from typing import Any

from tengen.module.module import Module
from tengen.quantization.qconfig import QConfig
from tengen.quantization.qparams import QParams, fake_quant_bias, quantized_dtype
from tengen.tensor import Tensor
from tengen.tensor.quantised import known


class QATModule(Module):
    """The base of layers in quantisation-aware training and calibration. `quantization.quantize_qat` makes them from float
    layers,
    `quantization.quantize` makes `QuantizedModule` of them.

    Attributes: weight_observer, act_observer, inp_observer: watch the weight, the result, and an input of which nobody said
    what it was rounded to. weight_fake_quant, act_fake_quant, inp_fake_quant: round them. Each may be None.
    """

    with_weight = True
    with_act = True

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.weight_observer = self.act_observer = self.inp_observer = None
        self.weight_fake_quant = self.act_fake_quant = self.inp_fake_quant = None

    def __repr__(self) -> str:
        return "QAT." + super().__repr__()

    def set_qconfig(self, qconfig: QConfig) -> None:
        """Makes observers and fake quantisation as a configuration says."""
        made = lambda f: None if f is None else f()
        if self.with_act:
            self.act_observer, self.act_fake_quant = made(qconfig.act_observer), made(qconfig.act_fake_quant)
        if self.with_weight:
            self.weight_observer, self.weight_fake_quant = made(qconfig.weight_observer), made(qconfig.weight_fake_quant)
            self.inp_observer, self.inp_fake_quant = made(qconfig.act_observer), made(qconfig.act_fake_quant)

    def _each(self, kind: str) -> list[Module]:
        found = [getattr(self, f"{of}_{kind}") for of in ("weight", "act", "inp")]
        return [m for m in found if m is not None]

    def set_fake_quant(self, enable: bool) -> None:
        """Begins or ceases to round."""
        for m in self._each("fake_quant"):
            m.enable() if enable else m.disable()

    def set_observer(self, enable: bool) -> None:
        """Begins or ceases to watch."""
        for m in self._each("observer"):
            m.enable() if enable else m.disable()

    # ---- rounding as it trains

    def _apply_fakequant_with_observer(self, target: Tensor, fake_quant: Any, observer: Any) -> Tensor:
        out, qparams = target, None
        if observer is not None:
            out = observer(target)
            if fake_quant is not None and fake_quant.enabled:  # what rounds nothing need not know a range, which nobody may have watched
                qparams = observer.get_qparams()
        if fake_quant is not None:
            out = fake_quant(out, qparams)
            if hasattr(fake_quant, "get_qparams"):
                qparams = fake_quant.get_qparams()
            if qparams is not None and fake_quant.enabled:
                out.qparams = qparams
        return out

    def apply_quant_weight(self, target: Tensor) -> Tensor:
        """Watches and rounds a weight."""
        return self._apply_fakequant_with_observer(target, self.weight_fake_quant, self.weight_observer)

    def apply_quant_activation(self, target: Tensor) -> Tensor:
        """Watches and rounds a result."""
        return self._apply_fakequant_with_observer(target, self.act_fake_quant, self.act_observer)

    def apply_quant_input(self, inp: Tensor) -> Tensor:
        """Watches and rounds an input of which nobody said what it was rounded to."""
        if known(inp) is not None:
            return inp
        return self._apply_fakequant_with_observer(inp, self.inp_fake_quant, self.inp_observer)

    def apply_quant_bias(self, target: Tensor | None, inp: Tensor, w_qat: Tensor) -> Tensor | None:
        """Rounds a bias to units of the product of two scales."""
        rounds = self.act_fake_quant is not None and self.act_fake_quant.enabled
        return fake_quant_bias(target, inp, w_qat) if rounds and self._rounds_weights() else target

    def _rounds_weights(self) -> bool:
        return self.weight_fake_quant is not None and self.weight_fake_quant.enabled

    # ---- evaluation by integers

    def by_integers(self) -> bool:
        """Whether the layer computes as the quantised one does: in evaluation, when it rounds, and nothing is watched."""
        fakes, observers = self._each("fake_quant"), self._each("observer")
        return not self.training and bool(fakes) and all(m.enabled for m in fakes) and not any(m.enabled for m in observers)

    def input_qparams(self, inp: Tensor) -> QParams:
        """What an input is rounded to."""
        q = known(inp)
        return self.get_input_qparams() if q is None else q

    # ---- what is known

    def _get_method_result(self, method: str, fake_quant: Any, observer: Any) -> Any:
        for m in (fake_quant, observer):
            if hasattr(m, method):
                return getattr(m, method)()
        return None

    def get_weight_dtype(self):
        """The quantised dtype of the weight; None where nothing is known."""
        q = self.get_weight_qparams()
        return None if q is None else quantized_dtype(q)

    def get_activation_dtype(self):
        """The quantised dtype of the result; None where nothing is known."""
        q = self.get_activation_qparams()
        return None if q is None else quantized_dtype(q)

    def get_weight_qparams(self) -> QParams | None:
        """What the weight is rounded to."""
        return self._get_method_result("get_qparams", self.weight_fake_quant, self.weight_observer)

    def get_input_qparams(self) -> QParams | None:
        """What an input is rounded to of which nobody says it."""
        return self._get_method_result("get_qparams", self.inp_fake_quant, self.inp_observer)

    def get_activation_qparams(self) -> QParams | None:
        """What the result is rounded to."""
        return self._get_method_result("get_qparams", self.act_fake_quant, self.act_observer)

    @classmethod
    def from_float_module(cls, float_module: Module) -> QATModule:
        """The layer in training, with the parameters of a float layer."""
        raise NotImplementedError(f"{cls.__name__} says nothing of float layers")
