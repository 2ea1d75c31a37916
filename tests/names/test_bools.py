"""What is no bool is refused wherever a bool is asked for: a text like "False" counts as true in Python. Every public function and method with
a parameter that is annotated as a bool is looked at, by its arguments alone: none is to come so far that it computes something."""

import importlib
import inspect

import numpy as np
import pytest

import tengen
import tengen.pytorch as torch
from tengen import Tensor
from tengen import functional as F
from tengen import module as M
from tengen.base.arguments import FLAGS, flags

NAMESPACES = (
    "functional linalg fft optimizer data module random autodiff jit amp pytorch pytorch.nn pytorch.nn.functional pytorch.optim pytorch.linalg "
    "pytorch.autograd pytorch.func pytorch.utils.data pytorch.amp"
).split()
ELSEWHERE = {  # abstract; its own error; and one that says that a dtype is meant
    "MapSampler", "GraphOptimizationConfig", "autocast",
}  # fmt: skip


def asked(f) -> list[str]:
    """The parameters of a function that are annotated as bools."""
    notes = getattr(inspect.unwrap(f.__init__ if inspect.isclass(f) else f), "__annotations__", {})
    return [name for name, note in notes.items() if note in FLAGS and name != "return"]


def standing_for(p: inspect.Parameter):
    """Something for a parameter that must be given."""
    return True if p.annotation == "bool" else 1 if "int" in str(p.annotation) else 0.5 if "float" in str(p.annotation) else Tensor([1.0])


def functions(namespace: str) -> dict:
    """Public functions, and methods of public classes, that ask for a bool, by name; a class for its constructor."""
    home = importlib.import_module(f"tengen.{namespace}")
    found = {}
    for name in getattr(home, "__all__", [n for n in dir(home) if n[0] != "_"]):
        value = getattr(home, name)
        if not getattr(value, "__module__", "").startswith("tengen."):
            continue
        if inspect.isfunction(value):
            found[name] = value
        elif inspect.isclass(value):
            methods = {m: f for m, f in vars(value).items() if inspect.isfunction(f) and m[0] != "_" and m != "forward"}
            found |= {f"{name}.{m}": f for m, f in methods.items()} | ({name: value} if "__init__" in vars(value) else {})
    return {name: f for name, f in found.items() if asked(f) and not hasattr(f, "op")}


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_texts_for_bools_are_refused(namespace):
    """The other arguments are objects that answer nothing, so only what looks at its bools first says something of them."""
    silent = []
    for name, f in functions(namespace).items():
        parameters = inspect.signature(f.__init__ if inspect.isclass(f) else f).parameters.values()
        required = {p.name: standing_for(p) for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        first = [standing_for(p) for p in parameters if p.kind == p.POSITIONAL_ONLY]
        if inspect.isclass(f):
            del required["self"]
        for flag in asked(f):
            try:
                f(*first, **{**required, flag: "False"})
            except TypeError as e:
                if f"{flag}='False' must be True or False" in str(e):
                    continue
            except Exception:
                pass
            silent.append(f"{name}({flag})")
    assert not (left := [s for s in silent if s.partition("(")[0] not in ELSEWHERE]), left


X = Tensor(np.arange(6, dtype="f4").reshape(2, 3))
CALLS = {
    "op": lambda b: F.sum(X, 0, keepdims=b), "shorthand": lambda b: F.median(X, 0, keepdims=b), "method": lambda b: X.std(0, keepdims=b),
    "batch norm": lambda b: F.batch_norm(X, training=b), "loss": lambda b: F.loss.binary_cross_entropy(X, X, with_logits=b),
    "layer": lambda b: M.Linear(2, 2, bias=b), "train": lambda b: M.Linear(2, 2).train(b),
    "strict": lambda b: M.Linear(2, 2).load_state_dict({}, b),
    "loader": lambda b: tengen.data.DataLoader([1, 2], batch_size=1, shuffle=b), "trace": lambda b: tengen.trace(abs, symbolic=b),
    "load": lambda b: tengen.load("nowhere", mmap=b), "leaf": lambda b: torch.tensor([1.0], requires_grad=b),
    "attribute": lambda b: setattr(Tensor([1.0]), "requires_grad", b), "torch op": lambda b: torch.std(X, 0, keepdim=b),
    "mode": lambda b: torch.set_grad_enabled(b), "torch layer": lambda b: torch.nn.LSTM(2, 2, batch_first=b),
    "grad": lambda b: torch.autograd.grad(X, X, create_graph=b), "autocast": lambda b: tengen.amp.autocast(enabled=b),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", ["False", 0.5])
def test_what_is_no_bool_is_an_error(name, value):
    with pytest.raises(TypeError, match="must be (True or False|a bool)|the first argument is `enabled`"):
        CALLS[name](value)


def test_bools_of_other_libraries_are_bools():
    """0 and 1, NumPy's, scalars, and None where it is allowed, go through; several spellings of one call agree."""

    @flags
    def f(x: "int", turn: "bool" = False, maybe: "bool | None" = None) -> "bool":
        return x, turn, maybe

    assert f(1, True, None) == (1, True, None) and f(x=1, turn=np.True_, maybe=0) == (1, np.True_, 0) and f("a") == ("a", False, None)
    assert f(1, Tensor(True))[1].item() is True
    for bad in ({"turn": "no"}, {"turn": None}, {"turn": 2}, {"maybe": "no"}, {"maybe": [True]}):
        with pytest.raises(TypeError, match=r"f: (turn|maybe)=.* must be True or False"):
            f(1, **bad)
    assert M.Linear(2, 2).train(np.False_).training == False  # noqa: E712  (NumPy's)


def test_a_number_of_steps_is_whole():
    with pytest.raises(TypeError):
        tengen.amp.GradScaler(growth_interval=0.5)
    assert tengen.amp.GradScaler(growth_interval=np.int64(5)).growth_interval == 5
