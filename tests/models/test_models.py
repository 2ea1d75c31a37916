"""The networks: published numbers of parameters, and one meaning in every way of running. See `test_against_torch.py` for their values."""

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from exhaustive import but

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, set_threads, trace
from tengen.autodiff import GradManager
from tengen.deploy import compile_model, run_artifact
from tengen.deploy.run import CannotRun
from tengen.models.generation import Sampling, chosen
from tengen.optimizer import SGD

PARAMETERS = {
    "bert_base": 109_482_240, "convnext_tiny": 28_589_128, "densenet121": 7_978_856, "efficientnet_b0": 5_288_548, "lenet": 61_706,
    "mlp": 669_706, "mobilenet_v2": 3_504_872, "mobilenet_v3_large": 5_483_032, "resnet18": 11_689_512, "resnet34": 21_797_672,
    "resnet50": 25_557_032, "shufflenet_v2_x1_0": 2_278_604, "unet": 31_037_698, "vgg16": 138_357_544, "vit_base": 86_567_656,
    "vit_small": 22_050_664, "vit_tiny": 5_717_416,
}  # fmt: skip

IMAGE, TOKENS = (3, 64, 64), (9,)
# Small enough to compare and to run in every way: (options, shape of a sample).
SMALL = {
    "bert_base": ({"vocabulary": 50, "width": 24, "heads": 3, "depth": 2, "context": 16}, TOKENS),
    "convnext_tiny": ({"depths": (1, 2), "channels": (16, 32), "num_classes": 7}, IMAGE),
    "densenet121": ({"growth": 8, "depths": (2, 3), "width": 16, "num_classes": 7}, IMAGE),
    "efficientnet_b0": ({"num_classes": 7}, IMAGE),
    "gpt": ({"layers": 2, "width": 24, "heads": 3, "context": 16, "vocabulary": 50}, TOKENS),
    "lenet": ({}, (1, 32, 32)),
    "lstm": ({"vocabulary": 50, "embedding": 12, "hidden": 20}, TOKENS),
    "mlp": ({"sizes": (48, 33, 10)}, (3, 4, 4)),
    "mobilenet_v2": ({"width": 0.25, "num_classes": 7}, IMAGE),
    "mobilenet_v3_large": ({"num_classes": 7}, IMAGE),
    "resnet": ({"depths": (2, 1, 1), "width": 8, "num_classes": 7, "bottleneck": True}, IMAGE),
    "resnet18": ({"width": 8, "num_classes": 7}, IMAGE),
    "resnet34": ({"width": 8, "num_classes": 7}, IMAGE),
    "resnet50": ({"width": 8, "num_classes": 7}, IMAGE),
    "shufflenet_v2_x1_0": ({"num_classes": 7}, IMAGE),
    "unet": ({"width": 8, "depth": 2}, IMAGE),
    "vgg16": ({"layers": (8, 0, 16, 16, 0), "hidden": 24, "num_classes": 7}, IMAGE),
    "vit_tiny": ({"image": 32, "patch": 8, "width": 24, "heads": 3, "depth": 2, "num_classes": 7}, (3, 32, 32)),
}  # fmt: skip
# Fewer layers, each kind of them once: for gradients, for training steps and for artifacts.
SHORT = {
    "efficientnet_b0": {"stages": [(1, 3, 1, 16, 1), (6, 5, 2, 24, 2)], "hidden": 40},
    "mobilenet_v2": {"stages": [(1, 16, 1, 1), (6, 24, 2, 2)]},
    "mobilenet_v3_large": {
        "blocks": [(3, 16, 16, False, "relu", 1), (3, 32, 24, True, "relu", 2), (5, 48, 24, True, "hswish", 1)], "hidden": 40,
    },
    "resnet": {"depths": (1, 1)},
    "shufflenet_v2_x1_0": {"depths": (2, 1), "channels": (8, 16, 24, 40)},
}  # fmt: skip


def network(name, **more):
    """A small network whose weights depend on nothing but their names, large enough that results depend on the input."""
    net = tengen.models.create(name, **{**SMALL[name][0], **more})
    for i, (key, t) in enumerate(sorted(net.named_tensors())):
        rng = np.random.default_rng(i)
        a = rng.normal(size=t.shape)
        a *= (2 / np.prod(t.shape[2 if t.ndim == 5 else 1 :])) ** 0.5 if key.endswith("weight") and t.ndim > 1 else 0.2
        if key.endswith("running_var") or ("norm" in key or "bn" in key) and key.endswith("weight"):
            a = 1 + 0.2 * np.abs(a)
        t._reset(a.astype(np.float32))
    for m in net.modules():
        if isinstance(m, M.Dropout) or type(m).__name__ == "DropPath":
            m.drop_prob = 0.0
    return net


def sample(name, batch=2, seed=0):
    """Token ids, or images of noise, each with colours of its own that the means over images do not lose."""
    rng, shape = np.random.default_rng(seed), (batch, *SMALL[name][1])
    if SMALL[name][1] == TOKENS:
        return rng.integers(0, 50, shape).astype(np.int32)
    return rng.standard_normal(shape, np.float32) + 2 * rng.standard_normal((*shape[:2], 1, 1), np.float32)


def first(y):
    return y[0] if isinstance(y, tuple) else y


@but(every=4)
@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name, monkeypatch):
    for draw in ("normal_", "uniform_"):  # nobody looks at 138 million numbers
        monkeypatch.setattr(M.init, draw, lambda tensor, *args: None)
    assert sum(p.size for p in tengen.models.create(name).parameters()) == PARAMETERS[name]


def test_names():
    assert set(PARAMETERS) | {"gpt", "llama", "lstm", "resnet"} == set(tengen.models.list_models())
    assert set(SMALL) == set(tengen.models.list_models()) - {"vit_small", "vit_base", "llama"}  # for Llama see test_generation.py
    with pytest.raises(ValueError, match="no model 'resnet19'.*resnet18"):
        tengen.models.create("resnet19")


# ---- one meaning -----------------------------------------------------------------------------------------------------------

WAYS = ["resnet", "mobilenet_v2", "vit_tiny", "gpt", "lstm", "unet"]
# Every stage, at its size of images, without the blocks that repeat it: a network's kinds of layers for half of the code.
STAGES = {
    "mobilenet_v2": {
        "stages": [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 1, 2), (6, 64, 1, 2), (6, 96, 1, 1), (6, 160, 1, 2), (6, 320, 1, 1)]
    },
    "resnet": {"depths": (1, 1, 1, 1), "bottleneck": False},
}  # fmt: skip


@but(these=["resnet", "gpt", "lstm"])
@pytest.mark.parametrize("name", WAYS)
def test_every_way_gives_the_same_bits(name, tmp_path):
    net = network(name, **STAGES.get(name, {})).eval()
    x = Tensor(sample(name, 3))
    want = net(x).numpy()
    run = trace(net, capture_as_const=True)
    assert run(x).numpy().tobytes() == want.tobytes()
    set_threads(1)
    assert run(x).numpy().tobytes() == want.tobytes()
    set_threads(2)
    run.dump(tmp_path / "net.tgn", arg_names=["x"])
    assert tengen.load_graph(tmp_path / "net.tgn")(x).numpy().tobytes() == want.tobytes()
    alone = trace(net)
    assert all(alone(x[i : i + 1]).numpy().tobytes() == want[i : i + 1].tobytes() for i in range(3))


@but(these=["resnet", "gpt"])
@pytest.mark.parametrize("name", ["resnet", "mobilenet_v2", "vit_tiny", "gpt", "lstm"])
def test_traced_training_is_eager_training(name):
    def train(traced):
        net = network(name, **SHORT.get(name, {})).train()
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.05, momentum=0.9)

        def step(x, label):
            with gm:
                y = net(x)
                loss = F.loss.cross_entropy(y.reshape(-1, y.shape[-1]), label)
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        run = trace(step) if traced else step
        x = sample(name, 4)
        n = x.size if name == "gpt" else 4
        losses = [run(Tensor(x), Tensor((np.arange(n) % 2).astype("int32"))).numpy().tobytes() for _ in range(2)]
        return losses + [t.numpy().tobytes() for _, t in sorted(net.named_tensors())]

    assert train(True) == train(False)


@but(every=6)
@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "gpt"])
def test_artifacts(name, target, tmp_path):
    pytest.importorskip("ziglang")
    net = network(name).eval()
    x = sample(name, 1)[..., :16, :16] if name != "gpt" else sample(name, 1)
    run = trace(net, capture_as_const=True)
    want = run(Tensor(x)).numpy()
    run.dump(tmp_path / "net.tgn", arg_names=["x"], output_names=["y"])
    artifact = compile_model(tmp_path / "net.tgn", target, tmp_path, "net")
    try:
        assert run_artifact(artifact, [x])[0].tobytes() == want.tobytes()
    except CannotRun as e:
        pytest.skip(str(e))


@pytest.mark.parametrize("tied", [False, True])
def test_text_with_a_cache_is_text_without(tied):
    net = network("gpt", tied=tied).eval()
    ids = sample("gpt", 2)[:, :4]
    text = net.generate(ids, 7)
    assert text.shape == (2, 11) and (text[:, :4] == ids).all()
    logits = net(Tensor(text)).numpy()
    assert (logits[:, 3:-1].argmax(-1) == text[:, 4:]).all()
    step, caches = net.step(Tensor(text[:, :4]))
    assert step.numpy().tobytes() == logits[:, :4].tobytes()
    for t in range(4, 11):
        step, caches = net.step(Tensor(text[:, t : t + 1]), caches)
        assert step.numpy().tobytes() == np.ascontiguousarray(logits[:, t : t + 1]).tobytes()


def greedy():
    return Tensor(Sampling().numbers()), Tensor(np.zeros((2, 1), np.float32))


def next_logits(net, decode):
    """The logits that a decoder's next step chooses by, as a program of their own. What it writes, the step writes again."""
    seen = Tensor(np.arange(64, dtype=np.int32))
    return trace(lambda: net._logits(net._decoded(decode.tokens.reshape(-1, 1), decode.places, seen, decode.caches)))()


def steps(n):
    """What so many steps of two rows draw greedily with."""
    return Tensor(Sampling().numbers()), Tensor(np.zeros((n, 2, 1), np.float32))


def test_text_from_a_traced_step(monkeypatch):
    """Caches that are allocated once and written in place, the step as one program: the bits of the eager step."""
    net = network("gpt").eval()
    ids = sample("gpt", 2)[:, :4]
    logits, caches = net.step(Tensor(ids))
    new = logits[:, -1].numpy().argmax(-1)
    decode = net._decoder(2, 16, Sampling().key())
    assert (decode.begin(ids, np.full(2, 4, np.int32), *greedy(), np.zeros((2, 1), bool)) == new).all()
    for mine, held in zip(decode.caches, caches):
        for x, want in zip(mine, held):
            assert np.ascontiguousarray(x.numpy()[:, :, :4]).tobytes() == want.numpy().tobytes() and not x.numpy()[:, :, 4:].any()
    for several in (1, 3, 1, 5, 2):
        want = []
        traced = next_logits(net, decode)
        for i in range(several):
            logits, caches = net.step(Tensor(new.astype(np.int32)[:, None]), caches)
            assert i or traced.numpy().tobytes() == logits.numpy().tobytes()
            new = logits[:, -1].numpy().argmax(-1)
            want.append(new)
        assert (decode(*steps(several)) == want).all() and (decode.tokens.numpy() == new).all()
    assert len(decode.run.stats()) == 1, "any number of steps is one program"
    text, drawn = net.generate(ids, 12), net.generate(ids, 12, temperature=1.0, seed=3)
    monkeypatch.setattr(sys.modules["tengen.models.generation"], "TRACED", 1)
    assert (net.generate(ids, 12) == text).all() and (net.generate(ids, 12, temperature=1.0, seed=3) == drawn).all()
    assert (net.generate(ids, 0) == ids).all() and (net.generate(ids[:, :1], 1) == net.generate(ids[:, :1], 2)[:, :2]).all()


def test_the_traced_step_is_recorded_once_for_many_texts(monkeypatch):
    """Later texts of any length in the room take the same recording, with caches that hold nothing of the text before."""
    net = network("gpt").eval()
    ids = sample("gpt", 2)[:, :4]
    want = [net.generate(ids[:, :t], 16 - t) for t in (4, 2)]
    weight = net.blocks[0].attn.qkv.weight
    plain = weight.numpy().copy()
    monkeypatch.setattr(sys.modules["tengen.models.generation"], "TRACED", 1)
    net.generate(ids, 12)
    decode = net._decoder_of_last_call
    weight[:] = np.float32("inf")  # fills the caches with NaN
    net.generate(ids, 12)
    weight[:] = plain
    assert [net.generate(ids[:, :t], 16 - t).tolist() for t in (4, 2)] == [w.tolist() for w in want]
    assert net._decoder_of_last_call is decode and len(decode.run.stats()) == len(decode.prompt.stats()) == 1
    assert net.generate(ids[:1], 12).tolist() == want[0][:1].tolist() and net._decoder_of_last_call is not decode, "other batches"
    copied = pickle.loads(pickle.dumps(copy.deepcopy(net)))
    assert not hasattr(copied, "_decoder_of_last_call") and copied.generate(ids, 12).tolist() == want[0].tolist()
    with ThreadPoolExecutor(2) as pool:
        assert all(t.tolist() == want[0].tolist() for t in pool.map(lambda _: net.generate(ids, 12), range(4)))


def test_drawn_text():
    net = network("gpt").eval()
    draw = lambda **o: net.generate([[1, 2]], 9, temperature=1.0, **o).tolist()
    assert draw(seed=1) == draw(seed=1) != draw(seed=2)
    assert draw(top_k=1) == draw(top_p=1e-9) == net.generate([[1, 2]], 9).tolist()
    assert draw(top_p=1.0) == draw()
    with pytest.raises(ValueError, match="top_p=0"):
        draw(top_p=0)
    with pytest.raises(ValueError, match="context of 16"):
        net.generate([[1, 2]], 15)


def test_draws_among_the_likeliest():
    p = np.array([0.1, 0.5, 0.15, 0.25])
    logits = Tensor(np.log(np.tile(p, (200, 1))).astype(np.float32))
    uniform = np.random.default_rng(0).random((200, 1), np.float32)
    said = np.zeros((200, 4), bool)
    said[:, 1] = True

    def drawn(top_k, top_p, min_p=None, penalty=1.0):
        how = Sampling(1.0, top_k, top_p, min_p, penalty)
        return chosen(logits, how.key(), Tensor(how.numbers()), Tensor(uniform), Tensor(said)).numpy()

    among = lambda *a: set(drawn(*a).tolist())
    assert among(None, 0.45) == {1} and among(None, 0.6) == {1, 3} and among(None, 0.8) == {1, 2, 3}
    assert among(2, 0.9) == {1, 3} and among(2, 0.6) == {1} and among(None, None) == {0, 1, 2, 3}
    assert among(None, None, 0.45) == {1, 3} and among(None, None, 0.25) == {1, 2, 3} and among(None, None, 0.0) == {0, 1, 2, 3}
    assert among(1, None, None, 3.0) == {3}, "log 0.5 times 3 is less than log 0.25"
    broken = chosen(logits * float("nan"), Sampling(1.0).key(), Tensor(Sampling(1.0).numbers()), Tensor(uniform), Tensor(said)).numpy()
    assert ((0 <= broken) & (broken < 4)).all(), "some token, and no access outside of the table"
    every = drawn(None, None)
    upto = np.cumsum(np.sort(p)[::-1])  # the definition: the likeliest first, and the first whose sum passes the number
    assert (every == np.argsort(-p)[(upto[None] <= uniform).sum(1)]).all()
