"""The names that a file gives to what a traced function reaches: weights, what optimizers keep, the random stream."""

import numpy as np
import pytest

from tengen import Parameter, Tensor, load_graph, random, trace
from tengen import functional as F
from tengen import module as M
from tengen import optimizer as optim
from tengen.autodiff import GradManager

X, Y = np.ones((3, 4), "float32"), np.zeros(3, "int32")


def network():
    random.seed(1)
    return M.Sequential(M.Linear(4, 3), M.ReLU(), M.Dropout(0.5), M.Linear(3, 2, bias=False))


def names_of(f, path):
    f.trace(Tensor(X), Tensor(Y)) if not f.stats() else None
    f.dump(path)
    return set(load_graph(path).states)


PARAMS = ["0.weight", "0.bias", "3.weight"]
CASES = {
    "SGD": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), ["momentum_buffer"]),
    "Adam": (lambda p: optim.Adam(p, lr=0.1), ["exp_avg", "exp_avg_sq", "step"]),
    "plain": (lambda p: optim.SGD(p, lr=0.1), []),
}


@pytest.mark.parametrize("make, kinds", CASES.values(), ids=CASES)
def test_states_follow_their_parameters(make, kinds, tmp_path):
    net = network()
    opt, gm = make(net.parameters()), GradManager().attach(net.parameters())

    @trace
    def step(x, y):
        with gm:
            gm.backward(F.loss.cross_entropy(net(x), y))
        opt.step().clear_grad()

    want = {"random_state", *PARAMS, *(f"{p}.{k}" for p in PARAMS for k in kinds)}
    assert names_of(step, tmp_path / "m.tgn") == want
    states = load_graph(tmp_path / "m.tgn").states
    for p, (name, t) in zip(net.parameters(), net.named_parameters()):
        assert p is t and states[name].numpy().tobytes() == t.numpy().tobytes()


class Trainer:
    def __init__(self, groups=False):
        self.net, self.extra = network(), Parameter(np.ones(2, "float32"), name="extra")
        params = list(self.net.parameters())
        self.gm = GradManager().attach([*params, self.extra])
        self.opt = optim.SGD([{"params": params}, {"params": [self.extra]}] if groups else [*params, self.extra], 0.1, 0.9)

    def step(self, x, y):
        with self.gm:
            loss = F.loss.cross_entropy(self.net(x) * self.extra, y)
            self.gm.backward(loss)
        self.opt.step()
        self.opt.param_groups[0].lr._reset(self.opt.param_groups[0].lr * 0.5)
        return loss


def test_of_an_object_that_trains(tmp_path):
    params = [*PARAMS, "extra"]
    both = {"random_state", *params, *(f"{p}.momentum_buffer" for p in params)}
    assert names_of(trace(Trainer().step), tmp_path / "a.tgn") == both | {"lr"}
    assert names_of(trace(Trainer(groups=True).step), tmp_path / "b.tgn") == both | {"lr0"}


def test_as_arguments_of_several_modules(tmp_path):
    body, head = M.Linear(4, 3), M.Linear(3, 2)
    gm = GradManager().attach([*body.parameters(), *head.parameters()])
    opt = optim.SGD([*body.parameters(), *head.parameters()], lr=0.1, momentum=0.9)

    @trace
    def step(x, y, *, body, head, opt):
        with gm:
            gm.backward(F.loss.cross_entropy(head(body(x)), y))
        opt.step().clear_grad()

    step.trace(Tensor(X), Tensor(Y), body=body, head=head, opt=opt)
    params = [f"module{i}.{n}" for i in (0, 1) for n in ("weight", "bias")]
    assert names_of(step, tmp_path / "m.tgn") == {*params, *(f"{p}.momentum_buffer" for p in params)}


def test_a_parameter_without_a_name(tmp_path):
    p = Parameter(np.ones(4, "float32"))
    gm, opt = GradManager().attach(p), optim.Adam([p], lr=0.1)

    @trace
    def step(x, y):
        with gm:
            gm.backward((x * p).sum())
        opt.step().clear_grad()

    names = names_of(step, tmp_path / "m.tgn")
    assert {"param0.exp_avg", "param0.exp_avg_sq", "param0.step"} < names and len(names) == 4


def test_a_stream_of_its_own(tmp_path):
    rng = random.RNG(3)
    draw = trace(lambda x, y: x * rng.uniform(size=x.shape))
    assert names_of(draw, tmp_path / "m.tgn") == {"random_state"}
