"""MegEngine's surgery on model files: what its own tests of `Network` do, and what a network computes afterwards, against NumPy."""

import numpy as np
import pytest

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ConfigError, DTypeError, TraceError, VerifyError
from tengen.utils import comp_graph_tools as cgtools
from tengen.utils import module_stats
from tengen.utils.network import Network, NodeFilter, as_oprnode, as_varnode, set_symbolic_shape
from tengen.utils.network_node import (
    ConvolutionForward,
    Elemwise,
    Host2DeviceCopy,
    ImmutableTensor,
    NetworkNode,
    OpNode,
    VarNode,
)

A, B = np.float32([1, 2, 3]), np.float32([4, 5, 6])


@pytest.fixture
def path(tmp_path):
    """A file of y = (a + b) * 2."""
    file = tmp_path / "two.tgn"
    trace(lambda a, b: (a + b) * 2, example_input=(Tensor(A), Tensor(B))).dump(file, arg_names=["a", "b"], output_names=["y"])
    return file


def run(net, path, **inputs):
    net.dump(out := path.with_suffix(".out"))
    return list(cgtools.GraphInference(out).run(inp_dict=inputs).items())


def test_looking(path):
    net = Network.load(path)
    assert [v.name for v in net.input_vars] == ["a", "b"] and [v.name for v in net.dest_vars] == ["y"] and net.metadata is None
    assert [o.type for o in net.all_oprs] == ["Host2DeviceCopy", "Host2DeviceCopy", "Elemwise", "ImmutableTensor", "Elemwise"]
    assert net.data_providers_filter.as_count() == 2 and net.params_filter.as_count() == 1 and len(net.all_vars) == 5
    assert set(net.all_oprs_dict) == set(net.all_vars_dict) and net.opr_filter.not_type(Elemwise).as_count() == 3
    (two,) = net.params_filter
    assert two.numpy() == 2.0 and two.outputs[0].numpy().shape == () and two.dtype == "float32" and not two.numpy().flags.writeable
    a = net.var_filter.name("A").as_unique()
    add = net.opr_filter.has_input(a).as_unique()
    assert a.owner is net.get_opr_by_name("a") and add in a.users and net.get_var_receive_oprs(a) == [add] and add.op == "add"
    assert a.shape == a.partial_shape == (3,) and isinstance(a, Tensor) and a.id != add.id and add.params == {} and add.inputs[0] is a
    assert net.get_dep_oprs(add.outputs[0]) == [*net.data_providers_filter, add] and add.priority < net.dest_vars[0].owner.priority
    assert as_varnode(add) is add.outputs[0] and as_oprnode([a]) is a.owner and as_varnode([a]) is a and as_oprnode(add) is add
    assert NodeFilter(net.dest_vars[0]).as_count() == 4 and NodeFilter.make_all_deps(*net.dest_vars).check_type(OpNode).as_count() == 5
    for wrong, error in [
        (lambda: net.get_opr_by_type(Elemwise), ValueError), (lambda: net.opr_filter.check_type(VarNode).as_list(), TypeError),
        (lambda: net.var_filter.name("zz").as_unique(), ValueError), (lambda: as_varnode(3), TypeError), (lambda: NodeFilter(3), TypeError),
        (lambda: as_oprnode([]), ValueError), (lambda: net.opr_filter.type(int), TypeError), (lambda: a.numpy(), TraceError),
        (lambda: bool(a), TraceError), (lambda: net.opr_filter.name(3), TypeError), (lambda: a.tolist(), TraceError),
    ]:  # fmt: skip
        with pytest.raises(error):
            wrong()
    with pytest.raises(TraceError, match="in place"):
        a[0] = 1.0
    assert issubclass(ImmutableTensor, NetworkNode) and len(net.get_opr_by_type(Elemwise, unique=False)) == 2
    assert set_symbolic_shape(True) is False and set_symbolic_shape(False) is True


def test_replacing_variables_and_operators(path):
    net = Network.load(path)
    a, b = net.input_vars
    (add,) = net.opr_filter.has_input(a)
    net.replace_vars({add.outputs[0]: F.relu(a * b) - 1})
    assert np.array_equal(run(net, path, a=A, b=-B)[0][1], np.float32([-2, -2, -2]))
    net = Network.load(path)
    a, b = net.input_vars
    (add,) = net.opr_filter.has_input(a)
    net.replace_oprs({add: F.softmax(a).owner})  # composites too
    e = np.exp(A.astype("float64"))
    ((name, got),) = run(net, path, a=A)
    assert name == "y" and np.allclose(got, 2 * e / e.sum(), rtol=1e-6)  # b is read no more, and is no input
    a = net.input_vars[0]
    net.replace_vars({a: F.exp(a)})  # what the new one is made of goes on reading the old one
    assert np.allclose(run(net, path, a=A)[0][1], 2 * np.exp(np.exp(A) - 21) / np.exp(np.exp(A) - 21).sum(), rtol=1e-5, atol=1e-9)
    net = Network.load(path)
    (y,), a = net.dest_vars, net.input_vars[0]
    wrong = F.matmul(F.ones((5, 3)), a)
    text = str(net.graph)
    with pytest.raises(VerifyError, match=r"node \d, add\(f32\[5\], f32\[3\]\)"):
        net.replace_vars({a: wrong})
    assert str(net.graph) == text and wrong.shape == (5,)
    with pytest.raises(VerifyError, match="y.* has 1 results, and .*, which takes its place, has 2"):
        net.replace_oprs({y.owner: F.topk(a, 2)[0].owner})


def test_what_replaces_nothing_is_refused_and_leaves_both_networks(path):
    net, other = Network.load(path), Network.load(path)
    (a, b), out = net.input_vars, other.dest_vars[0]
    bad = {
        TypeError: ({a: 3}, {a: Tensor(A)}, {"a": b}, [a], {a: b.owner}),
        VerifyError: ({other.input_vars[0]: b}, {a: F.matmul(F.ones((5, 3)), out)}),
    }
    for error, tables in bad.items():
        for table in tables:
            text = str(net.graph)
            with pytest.raises(error, match="is needed, got|is of VarNode, got|is of another network|node ., add"):
                net.replace_vars(table)
            assert str(net.graph) == text
    net, other = Network.load(path), Network.load(path)
    (a, b), out = net.input_vars, F.concat([other.dest_vars[0]] * 2)
    texts = str(net.graph), str(other.graph)
    with pytest.raises(VerifyError, match=r"add\(f32\[6\], f32\[3\]\)"):
        net.replace_vars({a: out})
    assert (str(net.graph), str(other.graph)) == texts and out.network is other and out.owner.inputs[0].name == "y"
    with pytest.raises(TypeError, match="is of OpNode, got VarNode; help: variable.owner"):
        net.replace_oprs({a: b})
    with pytest.raises(TypeError, match="a class of operators"):
        net.get_opr_by_type("Elemwise")
    with pytest.raises(VerifyError, match="an extent is an int"):
        net.reset_batch_size(2.5)
    assert np.array_equal(run(net, path, a=A, b=B)[0][1], 2 * (A + B))


def test_outputs_names_constants_and_inputs(path):
    net = Network.load(path)
    a, b = net.input_vars
    (add,) = net.opr_filter.has_input(a)
    add.outputs[0].name = "total"
    net.add_output(add.outputs[0], F.exp(b))
    assert [k for k, _ in run(net, path, a=A, b=B)][:2] == ["y", "total"]
    net.dump(path)
    net.remove_output(net.dest_vars[0])
    x = net.make_input_node((3,), "float32", name="x")
    net.add_output(F.mul(x, net.make_const([1.0, 2.0, 3.0], name="weights")))
    net.dest_vars[-1].name = "z"
    assert dict(run(net, path, a=A, b=B, x=A))["z"].tolist() == [1.0, 4.0, 9.0]
    net.dump(path)
    net = Network.load(path, outspec=["z"])
    assert [v.name for v in net.input_vars] == ["a", "b", "x"] and net.params_filter.as_unique().name == "weights"
    net.params_filter.as_unique().set_value([2.0, 2.0, 2.0])
    net.modify_opr_names("net")
    assert {o.name for o in net.all_oprs} == {"net.x", "net.weights", "net.z"}
    net.modify_opr_names(lambda name: name.removeprefix("net.") + "_")
    assert run(net, path, x_=A) == [("z_", pytest.approx([2.0, 4.0, 6.0]))]
    with pytest.raises(ConfigError):
        net.dump(path, user_info={"a": 1})
    net.remove_output(*net.dest_vars)
    with pytest.raises(ValueError, match="no output"):
        net.dump(path)


def test_networks_are_joined(path):
    first, second = Network.load(path), Network.load(path)
    first.modify_opr_names("first")
    out = first.dest_vars[0]
    second.replace_vars({second.input_vars[0]: out})
    assert out.network is second and out.owner.inputs[0].users
    got = run(second, path, **{"first.a": A, "first.b": B, "b": A})
    assert [k for k, _ in got] == ["y"] and np.array_equal(got[0][1], 2 * (2 * (A + B) + A)) and not first.all_oprs
    net = Network.load(path)
    other = Network.load(path)
    total = net.dest_vars[0] + other.dest_vars[0]  # a call with variables of two networks joins them
    net.add_output(total)
    assert [v.name for v in net.add_dep_oprs()] == [v.name for v in net.dest_vars] and len(net.input_vars) == 4


@pytest.mark.parametrize("flatten", [lambda x: F.flatten(x, 1), lambda x: x.reshape(x.shape[0], -1)])
def test_another_batch(tmp_path, flatten):
    class Net(M.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = M.Conv2d(1, 4, 3), M.Linear(4 * 36, 5)

        def forward(self, x, scale):
            return self.fc(flatten(F.relu(self.conv(x)))) * scale

    net = Net().eval()
    x = np.random.default_rng(0).normal(size=(7, 1, 8, 8)).astype("float32")
    path = tmp_path / "net.tgn"
    example = (Tensor(x[:2]), Tensor([3.0]))
    trace(net, example_input=example).dump(path, arg_names=["image", "scale"], output_names=["scores"])
    loaded = Network.load(path)
    assert loaded.get_opr_by_type(ConvolutionForward).inputs[1].owner.type == "ImmutableTensor"
    for size in (7, 2, "N", 7):
        with pytest.raises(VerifyError, match="no batch in common"):
            loaded.reset_batch_size(size)
        with pytest.raises(ValueError, match="no input is named 'b'"):
            loaded.reset_batch_size(size, blacklist=["b"])
        loaded.reset_batch_size(size, blacklist=["scale"])
        assert str(loaded.dest_vars[0].shape) == f"({size}, 5)" and loaded.dump(path).inputs[0].shape[1:] == (1, 8, 8)
        some = x[:2] if size == 2 else x
        got = tengen.load_graph(path)(image=some, scale=np.float32([3.0]))
        assert got.numpy().tobytes() == net(Tensor(some), Tensor([3.0])).numpy().tobytes()


def test_functions_over_variables(path):
    net = Network.load(path)
    y = net.dest_vars[0]
    assert [v.name for v in cgtools.get_dep_vars(y, "Host2DeviceCopy")] == ["a", "b"] and len(cgtools.get_dep_vars([y])) == 5
    assert cgtools.get_owner_opr_type(y) == cgtools.get_opr_type(y.owner) == "Elemwise" and cgtools.get_owner_opr_inputs(y) == y.owner.inputs
    assert len(cgtools.get_oprs_seq([y])) == 4 and len(cgtools.get_oprs_seq([y], prune_immtensor=False)) == 5
    oprs, vars_, var2oprs, receivers, _, degrees = cgtools.graph_traversal([y])
    assert len(oprs) == 5 and len(vars_) == 4 and degrees[y.owner.id] == 2
    assert receivers[net.input_vars[0].owner.id] == [y.owner.inputs[0].owner.id]
    assert var2oprs[net.input_vars[1].id] == [(y.owner.inputs[0].owner.id, 1)] and cgtools.set_priority_to_id([y]) is None
    a, b = net.input_vars
    (new,) = cgtools.replace_vars([y], {a: F.exp(a)})
    (other,) = cgtools.replace_oprs([y], {y.owner.inputs[0].owner: (a - b).owner})
    net.add_output(new, other)
    net.dump(path)
    got = [v for _, v in run(net, path, a=A, b=B)]
    assert np.allclose(got[1], 2 * (np.exp(A) + B)) and np.array_equal(got[0], 2 * (A + B)) and np.array_equal(got[2], 2 * (A - B))
    assert cgtools.find_vars_by_name([y], ["b", "a"]) == [b, a]
    with pytest.raises(ValueError, match="no variable named 'c'"):
        cgtools.find_vars_by_name([y], ["c"])
    inner = cgtools.GraphInference(path, outputs=["v0"]).run(A, B)
    assert inner["v0"].tolist() == (A + B).tolist() and isinstance(net.input_vars[0].owner, Host2DeviceCopy)


def test_receptive_fields_and_operations(tmp_path):
    """Fields are what the gradient of one element of a result reaches, where nothing cancels and no border is near."""
    net = M.Sequential(
        M.Conv2d(1, 2, 3, stride=2), M.MaxPool2d(2, 1), M.Conv2d(2, 1, (3, 5), dilation=(2, 1)), M.AvgPool2d(3, 2), M.ReLU()
    )  # fmt: skip
    for p in net.parameters():
        p[...] = 1.0
    x = Tensor(np.random.default_rng(0).uniform(1, 2, size=(1, 1, 41, 41)).astype("float32"))
    trace(net, example_input=x).dump(tmp_path / "net.tgn", arg_names=["x"], output_names=["y"])
    loaded = Network.load(tmp_path / "net.tgn")
    assert module_stats.get_op_stats(loaded.all_oprs[-1], [], loaded.dest_vars) is None
    module_stats.enable_receptive_field()
    try:
        found = {o.name: module_stats.get_op_stats(o, o.inputs, o.outputs) for o in loaded.all_oprs}
    finally:
        module_stats.disable_receptive_field()
    seen = []
    for at in ((3, 3), (4, 4)):
        with GradManager().attach(x) as gm:
            gm.backward(net(x)[0, 0, *at])
        seen.append([np.flatnonzero(x.grad.numpy()[0, 0].sum(axis)) for axis in (1, 0)])
        x.grad = None
    reached, step = tuple(int(i[-1] - i[0] + 1) for i in seen[0]), tuple(int(b[0] - a[0]) for a, b in zip(*seen))
    field = found["y"]["receptive_field"]
    assert all(a - 2 <= b <= a for a, b in zip(field, reached)) and found["y"]["stride"] == step == (4, 4)  # a maximum is one of its pixels
    total, _ = module_stats.module_stats(net, inputs=x, logging_to_stdout=False)
    convs = loaded.opr_filter.type(ConvolutionForward).as_list()
    own = sum(found[o.name]["flops_num"] for o in convs) + sum(o.outputs[0].size for o in convs)
    assert own == sum(module_stats.flops_convNd(m, [], [Tensor(np.zeros(o.outputs[0].shape))]) for m, o in zip((net[0], net[2]), convs))

    class Twice(M.Module):
        def forward(self, x):
            return x + x

    assert total.flops and not module_stats.module_stats(Twice(), inputs=x, logging_to_stdout=False)[1].activations[:-1]
    with pytest.raises(TypeError, match="takes classes of modules"):
        module_stats.register_hook_module([3])
    module_stats.register_hook_module(Twice)
    try:
        assert len(module_stats.module_stats(Twice(), inputs=x, logging_to_stdout=False)[1].activations) == 2
    finally:
        module_stats.hook_modules.remove(Twice)


def test_inputs_that_are_given_values_and_inputs_that_become_constants(path):
    net = Network.load(path)
    before = [v.name for v in net.input_vars]
    made, given = cgtools.convert_inputs(net.output_vars)
    same, asked = cgtools.convert_outputs(made)
    assert list(given) == before == ["a", "b"] and same == made and all(n.dtype.name == "float32" and n.shape == (3,) for n in given.values())
    [out] = asked.values()
    with pytest.raises(ValueError, match=r"depends on the input .*, which has no value; help: convert_inputs\(vars\)"):
        out.get_value()
    given["a"].set_value(A), given["b"].set_value(Tensor(B))
    assert out.get_value().numpy().tobytes() == ((A + B) * 2).tobytes()
    given["a"].set_value(B)
    assert out.get_value().numpy().tobytes() == ((B + B) * 2).tobytes()
    given["b"].reset()
    with pytest.raises(ValueError, match="no value"):
        out.get_value()
    given["b"].set_value(B.astype("float64"))
    with pytest.raises(DTypeError):
        out.get_value()
    assert run(net, path, a=A, b=B)[0][1].tobytes() == ((A + B) * 2).tobytes()  # the network is as it was

    with pytest.raises(ValueError, match="1 arrays for the inputs a, b"):
        cgtools.embed_inputs(net.output_vars, [A])
    with pytest.raises(VerifyError):
        cgtools.embed_inputs(net.output_vars, [A, B[:2]])
    [whole], constants = cgtools.embed_inputs(net.output_vars, [Tensor(A), B])
    assert {k: v.numpy().tolist() for k, v in constants.items()} == {"a": A.tolist(), "b": B.tolist()}
    assert cgtools.convert_outputs([whole])[1][whole.name].get_value().numpy().tobytes() == ((A + B) * 2).tobytes()
    [part], _ = cgtools.embed_inputs(net.output_vars, [B], net.get_var_by_name("b"))
    net.remove_output(*net.output_vars)
    part.name = "z"
    net.add_output(part)
    assert run(net, path, a=A) == [("z", pytest.approx((A + B) * 2, abs=0))]
