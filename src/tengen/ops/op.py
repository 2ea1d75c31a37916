"""An op: what was said of it where it was defined, and what the floors above ask.

An `Op` knows its user signature (which parameters are tensors, which are attributes, and what those may be: `attributes.py`),
its rules (`rules.py`), its names for users, and `op.call`, the function that users see (`calls.py`): it hands over to
`dispatch`, which `tengen.tensor` installs (eager execution, recording, tracing). `define.py` has the decorators that make ops.
"""

from __future__ import annotations

import functools
import inspect
import operator as python_operators
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tengen import kernels
from tengen.base.errors import ArgumentError, DTypeError, ShapeError, TengenError, Undecided
from tengen.base.record import record
from tengen.ir.types import TensorType
from tengen.kernels.lowering import Array, Lowering
from tengen.kernels.source import Ending, Leaf, Source
from tengen.ops.attributes import Kind, kind, shown
from tengen.ops.calls import dispatch, make_call, signature_of, tensors_and_attributes, with_line
from tengen.ops.names import IN_FUNCTIONAL, ON_TENSOR, OPS
from tengen.ops.registry import Registry
from tengen.ops.rules import Rules, Violation

if TYPE_CHECKING:
    from tengen.ir.types import Dim
    from tengen.ops import rules

REGISTRY = Registry({f"tengen.ops.{file}": names for file, names in OPS.items()})
SUBMODULES = ("elemwise", "math", "nn", "tensor", "vision")  # of `tengen.functional`: where ops stand
_taken: dict[str, str] = {}  # a name for users -> the op that has it, of those that are loaded
_takers: list[tuple[Callable[[Op], dict[str, Any]], Callable[[str, Any], None]]] = []  # see `each_op`


@record(frozen=True)
class Case:
    """Sample inputs, from which the tests of an op are made. `inputs(rng)` gives NumPy arrays (float64 where they stand for
    any float), `grad` says whether finite differences are meaningful there."""

    inputs: Callable[[Any], tuple]
    attrs: dict = field(default_factory=dict)
    grad: bool = True
    rtol: float = 1e-5
    atol: float = 1e-6


class Op:
    """One operation.

    Args: fn and kind come from the decorators of `define.py`, the others from whoever uses those:
        functional: where users find it below `tengen.functional`, as words: "math" is `tengen.functional.math.<name>`,
            "nn.log_softmax" another name. What stands in a submodule stands in `tengen.functional` too.
        methods: its names as a method of `Tensor`, as words.
        operator: the operator of Python that it is, by its special method's name without underscores: "add", "lt", "neg".
        autocast: what `amp.autocast` computes it in. "low" precision: where the time of a network goes, and a long sum is kept
            in float32 anyway (contractions). "high": where small differences matter, or numbers leave float16's range. None: in
            the widest dtype of its operands.
        own: positions of tensor operands (indices, conditions) whose dtype has nothing to do with the others': numbers among
            the operands do not take it, and a number in their place keeps its own.
        older: attributes that an older file may lack, and what it means.
        unsaid: {attribute: what it is where the user gives None, of the name of the op and its first operand}.
        aliases: other names of its parameters, as MegEngine's: {another name: the parameter's}. PyTorch's `dim` and `keepdim` are
            understood by all (`calls.SPELLINGS`).
        whole_batch: it is computed for all images of a batch at once (`passes/images.py`): the rows of all are shared out to
            threads better than those of some.
        along_axis: it treats each line along its attribute `axis` alone: an eager call merges the axes before and after that, so
            that one program serves tensors of any rank.
        domain: of an elementwise op, where the tests sample: one interval for all operands, or a list of one for each.

    Attributes:
        name: the registered name, which files keep. rules: see `Rules`. samples: see `Case`.
        tensors: names of the tensor parameters; `variadic` when the first is a list of tensors.
        attrs: names of the other parameters, in order; notes: what their annotations say. optional: the tensors that may be
            None.
        kind: "elementwise", "primitive", "view", "composite" or "shorthand".
        functional: pairs (submodule, name). why_no_vjp: why it has no gradient, where it has none.
    """

    # what is so of an op that was not made from a signature (the gradient of a composite)
    optional: frozenset[str] | None = None  # nobody knows
    notes: dict[str, str] = {}
    functional: tuple[tuple[str, str], ...] = ()
    methods: tuple[str, ...] = ()
    operator: str = ""
    autocast: str | None = None
    own: tuple[int, ...] = ()
    older: dict[str, Any] = {}
    unsaid: dict[str, Callable[[str, Any], Any]] = {}
    aliases: dict[str, str] = {}
    whole_batch: bool = False
    along_axis: bool = False
    domain: Any = (-2.0, 2.0)
    c_function: Any = None  # what computes an op of a user's, where that is a C function: `custom_ops.c_functions.CFunction`

    def __init__(
        self, fn: Callable, kind: str, name: str | None = None, *, functional: str = "", methods: str = "", operator: str = "",
        autocast: str | None = None, own: Sequence[int] = (), older: dict[str, Any] | None = None,
        whole_batch: bool = False, along_axis: bool = False, domain: Any = (-2.0, 2.0), aliases: dict[str, str] | None = None,
        unsaid: dict[str, Callable[[str, Any], Any]] | None = None,
    ):  # fmt: skip
        self.fn, self.kind = fn, kind
        self.name = name or fn.__name__.rstrip("_")
        self.rules = Rules()
        self.samples: list[Case] = []
        self.why_no_vjp: str | None = None
        self.autocast, self.operator, self.methods = autocast, operator, tuple(methods.split())
        pairs = (word.partition(".") for word in functional.split())
        self.functional = tuple((submodule, given or self.name) for submodule, _, given in pairs)
        self.own, self.older, self.unsaid = tuple(own), older or {}, unsaid or {}
        self.whole_batch, self.along_axis, self.domain, self.aliases = whole_batch, along_axis, domain, aliases or {}
        parameters = signature_of(fn)
        self.tensors, self.attrs, self.variadic, self.optional = tensors_and_attributes(parameters, kind)
        self.notes = {p.name: p.note for p in parameters if p.name in self.attrs}
        self.call = with_line(fn, self.aliases) if kind == "shorthand" else make_call(self, fn, parameters)
        self._register()

    def _register(self) -> None:
        """Enters the op into `REGISTRY` and tells the floors above; TengenError where what was said of it cannot be."""
        if REGISTRY.defined_elsewhere(self.name, self.fn.__module__):
            raise TengenError(f"op {self.name!r} is defined twice")
        if self.autocast not in (None, "low", "high"):
            raise TengenError(f"op {self.name!r}: autocast={self.autocast!r} must be 'low', 'high' or None")
        if self.operator and not hasattr(python_operators, f"__{self.operator}__"):
            what = f"Python has no operator {self.operator!r}; help: a special method without underscores, as 'add'"
            raise TengenError(f"op {self.name!r}: {what}")
        if unknown := {*self.aliases.values()} - {*self.tensors, *self.attrs, ""}:
            raise TengenError(f"op {self.name!r} has no parameter {min(unknown)!r}, which `aliases` names")
        if unknown := {*self.older} - {*self.attrs}:
            raise TengenError(f"op {self.name!r} has no attribute {min(unknown)!r}, only {self.attrs}")
        for submodule, _ in self.functional:
            if submodule not in SUBMODULES:
                what = f"tengen.functional.{submodule} holds no ops; help: one of {', '.join(SUBMODULES)}"
                raise TengenError(f"op {self.name!r}: {what}")
        for name in (named := self.user_names()):
            other = _owner(name)
            if other != self.name and other in REGISTRY:
                raise TengenError(f"op {self.name!r}: {name} is the op {other!r} already")
        found = [(put, find(self)) for find, put in _takers]  # all are asked before anything is put anywhere
        for put, values in found:
            for name, value in values.items():
                put(name, value)
        REGISTRY[self.name] = self
        _taken.update(dict.fromkeys(named, self.name))

    def user_names(self) -> list[str]:
        """Its names for users in full: "tengen.functional.math.sum", "Tensor.sum", "Tensor.__add__"."""
        special = [f"Tensor.__{self.operator}__"] if self.operator else []
        found = [f"tengen.functional.{submodule}.{name}" for submodule, name in self.functional]
        return [*found, *(f"Tensor.{name}" for name in self.methods), *special]

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __call__(self, *args, **kw):
        return self.call(*args, **kw)

    # -- rules: each of these sets the field of `Rules` of the same name, which says what it is ------------------------------
    def canon(self, f: rules.Canon) -> rules.Canon:
        """The attributes in one form: (types, **attrs) -> attrs."""
        self.rules.canon = f
        return f

    def infer(self, f: rules.Infer) -> rules.Infer:
        """The types of the outputs: (*types, **attrs) -> TensorType or a tuple of them."""
        self.rules.infer = f
        return f

    def source(self, f: rules.AsSource) -> rules.AsSource:
        """The meaning, as a value at coordinates: (sources, out, **attrs) -> Source."""
        self.rules.source = f
        return f

    def view(self, f: rules.View) -> rules.View:
        """The meaning, as other strides on the same memory: (array, out, **attrs) -> Array or None."""
        self.kind = "view"
        self.rules.view = f
        return f

    def lower(self, f: rules.Lower) -> rules.Lower:
        """The meaning, as launches over stored operands: (lo, arrays, outs, **attrs)."""
        self.rules.lower = f
        return f

    def lower_values(self, f: rules.LowerValues) -> rules.LowerValues:
        """The meaning, as launches over operands that are computed as they are read: (lo, sources, outs, **attrs)."""
        self.rules.lower_values = f
        return f

    def read_over(self, f: rules.ReadOver) -> rules.ReadOver:
        """The shape over which an op with `lower_values` reads its operands: (types, **attrs) -> extents or None."""
        self.rules.read_over = f
        return f

    def epilogue(self, f: rules.Epilogue) -> rules.Epilogue:
        """The meaning, as launches with pointwise ops behind: (lo, arrays, outs, epilogue or None, **attrs)."""
        self.rules.epilogue = f
        return f

    def reduced(self, f: rules.AsSource) -> rules.AsSource:
        """A reduction as a value of a row: (sources, out, **attrs) -> Source."""
        self.rules.reduced = f
        return f

    def prologue(self, f: rules.Prologue) -> rules.Prologue:
        """The operand that can be computed as it is read: (types, **attrs) -> position or None."""
        self.rules.prologue = f
        return f

    def layout(self, f: rules.Layout) -> rules.Layout:
        """The order of the output's axes in memory: (arrays, out, **attrs) -> axes, outermost first."""
        self.rules.layout = f
        return f

    def parts(self, f: rules.Parts) -> rules.Parts:
        """What a part of the results needs: (types, **attrs) -> for each operand, for each of its axes, an axis or None."""
        self.rules.parts = f
        return f

    def known(self, f: rules.Known) -> rules.Known:
        """Extents that an eager program is compiled for: (arrays, **attrs) -> extents."""
        self.rules.known = f
        return f

    def named(self, f: rules.Named) -> rules.Named:
        """Attributes that are extents of the operands: (arrays, **attrs) -> their names."""
        self.rules.named = f
        return f

    def over(self, operands: Mapping[int, int] | rules.Over) -> None:
        """Results that may be computed over operands: {result: operand}, or of the attributes such a table."""
        self.rules.over = operands if callable(operands) else lambda **attrs: operands

    def computed_over(self, attrs: dict[str, Any]) -> Mapping[int, int]:
        """{result: operand} of those results that may be computed over operands."""
        return self.rules.over(**attrs) if self.rules.over is not None else {}

    def typed(self, *operands: int) -> None:
        """Operands of which only the type is used."""
        self.rules.typed = operands

    def effect(self, there: bool = True) -> None:
        """The op does more than to compute results: it calls Python."""
        self.rules.effect = there

    def identity(self, f: rules.Identity) -> rules.Identity:
        """When the result is the first operand: (x: TensorType, out, **attrs) -> bool."""
        self.rules.identity = f
        return f

    def check(self, f: rules.Check) -> rules.Check:
        """What values must not be: (operands as tensors, **attrs) -> `Violation`s."""
        self.rules.check = f
        return f

    def checks(self, f: rules.Checks) -> rules.Checks:
        """Whether `check` has anything to look at: types -> bool."""
        self.rules.checks = f
        return f

    def vjp(self, f: rules.VJP) -> rules.VJP:
        """Gradients of the inputs: (g, *inputs, [out,] **attrs) -> one for each input."""
        self.rules.vjp = f
        return f

    def same(self, composite: Op) -> None:
        """A composite that computes the same, and whose gradient is taken."""
        self.rules.same = composite

    def complex(self, f: rules.Complex) -> rules.Complex:
        """The meaning for complex numbers, in ops on their parts: (*operands, **attrs) -> results."""
        self.rules.complex = f
        return f

    def slope(self, f: rules.Complex) -> rules.Complex:
        """The complex derivative of a holomorphic op: (*operands, **attrs) -> one for each operand."""
        self.rules.slope = f
        return f

    def no_vjp(self, why: str) -> None:
        """Declares that the op has no gradient, and why; it is then a constant for differentiation."""
        self.why_no_vjp = why

    def reference(self, f: rules.Reference) -> rules.Reference:
        """An independent NumPy meaning, used by the tests alone: (*arrays, **attrs) -> array or tuple."""
        self.rules.reference = f
        return f

    def cases(self, *cases: Case) -> None:
        """Sample inputs for the generated tests."""
        self.samples += cases

    # -- what the floors above ask ------------------------------------------------------------------------------------------
    @functools.cached_property
    def doc(self) -> str:
        """What users read of it."""
        return inspect.getdoc(self.fn) or ""

    @functools.cached_property
    def kinds(self) -> dict[str, Kind | None]:
        """What each attribute may be, as its annotation declares it."""
        return {name: kind(note) for name, note in self.notes.items()}

    @functools.cached_property
    def extents(self) -> tuple[str, ...]:
        """The attributes that are extents or shapes, as their annotations declare them: one eager program serves all of them."""
        return tuple(name for name, k in self.kinds.items() if k is not None and k.extents)

    @functools.cached_property
    def steps(self) -> tuple[str, ...]:
        """The attributes that are steps: one eager program serves all of them, of the op itself."""
        return tuple(name for name, k in self.kinds.items() if k is not None and k.steps)

    def plain(self, attrs: Sequence) -> tuple:
        """The attributes of a call, in whatever form users may give them, as plain data of their declared kinds; an error says
        which one is not of its kind."""
        kinds = self.kinds
        return tuple([a if (k := kinds.get(n)) is None else k.plain(a, n, dispatch.known) for n, a in zip(self.attrs, attrs)])

    def canonical(self, types: Sequence[TensorType | None], attrs: Sequence) -> dict[str, Any]:
        """The attributes as a dictionary in canonical form: plain data of their kinds, in one form by the rule "canon". Calls
        of users and nodes of files are checked here alike, operands included."""
        return self._told(self._canonical, types, dict(zip(self.attrs, attrs)), types, attrs)

    def _canonical(self, types: Sequence[TensorType | None], attrs: Sequence, **_: Any) -> dict[str, Any]:
        self.check_operands(types)
        values = dict(zip(self.attrs, self.plain(attrs)))
        return values if self.rules.canon is None else self.rules.canon(types, **values)

    def check_operands(self, operands: Sequence) -> None:
        """ArgumentError unless there are as many operands as the op has, and None among them only where one may be absent."""
        if self.optional is None:
            return
        least = len(self.tensors) - self.variadic
        if len(operands) < least or (len(operands) > least and not self.variadic):
            raise ArgumentError(f"takes {'at least ' * self.variadic}{least} tensors, got {len(operands)}")
        if all(x is not None for x in operands):
            return
        several = self.tensors[:1] * (len(operands) - least) if self.variadic else ()
        names = (*several, *self.tensors[self.variadic :])
        for name, x in zip(names, operands):
            if x is None and name not in self.optional:
                raise ArgumentError(f"needs a tensor for {name}, got None")

    def infer_types(self, types: Sequence[TensorType | None], attrs: dict) -> tuple[TensorType, ...]:
        """The output types of a node of this op; an error names the op and its arguments."""
        out = self.infer_of_any(types, attrs)
        whole = self.kind == "view" or self.name == "complex" or self.has_bodies  # they take complex numbers as they are
        if not whole and any(t is not None and t.dtype.is_complex for t in (*types, *out)):
            raise self.not_complex(types, attrs)
        return out

    def infer_of_any(
        self, types: Sequence[TensorType | None], attrs: dict, told: Sequence[TensorType | None] | None = None
    ) -> tuple[TensorType, ...]:
        """The output types of a call, which may be of complex numbers where no node of this op may: nodes on their parts compute it. told: the
        types that errors tell, where these stand for others."""
        if self.rules.infer is None:
            raise TengenError(f"{self.name} is a {self.kind}: it has no node of its own in a graph of primitives")
        out = self._told(self.rules.infer, types if told is None else told, attrs, *types)
        out = out if isinstance(out, tuple) else (out,)
        for t in out:
            self._check_size(t, types, attrs)
        return out

    def not_complex(self, types: Sequence[TensorType | None], attrs: dict | None = None) -> DTypeError:
        """The error for a call of an op without the rule "complex" that has to do with complex numbers."""
        what = "has no meaning for complex numbers here; help: call it of real(), imag(), abs() or angle()"
        return DTypeError(f"{self.signature(types, attrs)}: {what}")

    def _check_size(self, t: TensorType, types: Sequence[TensorType | None], attrs: dict) -> None:
        """MemoryError for a result whose bytes 63 bits do not count, ShapeError for an extent below 0."""
        n = t.dtype.size
        for d in t.shape:
            if type(d) is int:
                if d < 0:
                    raise ShapeError(f"{self.signature(types, attrs)}: the result would have the shape {t.shape}")
                n *= max(d, 1)
        if n >= 1 << 63:
            raise MemoryError(f"{self.signature(types, attrs)}: {n} bytes of {t!r} are more than any machine has")

    def _told(self, rule: Callable, types: Sequence[TensorType | None], attrs: dict, *args):
        """Asks a rule; its errors name the op and its arguments."""
        try:
            return rule(*args, **attrs)
        except Undecided:
            raise
        except TengenError as e:
            if str(e).startswith(f"{self.name}(") or hasattr(e, "_told"):  # dispatch completes the message of an inner call
                raise
            raise type(e)(f"{self.signature(types, attrs)}: {e}") from None
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as e:
            what = f"does not take these arguments ({type(e).__name__}: {e}); help: see help() of the function"
            raise ArgumentError(f"{self.signature(types, attrs)}: {what}") from e

    def signature(self, types: Sequence[TensorType | None], attrs: dict | None = None) -> str:
        """How a call looks in messages: ``matmul(f32[4,3], f32[4,5])``."""
        extra = [f"{k}={shown(v)}" for k, v in (attrs or {}).items()]
        return f"{self.name}({', '.join([*('none' if t is None else str(t) for t in types), *extra])})"

    def lower_to(
        self, lo: Lowering, ins: Sequence[Array | None], outs: Sequence[Array], attrs: dict, epilogue: Ending | None = None
    ) -> None:
        """Launches what computes `outs` from stored inputs. epilogue: of an op with that rule, what is behind it."""
        rules = self.rules
        if rules.epilogue is not None:
            return rules.epilogue(lo, list(ins), list(outs), epilogue, **attrs)
        if rules.lower is not None:
            return rules.lower(lo, list(ins), list(outs), **attrs)
        return self.lower_from(lo, [None if a is None else Leaf(a) for a in ins], outs, attrs)

    def lower_from(self, lo: Lowering, ins: Sequence[Source | None], outs: Sequence[Array], attrs: dict) -> None:
        """Launches what computes `outs` from inputs that are computed as they are read, of an op that allows it."""
        if self.rules.lower_values is not None:
            return self.rules.lower_values(lo, list(ins), list(outs), **attrs)
        return kernels.pointwise.pointwise(
            lo, [self.make_source(ins, TensorType(outs[0].shape, outs[0].dtype), attrs)], outs, self.name
        )

    def make_source(self, ins: Sequence[Source | None], out: TensorType, attrs: dict) -> Source:
        """The op as a value at coordinates, over the values of its inputs: a reduction as the value of a row."""
        rule = self.rules.source or self.rules.reduced
        assert rule is not None
        return rule(list(ins), out, **attrs)

    def make_view(self, a: Array, out: TensorType, attrs: dict) -> Array | None:
        """The op as other strides on the memory of `a`; None where that cannot be."""
        assert self.rules.view is not None
        return self.rules.view(a, out, **attrs)

    def axes_of_parts(self, types: Sequence[TensorType | None], attrs: dict) -> Sequence[Sequence[int | None]] | None:
        """What the rule "parts" says of these operands; None without one."""
        return None if self.rules.parts is None else self.rules.parts(types, **attrs)

    def known_extents(self, arrays: Sequence[Array | None], attrs: dict) -> frozenset[int]:
        """The extents that an eager program is compiled for, rather than taking them at run time: by the rule "known"."""
        return frozenset() if self.rules.known is None else frozenset(self.rules.known(arrays, **attrs))

    def named_extents(self, arrays: Sequence[Array | None], attrs: dict) -> tuple[str, ...]:
        """The attributes that an eager program takes at run time, as extents: shapes, and by the rule "named"."""
        return self.extents if self.rules.named is None else (*self.extents, *self.rules.named(arrays, **attrs))

    def read_shape(self, types: Sequence[TensorType | None], out: TensorType, attrs: dict) -> tuple[Dim, ...] | None:
        """The shape over which operands are computed as they are read, by the rule "read_over"; None: they are stored before."""
        shape = out.shape if self.rules.read_over is None else self.rules.read_over(types, **attrs)
        return None if shape is None else tuple(shape)

    def axis_order(self, arrays: Sequence[Array | None], out: TensorType, attrs: dict) -> Sequence[int] | None:
        """The order of an output's axes in memory, by the rule "layout"; None: logical order."""
        return None if self.rules.layout is None else self.rules.layout(arrays, out, **attrs)

    def violations(self, inputs: Sequence, types: Sequence[TensorType | None], attrs: dict) -> Iterable[Violation]:
        """What is to be checked in a call with these operands."""
        if self.rules.check is None or (self.rules.checks is not None and not self.rules.checks(types)):
            return ()
        return self.rules.check(inputs, **_canonical_again(self, tuple(types), tuple(attrs)))

    @property
    def fuses(self) -> bool:
        """Whether the op is a value at coordinates, so that it can be computed inside its consumer."""
        return self.rules.source is not None

    @property
    def reduces(self) -> bool:
        """Whether the op is a reduction, whose operand can be computed as it is read, and which can be the value of a row."""
        return self.rules.reduced is not None

    @property
    def anchors(self) -> bool:
        """Whether pointwise ops can become part of the op's own kernels, behind it or in front of an operand."""
        return self.rules.epilogue is not None or self.rules.prologue is not None

    @functools.cached_property
    def has_bodies(self) -> bool:
        """Whether it is a loop or a branch, with graphs among its attributes."""
        return any(note.startswith("Graph") for note in self.notes.values() if isinstance(note, str))

    @property
    def saves_output(self) -> bool:
        """Whether the gradient rule asks for the output."""
        rule = self.rules.vjp
        return rule is not None and _takes_out(rule)


def _owner(name: str) -> str | None:
    """The op that has a full name for users, whether or not it is loaded; None where the name is free."""
    place, _, last = name.rpartition(".")
    table = ON_TENSOR if place == "Tensor" else IN_FUNCTIONAL.get(place.rpartition(".")[2], {})
    return _taken.get(name) or table.get(last)


def forget_op(name: str) -> None:
    """Takes an op out of `REGISTRY`, with the gradients that were derived from it: one of the same name takes its place."""
    for known in [op.name for op in REGISTRY.loaded() if op.name == name or op.name.startswith(f"{name}.")]:
        del REGISTRY[known]
    for taken in [taken for taken, op in _taken.items() if op == name]:
        del _taken[taken]


def each_op(find: Callable[[Op], dict[str, Any]], put: Callable[[str, Any], None]) -> None:
    """Puts what `find` says of every op that is loaded, by name, and of each that is loaded or defined later when it is: how the floors above
    give users the names of ops; those of ops that are not loaded are in `names.py`. `find` changes nothing; it raises TengenError for a name
    that is something else already."""
    for op in REGISTRY.loaded():
        for name, value in find(op).items():
            put(name, value)
    _takers.append((find, put))


@functools.lru_cache(4096)  # what is checked is looked at in every call, and was plain and in order at the first
def _canonical_again(op: Op, types: tuple, attrs: tuple) -> dict[str, Any]:
    return op.canonical(types, attrs)


@functools.cache  # asked at every call that goes on the tape, and looking costs more than the call
def _takes_out(rule: Callable) -> bool:
    return "out" in inspect.signature(rule).parameters
