"""`Module`: a function with parameters, found by walking its attributes in alphabetical order, as MegEngine does.

A `Parameter` attribute is trainable, any other Tensor attribute is a buffer, a Module attribute a child; lists, tuples and
dicts of them are walked too. There is no registration.
"""

from __future__ import annotations

import html
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tengen.base.arguments import flags_of_methods
from tengen.base.changes import Watched, WatchedDict
from tengen.base.dtype import DType, dtype
from tengen.base.errors import UnknownName, UsageWarning, warn_once
from tengen.base.lazy import nearest
from tengen.base.record import NamedTuple
from tengen.module.construction import constructor, first_by_name
from tengen.module.hooks import BackwardWatch, WithKeywords, call_in_spite_of, forward_hook
from tengen.runtime import mapped
from tengen.tensor import Parameter, Tensor, contiguous, from_numpy, tracing
from tengen.tensor.hooks import HookHandle, put

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
EVERYWHERE: dict[str, dict[int, Any]] = {name: WatchedDict() for name in HOOKS}  # hooks of all modules, which come before a module's own
_BEFORE_ALL, _BEHIND_ALL, _BEFORE_BACKWARD_ALL, _BACKWARD_ALL = EVERYWHERE.values()


def parts_of(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The tensors and modules in an attribute, with their names."""
    if isinstance(value, (Tensor, Module)):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            yield from parts_of(v, f"{name}.{i}")
    elif isinstance(value, dict):
        for k in sorted(k for k in value if isinstance(k, str)):
            yield from parts_of(value[k], f"{name}.{k}")


class LoadedKeys(NamedTuple):
    """Names that did not match when a state dict was loaded: of the module's tensors, and of the dict's values."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"LoadedKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class _GivenName:
    """`Module.name`: what the constructor was given, unless the module has an attribute of that name, which may be anything."""

    def __get__(self, module: Any, owner: type) -> Any:
        return self if module is None else module._name


class Module(Watched):
    """The base of all modules: subclass it, make parameters and children in ``__init__``, compute in ``forward``.

    Recordings of `trace` rely on hearing of each attribute that is set or deleted (`Watched`); one that is written into
    ``__dict__`` directly is not noticed. Constructors of layers with parameters take ``device=`` and ``dtype=`` too, by name: the layer is then
    what `to` makes of it.

    >>> from tengen import module as M
    >>> net = M.Sequential(M.Linear(4, 3), M.ReLU(), M.Linear(3, 2))
    >>> [name for name, _ in net.named_parameters()]
    ['0.bias', '0.weight', '2.bias', '2.weight']
    """

    training: bool
    _forward_pre_hooks: dict[int, Callable]
    _forward_hooks: dict[int, Callable]
    _backward_pre_hooks: dict[int, Callable]
    _backward_hooks: dict[int, Callable]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Constructors of the layers that come with Tengen check their arguments (see `constructor`), and methods their bools."""
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("tengen.module.") and "__init__" in cls.__dict__:
            cls.__init__ = constructor(cls.__init__)
        if cls.__module__.startswith("tengen."):
            flags_of_methods(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Module:
        """Every module has these, one whose ``__init__`` does not call ``super().__init__()`` too."""
        m = super().__new__(cls)
        m.__dict__.update(_name=None, training=True, **{name: WatchedDict() for name in HOOKS})
        return m

    _read_by_all = EVERYWHERE
    _unused_states: tuple[str, ...] = ()  # names in a state dict of PyTorch's that say nothing to this module
    quantize_disabled = False  # see `disable_quantize`
    has_parameters = False  # whether its constructor takes `device` and `dtype`
    weights_decay: bool | None = None  # what `optimizer.decay_groups` does with parameters that are no biases; None: their shape says

    name = _GivenName()

    def __init__(self, name: str | None = None):
        self._name = name

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (np.ndarray, Tensor)) and isinstance(old := self.__dict__.get(name), Tensor):
            _warn_of_another_kind(self, name, old, value)
        elif isinstance(value, (dict, set, frozenset)):
            _warn_of_what_is_not_found(self, name, value)
        super().__setattr__(name, value)

    def forward(self, *inputs, **kwargs):
        """Computes the outputs; subclasses say how."""
        raise NotImplementedError(f"{type(self).__name__} needs a forward() method")

    def __call__(self, *inputs, **kwargs):
        if kwargs and not inputs:
            inputs, kwargs = first_by_name(self, kwargs)
        if self._forward_pre_hooks or _BEFORE_ALL:
            for hook in (*_BEFORE_ALL.values(), *self._forward_pre_hooks.values()):
                if type(hook) is WithKeywords:
                    inputs, kwargs = hook(self, inputs, kwargs) or (inputs, kwargs)
                elif (changed := hook(self, inputs)) is not None:
                    inputs = changed if isinstance(changed, tuple) else (changed,)
        watch = None
        if self._backward_hooks or self._backward_pre_hooks or _BACKWARD_ALL or _BEFORE_BACKWARD_ALL:
            backward = (*_BACKWARD_ALL.values(), *self._backward_hooks.values())
            watch = BackwardWatch(self, backward, (*_BEFORE_BACKWARD_ALL.values(), *self._backward_pre_hooks.values()))
        inputs = inputs if watch is None else watch.entering(inputs)
        try:
            forward = tracing.in_place(self.forward) if tracing.scripts else self.forward
            out = forward(*inputs, **kwargs)
        except Exception as e:
            _name_layer(e, self)
            call_in_spite_of(e, (*_BEHIND_ALL.values(), *self._forward_hooks.values()), self, inputs, kwargs)
            raise
        if self._forward_hooks or _BEHIND_ALL:
            for hook in (*_BEHIND_ALL.values(), *self._forward_hooks.values()):
                changed = hook(self, inputs, kwargs, out) if isinstance(hook, WithKeywords) else hook(self, inputs, out)
                out = out if changed is None else changed
        return out if watch is None else watch.leaving(out)

    def register_forward_pre_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False) -> HookHandle:
        """Calls hook(module, inputs) before forward; what it returns, if anything, replaces the inputs.

        Args: prepend: whether it comes before those that are there. with_kwargs: it is called as hook(module, inputs, kwargs), and returns
            both or None.
        """
        return self._add_hook(self._forward_pre_hooks, WithKeywords(hook) if with_kwargs else hook, prepend)

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> HookHandle:
        """Calls hook(module, inputs, outputs) after forward; what it returns, if anything, replaces the outputs.

        Args: prepend: whether it comes before those that are there. with_kwargs: it is called as hook(module, inputs, kwargs, outputs).
            always_call: it is also called, with None as the outputs, where forward raises an error, which goes on afterwards.
        """
        return self._add_hook(self._forward_hooks, forward_hook(hook, with_kwargs, always_call), prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> HookHandle:
        """Calls hook(module, grad_input, grad_output) when a backward walk has computed the gradients of the inputs: tuples with an
        entry for each tensor among the positional inputs and the outputs, None where there is no gradient. What it returns, if
        anything, takes the place of grad_input. Where no gradient of an input is recorded, it is called with Nones as soon as those
        of the outputs are there.

        Args: prepend: whether it comes before those that are there.
        Errors: GradientError for a result of another number or type.

        >>> from tengen import autodiff, functional as F, module as M
        >>> net, seen = M.Sequential(M.Linear(2, 3), M.ReLU()), []
        >>> handle = net[1].register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].shape, go[0].tolist())))
        >>> with autodiff.GradManager().attach(net.parameters()) as gm:
        ...     gm.backward(net(F.ones((1, 2))).sum())
        >>> seen
        [((1, 3), [[1.0, 1.0, 1.0]])]
        """
        return self._add_hook(self._backward_hooks, hook, prepend)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> HookHandle:
        """Calls hook(module, grad_output) when a backward walk has computed the gradients of the outputs, before it goes through the
        module: a tuple with an entry for each output. What it returns, if anything, takes their place.

        Args: prepend: whether it comes before those that are there.
        Errors: GradientError for a result of another number or type.

        >>> from tengen import autodiff, functional as F, module as M
        >>> net = M.Linear(2, 1)
        >>> handle = net.register_full_backward_pre_hook(lambda m, go: (go[0] * 3.0,))
        >>> with autodiff.GradManager().attach(net.parameters()) as gm:
        ...     gm.backward(net(F.ones((1, 2))).sum())
        >>> net.bias.grad.item()
        3.0
        """
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """``self.name = tensor``, in PyTorch's words: a Tensor that is no Parameter. Not persistent: state dicts leave it out.

        Errors: TypeError for a Parameter, and for what is no Tensor
        """
        self._register(name, tensor, Tensor)
        if isinstance(tensor, Parameter):
            raise TypeError(f"register_buffer({name!r}): a Parameter is trained; help: register_parameter, or tensor.detach()")
        hidden = self.__dict__.get("_not_saved", frozenset())
        if persistent == (name in hidden):
            self._not_saved = hidden ^ {name}

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """``self.name = param``, in PyTorch's words."""
        self._register(name, param, Parameter)

    def add_module(self, name: str, module: Module | None) -> None:
        """``self.name = module``, in PyTorch's words."""
        self._register(name, module, Module)

    register_module = add_module

    def _register(self, name: str, value: Any, kind: type) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise UnknownName(f"{type(self).__name__}: {name!r} is no name of an attribute")
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{type(self).__name__}.{name} must be a {kind.__name__} or None, got a {type(value).__name__}")
        other = name in self.__dict__ and not isinstance(self.__dict__[name], (Tensor, Module, type(None)))
        if (hasattr(type(self), name) and name != "name") or other:
            raise UnknownName(f"{type(self).__name__} has an attribute {name!r} already")
        setattr(self, name, value)

    @staticmethod
    def _add_hook(hooks: dict, hook: Callable, prepend: bool = False) -> HookHandle:
        before = list(hooks) if prepend else []
        handle = put(hooks, hook)
        for key in before:
            hooks[key] = hooks.pop(key)
        return handle

    def _computes_as(self, layer: type[Module], forward: Callable | None = None) -> bool:
        """Whether the module computes what `layer`, a class that it derives from, does: by the same methods. forward: that of its own
        class, where it gives what the layer's does."""
        mine = {name: vars(self).get(name, getattr(type(self), name, None)) for name in ("forward", "calc_conv", "calc_linear")}
        if forward is not None and mine["forward"] is forward:
            del mine["forward"]
        return isinstance(self, layer) and all(method is getattr(layer, name, None) for name, method in mine.items())

    # -- walking ---------------------------------------------------------------------------------------------------------
    def _attributes(self) -> Iterator[tuple[str, Any]]:
        for name in sorted(self.__dict__):
            if name not in HOOKS:
                yield from parts_of(self.__dict__[name], name)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly inside, with their names."""
        return ((n, v) for n, v in self._attributes() if isinstance(v, Module))

    def children(self) -> Iterator[Module]:
        """The modules directly inside."""
        return (v for _, v in self.named_children())

    def named_modules(self, prefix: str = "", with_parent: bool = False) -> Iterator[tuple]:
        """This module and all inside, each once, with dotted names; `with_parent`: and the module in which it stands, None for this one."""
        seen: set[int] = set()

        def walk(m: Module, name: str, parent: Module | None):
            if id(m) in seen:
                return
            seen.add(id(m))
            yield (name, m, parent) if with_parent else (name, m)
            for n, child in m.named_children():
                yield from walk(child, f"{name}.{n}" if name else n, m)

        return walk(self, prefix, None)

    def modules(self, with_parent: bool = False) -> Iterator[Any]:
        """This module and all inside; `with_parent`: (module, the module in which it stands, None for this one)."""
        return (found[1:] if with_parent else found[1] for found in self.named_modules(with_parent=with_parent))

    def named_tensors(self, prefix: str = "", recursive: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Parameters and buffers, each tensor once."""
        seen: set[int] = set()

        def walk(m: Module, name: str):
            for n, v in m._attributes():
                full = f"{name}.{n}" if name else n
                if isinstance(v, Tensor):
                    if id(v) not in seen:
                        seen.add(id(v))
                        yield full, v
                elif recursive:
                    yield from walk(v, full)

        return walk(self, prefix)

    def named_parameters(self, prefix: str = "", recursive: bool = True) -> Iterator[tuple[str, Parameter]]:
        """The trainable tensors with their dotted names, in alphabetical order of attributes."""
        return ((n, t) for n, t in self.named_tensors(prefix, recursive) if isinstance(t, Parameter))

    def parameters(self, recursive: bool = True) -> Iterator[Parameter]:
        """The trainable tensors."""
        return (p for _, p in self.named_parameters(recursive=recursive))

    def named_buffers(self, prefix: str = "", recursive: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The tensors that are not trained (running statistics), with their dotted names."""
        return ((n, t) for n, t in self.named_tensors(prefix, recursive) if not isinstance(t, Parameter))

    def buffers(self, recursive: bool = True) -> Iterator[Tensor]:
        """The tensors that are not trained."""
        return (b for _, b in self.named_buffers(recursive=recursive))

    def tensors(self, recursive: bool = True) -> Iterator[Tensor]:
        """Parameters and buffers."""
        return (t for _, t in self.named_tensors(recursive=recursive))

    def apply(self, fn: Callable[[Module], None]) -> Module:
        """fn(module) for this module and all inside; returns the module."""
        for m in self.modules():
            fn(m)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Sets `requires_grad` of all parameters: False leaves them out of all gradients, and so of training; True makes what is computed of
        them recorded outside of managers too, for `Tensor.backward`. Returns the module.

        >>> from tengen import Tensor, module as M
        >>> net = M.Linear(2, 1).requires_grad_()
        >>> net(Tensor([[1.0, 2.0]])).sum().backward()
        >>> net.weight.grad.tolist()
        [[1.0, 2.0]]
        """
        for p in self.parameters():
            p.requires_grad = requires_grad
        return self

    def to(
        self, *args: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False, memory_format: Any = None
    ) -> Module:
        """The module itself, with its parameters and buffers of floats cast to a dtype, where one is named: `to("cpu")`, `to("float64")`,
        `to("cpu", "float16")`, as `Tensor.to`. The processor is the only device so far. memory_format: accepted, as PyTorch's; how
        tensors lie in memory is a matter of the compiler.

        Errors: DeviceError for a device that is not here

        >>> from tengen import module as M
        >>> M.Linear(2, 1).to("float64").weight.dtype
        float64
        """
        for t in self.tensors():
            cast = t.to(*args, device=device, dtype=dtype)
            if cast is not t and t.dtype.is_inexact:
                t._reset(cast.detach())
        return self

    def cpu(self) -> Module:
        """The module itself: it is on the processor."""
        return self

    def cuda(self, device: Any = None) -> Module:
        """The module on a GPU. Errors: DeviceError while there is none."""
        return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    def float(self) -> Module:
        """`to("float32")`."""
        return self.to("float32")

    def double(self) -> Module:
        """`to("float64")`."""
        return self.to("float64")

    def half(self) -> Module:
        """`to("float16")`. For training in mixed precision see `tengen.amp`, which keeps parameters in float32."""
        return self.to("float16")

    def bfloat16(self) -> Module:
        """`to("bfloat16")`."""
        return self.to("bfloat16")

    def get_submodule(self, target: str) -> Module:
        """The module inside of this name, as of `named_modules`; "" is the module itself. Errors: AttributeError where there is none."""
        every = dict(self.named_modules())
        if target not in every:
            raise AttributeError(f"{type(self).__name__} has no module {target!r}" + nearest(target, every, {}))
        return every[target]

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of this name, as of `named_parameters`. Errors: AttributeError where there is none."""
        every = dict(self.named_parameters())
        if target not in every:
            raise AttributeError(f"{type(self).__name__} has no parameter {target!r}" + nearest(target, every, {}))
        return every[target]

    # -- modes -----------------------------------------------------------------------------------------------------------
    def train(self, mode: bool = True, recursive: bool = True) -> Module:
        """Training mode (dropout drops, batch norm uses the batch); returns self.

        As in MegEngine each module inside is asked by its own `train(mode, recursive=False)`, which a class may override.
        """
        for m in self.modules() if recursive else [self]:
            if m is self or type(m).train is Module.train:
                m.training = mode
            else:
                m.train(mode, recursive=False)
        return self

    def eval(self) -> Module:
        """Evaluation mode; returns self."""
        return self.train(False)

    def disable_quantize(self, value: bool = True) -> None:
        """Says that `quantization.quantize_qat` leaves this module and all inside as they are; False takes it back."""
        for m in self.modules():
            m.quantize_disabled = value

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        for p in self.parameters():
            p.grad = None

    # -- state -----------------------------------------------------------------------------------------------------------
    def _state_shape(self, name: str, t: Tensor) -> tuple[int, ...]:
        """The shape of a tensor of this module in a state dict (norms store theirs flat)."""
        return t.shape

    def _owned_tensors(self) -> Iterator[tuple[str, Module, Tensor]]:
        seen: set[int] = set()

        def walk(m: Module, prefix: str):
            for n, v in m._attributes():
                full = f"{prefix}.{n}" if prefix else n
                if isinstance(v, Tensor):
                    if id(v) not in seen and n not in m.__dict__.get("_not_saved", ()):
                        seen.add(id(v))
                        yield full, m, v
                else:
                    yield from walk(v, full)

        return walk(self, "")

    def state_dict(self, rst=None, prefix: str = "", keep_var: bool = False) -> dict[str, Any]:
        """All tensors by dotted name, as NumPy arrays (as Tensors with keep_var)."""
        out = OrderedDict() if rst is None else rst
        for name, m, t in self._owned_tensors():
            out[prefix + name] = t if keep_var else t.numpy().reshape(m._state_shape(name, t)).copy()
        return out

    def _state_views(self) -> dict[str, Any]:
        """`state_dict` whose arrays are read-only views of the tensors' memory."""
        return {name: t.numpy().reshape(m._state_shape(name, t)) for name, m, t in self._owned_tensors()}

    def _respell(self, prefix: str, values: dict[str, Any]) -> None:
        """Gives what a state dict has for the module in another library's form the module's own names and shapes; most have none."""

    def load_state_dict(self, state_dict, strict: bool = True) -> LoadedKeys:
        """Takes values by name: a dict of arrays or tensors, or a function (name, tensor) -> array or None.

        Args:   strict: an error where a name is missing or unexpected; else such names are left as they are. What PyTorch's modules
            count and these do not (``num_batches_tracked`` of batch norms) is expected, and left out.
        Returns: `LoadedKeys`, the names that did not match; both lists are empty with `strict`.

        Arrays are copied, but not those of a mapped file (`tengen.load(path, mmap=True)`); nor are tensors, which are values.

        Errors: TypeError for what is no dict and no function; UnknownName (a KeyError) that lists all missing and unexpected names (with
            near misses); ValueError for shapes that do not fit, and for integers or complex numbers in the place of floats, and the like:
            floats of another size are taken as they are.
        """
        owned = list(self._owned_tensors())
        if callable(state_dict) and not isinstance(state_dict, dict):
            found = {name: state_dict(name, t) for name, _, t in owned}
            values, strict = {k: v for k, v in found.items() if v is not None}, False
        else:
            if not isinstance(state_dict, Mapping):
                raise TypeError(
                    f"load_state_dict() of {type(self).__name__} takes a dict of arrays or tensors, or a function of names, got a "
                    f"{type(state_dict).__name__}; help: what state_dict() or tengen.load(file) gave"
                )
            values = dict(state_dict)
            for prefix, m in self.named_modules():
                m._respell(f"{prefix}." if prefix else "", values)
        names = {name for name, _, _ in owned}
        unused = {f"{prefix}.{n}" if prefix else n for prefix, m in self.named_modules() for n in m._unused_states}
        missing, extra = sorted(names - values.keys()), sorted(values.keys() - names - unused)
        if strict and (missing or extra):
            lines = [f"  missing: {n}" + nearest(n, extra, {}) for n in missing] + [f"  unexpected: {n}" for n in extra]
            raise UnknownName("the state dict does not fit " + type(self).__name__ + ":\n" + "\n".join(lines))
        if names and len(missing) == len(names):
            warn_once(
                f"load_state_dict(): none of the {len(names)} tensors of {type(self).__name__} was given a value; it has "
                f"{missing[0]!r}, ...; the state dict has {', '.join(map(repr, extra[:1])) or 'nothing'}; help: rename its keys, or load "
                "another file",
                UsageWarning,
            )
        wrong = []
        arrays = {}
        for name, _, t in owned:
            if name in values:
                a = arrays[name] = np.asarray(values[name])
                if a.size != t.size or (a.shape != t.shape and a.ndim != 1 and a.squeeze().shape != t.numpy().squeeze().shape):
                    wrong.append(f"  {name}: {a.shape} does not fit {t.shape}")
                elif _kind(dtype(a.dtype)) != _kind(t.dtype):
                    wrong.append(f"  {name}: {a.dtype} is no {t.dtype}; help: convert it first")
        if wrong:
            raise ValueError("the state dict does not fit " + type(self).__name__ + ":\n" + "\n".join(wrong))
        for name, _, t in owned:
            if name in arrays:
                t._reset(_value(values[name] if isinstance(values[name], Tensor) else arrays[name], t.shape))
        return LoadedKeys(missing, extra)

    def replace_param(self, params: dict, start_pos: int, seen=None) -> int:
        """Accepted for MegEngine's sake; parameters are changed through `load_state_dict`."""
        raise NotImplementedError("replace_param(): use load_state_dict")

    # -- for people ------------------------------------------------------------------------------------------------------
    def _module_info_string(self) -> str:
        """What stands in the brackets of the repr."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({n}): " + repr(c).replace("\n", "\n  ") for n, c in self.named_children()]
        info = self._module_info_string()
        if not lines:
            return f"{type(self).__name__}({info})"
        return f"{type(self).__name__}({info}\n  " + "\n  ".join(lines) + "\n)"

    def _repr_html_(self) -> str:
        """A tree for notebooks, which folds."""
        return _html(self, "")


def _warn_of_another_kind(m: Module, name: str, old: Tensor, value: Any) -> None:
    """Warns where an array takes a tensor's place, or a tensor that is not trained a parameter's."""
    kind = type(old).__name__
    if isinstance(value, np.ndarray):
        now = f"a NumPy array of shape {value.shape}, which is neither trained nor saved"
    elif isinstance(old, Parameter) and not isinstance(value, Parameter):
        now = f"a Tensor of shape {value.shape}, which is a buffer: it is saved, and not trained"
    else:
        return
    warn_once(
        f"{type(m).__name__}.{name} was a {kind} of shape {old.shape} and is now {now}; help: net.{name}[...] = values, or net.{name} = "
        f"{kind}(values)",
        UsageWarning,
    )


def _warn_of_what_is_not_found(m: Module, name: str, value: Any) -> None:
    """Warns of modules and parameters in a set, or under keys of a dict that are no texts: a walk does not find them."""
    hidden = [v for k, v in value.items() if not isinstance(k, str)] if isinstance(value, dict) else value
    lost = next((v for v in hidden if isinstance(v, (Module, Parameter))), None)
    if lost is not None:
        where = "under a key that is no text" if isinstance(value, dict) else f"in a {type(value).__name__}"
        warn_once(
            f"{type(m).__name__}.{name} holds a {type(lost).__name__} {where}, where it is neither trained nor saved; help: a list, or a "
            "dict whose keys are texts",
            UsageWarning,
        )


def _html(m: Module, name: str) -> str:
    """A module as a line, which opens to show those inside."""
    title = html.escape(f"{name}: {type(m).__name__}({m._module_info_string()})" if name else f"{type(m).__name__}({m._module_info_string()})")
    count = sum(p.size for p in m.parameters())
    line = f"<code>{title}</code> {count:,} parameters" if count else f"<code>{title}</code>"
    inside = "".join(_html(c, n) for n, c in m.named_children())
    if not inside:
        return f'<div style="margin-left:1.2em">{line}</div>'
    return f'<details open style="margin-left:1.2em"><summary>{line}</summary>{inside}</details>'


def _name_layer(e: Exception, m: Module) -> None:
    """Notes with an error in which layer it arose, as ``Sequential.2: Linear(64, 32)``: from the module that was called first down
    to the last."""
    layers = [m, *getattr(e, "_layers", ())]
    names = [type(m).__name__]
    for outer, inner in zip(layers, layers[1:]):
        names.append(next((name for name, c in outer.named_children() if c is inner), f"({type(inner).__name__})"))
    last = layers[-1]
    inside = f": {type(last).__name__}({last._module_info_string()})" if len(layers) > 1 else f"({last._module_info_string()})"
    note = f"in {'.'.join(names)}{inside}"
    notes = getattr(e, "__notes__", [])
    if notes and notes[-1] == getattr(e, "_layer_note", None):
        notes[-1] = note
    else:
        e.add_note(note)
    e._layers, e._layer_note = layers, note


def _value(x: Tensor | np.ndarray, shape: tuple[int, ...]) -> Tensor:
    """What a state dict holds, as a tensor of this shape. An array may change, and is copied, unless it is a mapped file."""
    if isinstance(x, Tensor):
        return contiguous(x.detach()).reshape(shape)
    return from_numpy(x.reshape(shape), copy=not mapped.is_mapped(x))


def _kind(d: DType) -> str:
    """Integers, floats or complex numbers: a network that is given others computes something else, or has no gradient any more."""
    return "integers" if d.kind in "biu" else d.kind


flags_of_methods(Module)
