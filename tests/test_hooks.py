"""What a floor needs from one above it is installed in one place, by its owner: no module sets attributes of another's objects.

Reads the sources with `ast`, and asks the three places that take functions of a floor above.
"""

import ast

import numpy as np
import pytest
from test_floors import FILES

import tengen.functional.distributed  # noqa: F401  (which installs)
from tengen.codegen.targets.processor import answers
from tengen.ops.calls import Dispatch, dispatch
from tengen.transport.channel import memory

# (module, what it sets): why this module may set what another one defines
ALLOWED = {
    ("tengen.runtime.tiers", "progress.elsewhere"): "the line on a terminal counts what is compiled in the background",
    ("tengen.tensor.methods", "Tensor.__dir__"): "the same as those below",
    ("tengen.tensor.methods", "Tensor.T"): "the one place that puts operators and methods on Tensor",
    ("tengen.tensor.methods", "Tensor.__hash__"): "the same",
    ("tengen.tensor.methods", "Tensor.__dlpack__"): "the same",
    ("tengen.tensor.methods", "Tensor.__dlpack_device__"): "the same",
    ("tengen.tensor.methods", "Tensor.__round__"): "the same",
    ("tengen.tensor.methods", "Tensor.round"): "the same",
    ("tengen.tensor.methods", "Tensor.__divmod__"): "the same",
    ("tengen.tensor.methods", "Tensor.__rdivmod__"): "the same",
    ("tengen.tensor.methods", "Tensor.__array_ufunc__"): "the same",
    ("tengen.tensor.methods", "Tensor.__array_function__"): "the same",
    ("tengen.tensor.methods", "Tensor.real"): "the same",
    ("tengen.tensor.methods", "Tensor.imag"): "the same",
    ("tengen.tensor.methods", "Tensor.mH"): "the same",
    ("tengen.tensor.methods", "setattr(Tensor)"): "the same",
    ("tengen.tensor.recorder", "tracing.recorder"): "the recorder says that it records; a property that remembers the thread",
    ("tengen.runtime.process", "config.threads"): "a knob; who turns it by a function finds the new number there",
}


def patches(source):
    """What a source sets on names that it imports from Tengen, as "name.attribute"."""
    nodes = list(ast.walk(ast.parse(source)))
    imported = {
        (a.asname or a.name).split(".")[0]
        for node in nodes
        if isinstance(node, (ast.ImportFrom, ast.Import))
        for a in node.names
        if (getattr(node, "module", None) or a.name).startswith("tengen")
    }
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []
        for t in (x for target in targets for x in (target.elts if isinstance(target, ast.Tuple) else [target])):
            if isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name) and t.value.id in imported:
                yield f"{t.value.id}.{t.attr}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and node.args:
            if isinstance(node.args[0], ast.Name) and node.args[0].id in imported:
                yield f"setattr({node.args[0].id})"


def test_no_module_sets_what_another_defines():
    found = {(module, what) for module, path in FILES.items() for what in patches(path.read_text())}
    assert not (wrong := found - ALLOWED.keys()), f"set on what another module defines: {sorted(wrong)}"
    assert not (stale := ALLOWED.keys() - found), f"no longer needed in ALLOWED: {sorted(stale)}"


@pytest.mark.parametrize("source, what", [
    ("from tengen.ops.define import dispatch\ndispatch.run = 1", ["dispatch.run"]),
    ("from tengen.ops.define import dispatch\ndef f():\n    dispatch.run, x = 1, 2", ["dispatch.run"]),
    ("from tengen.codegen import target as t\nt.recall: int = 1", ["t.recall"]),
    ("import tengen.ops as ops\nops.n += 1", ["ops.n"]),
    ("from tengen.tensor import Tensor\nsetattr(Tensor, 'x', 1)", ["setattr(Tensor)"]),
    ("import numpy as np\nnp.x = 1\nclass A:\n    def f(self):\n        self.x = 1", []),
])  # fmt: skip
def test_the_check_sees(source, what):
    assert list(patches(source)) == what


def test_installed_once():
    with pytest.raises(RuntimeError, match=r"installed already, by tengen/tensor/methods\.py"):
        dispatch.install(run=None, slow=None, tensor=None, scalar=None, known=None, set_item=None, by_mask=None)
    with pytest.raises(RuntimeError, match=r"installed already, by runtime/cache\.py"):
        answers.install(lambda identity, ask: ask())
    with pytest.raises(RuntimeError, match=r"installed already, by functional/distributed\.py"):
        memory.install(np.empty)
    with pytest.raises(TypeError, match="set_item"):
        Dispatch().install(run=None, slow=None, tensor=None, scalar=None, known=None)


def made():
    """A dispatch of its own, whose calls say which way they went."""
    d = Dispatch()
    d.install(
        run=lambda op, xs, attrs: ["run"], slow=lambda op, xs, attrs: ["slow"], tensor=None, scalar=None, known=None, set_item=None,
        by_mask=None,
    )
    return d


def test_a_filter_stays_as_long_as_somebody_wants_it():
    d = made()
    own = d.run, d.slow
    around = lambda go: lambda *call: ["filtered", *go(*call)]
    d.add_filter(around)
    d.add_filter(around)
    assert d.run(None, (), ()) == ["filtered", "run"] and d.slow(None, (), ()) == ["filtered", "slow"]  # once, however often
    outer = lambda go: lambda *call: ["outer", *go(*call)]
    d.add_filter(outer)
    assert d.run(None, (), ()) == ["outer", "filtered", "run"]
    d.remove_filter(around)
    assert d.slow(None, (), ()) == ["outer", "filtered", "slow"]
    d.remove_filter(outer)
    assert d.run(None, (), ()) == ["filtered", "run"]
    d.remove_filter(around)
    assert (d.run, d.slow) == own
    d.add_filter(lambda go: lambda *call: "other")
    assert d.run(None, (), ()) == "other"
