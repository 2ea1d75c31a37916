"""Checkpoints of others by name: networks of torchvision, timm and transformers give the same results with the same weights.

`saved_weights.npz` has what they gave, and digests of their names and shapes, so that a machine without them compares too.
`python tests/interop/test_weights.py` writes it anew.
"""

import hashlib
import json
import re
import shlex
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

import saved_outputs  # noqa: E402  (after the path is set)
from foreign_networks import CASES  # noqa: E402  (after the path is set)

import tengen  # noqa: E402  (after the path is set)
import tengen.module as M  # noqa: E402  (after the path is set)
from tengen import Tensor  # noqa: E402  (after the path is set)
from tengen.base.errors import FileFormatError, UsageWarning  # noqa: E402  (after the path is set)
from tengen.deploy.tensorfile import write_tensors  # noqa: E402  (after the path is set)
from tengen.interop import weights  # noqa: E402  (after the path is set)
from tengen.interop.weights.rules import Rule  # noqa: E402  (after the path is set)
from tengen.interop.weights.store import INDEX, read_state  # noqa: E402  (after the path is set)

SAVED = Path(__file__).with_name("saved_weights.npz")
RTOL = 3e-5  # float32 on both sides: some 500 roundings of 2^-24, as MobileNets with weights by chance need


def value(name, shape):
    """Weights that depend on their name, at a size that keeps the network's values as they are."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith("running_var"):
        return (rng.random(shape) + 0.5).astype(np.float32)
    if len(shape) < 2:
        scale = any(name.endswith(s) for s in ("weight", "gamma", "scale", "scale_parameter"))
        return (0.1 * rng.normal(size=shape) + scale).astype(np.float32)
    return (1.4 * rng.normal(size=shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32)


def network(case):
    name, layout = case.split()
    options = {"num_classes": 7, **CASES[case][0]}
    net = tengen.models.create(name, **{**weights.options(type_of(name), layout), **options})
    return net, layout


def type_of(name):
    return {"mobilenet_v3_large": "MobileNetV3"}.get(name, "")


def digest(shapes):
    """Of names and shapes; counters of batches, which nobody has to have, are left out."""
    rows = sorted(f"{k} {tuple(s)}" for k, s in shapes.items() if "num_batches_tracked" not in k)
    return [len(rows), int(hashlib.sha256("\n".join(rows).encode()).hexdigest()[:12], 16)]


def sample(case):
    return np.random.default_rng(1).normal(size=CASES[case][1]).astype(np.float32)


def theirs(case):
    """Their network, on the meta device where it is not run."""
    import torch

    if CASES[case][1] is None:
        with torch.device("meta"):
            return CASES[case][2]()
    net = CASES[case][2]().eval()
    with torch.no_grad():
        for name, t in net.state_dict().items():
            if t.dtype.is_floating_point:
                t.copy_(torch.from_numpy(value(name, tuple(t.shape))))
    return net


def written(net):
    """Their tensors under the names that stand in their files."""
    if hasattr(net, "save_pretrained") and hasattr(net, "config") and hasattr(net.config, "model_type"):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            net.save_pretrained(folder)
            return {k: np.array(a) for k, a in read_state(folder).items()}
    return {k: t if t.is_meta else t.numpy() for k, t in net.state_dict().items()}


def outcome(case):
    import torch

    net = theirs(case)
    state = {k: a for k, a in written(net).items()}
    found = {"names": np.array(digest({k: a.shape for k, a in state.items()}), np.float64)}
    if CASES[case][1] is not None:
        with torch.no_grad():
            y = net(torch.from_numpy(sample(case)))
        found["y"] = getattr(y, "logits", y).numpy()
    return found


@pytest.fixture(autouse=True)
def no_draws(monkeypatch):
    for draw in ("normal_", "uniform_"):  # nobody looks at the first weights
        monkeypatch.setattr(M.init, draw, lambda tensor, *args: None)


@but(every=6)
@pytest.mark.parametrize("case", CASES)
def test_results_are_theirs(case):
    net, layout = network(case)
    mine = weights.state(net, layout)
    found = {"names": np.array(digest({k: a.shape for k, a in mine.items()}), np.float64)}
    if CASES[case][1] is not None:
        given = {k: value(k, a.shape) for k, a in mine.items()}
        if "vit_tiny transformers" in case or "convnext_tiny transformers" in case:
            given = renamed_as_in_memory(given)
        weights.load(net, given, layout)
        again = weights.state(net, layout)
        assert all(again[k].tobytes() == a.tobytes() for k, a in zip(mine, given.values()))
        found["y"] = net.eval()(Tensor(sample(case))).numpy()
    compare(case, found)


def compare(case, found):
    want = saved_outputs.load(SAVED, f"{case}: ")
    assert found["names"].tolist() == want["names"].tolist()
    saved_outputs.agree(found, want, RTOL)


def renamed_as_in_memory(given):
    """Values by the names that transformers has in memory, from which theirs were made, under those of its files."""
    new = {
        "vit.encoder.layer": "vit.layers", "attention.attention.query": "attention.q_proj", "attention.attention.key": "attention.k_proj",
        "attention.attention.value": "attention.v_proj", "attention.output.dense": "attention.o_proj", "intermediate.dense": "mlp.fc1",
        "output.dense": "mlp.fc2",
    }  # fmt: skip

    def memory(name):
        for a, b in new.items():
            name = name.replace(a, b)
        return name

    return {k: value(memory(k), a.shape) for k, a in given.items()}


@but(every=3)
@pytest.mark.parametrize("case", [c for c in CASES if CASES[c][1] is not None])
def test_their_networks_themselves(case):
    pytest.importorskip("torch", reason="PyTorch is not installed: saved outputs were compared, it is not run")
    for package in ("torchvision", "timm", "transformers"):
        pytest.importorskip(package, reason=f"{package} is not installed: saved outputs were compared, it is not run")
    compare(case, outcome(case))


def test_our_file_is_loaded_by_them(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: it does not load our file")
    pytest.importorskip("torchvision", reason="torchvision is not installed: it does not load our file")
    safe = pytest.importorskip("safetensors.torch", reason="safetensors is not installed: it does not load our file")
    case = "mobilenet_v2 torchvision"
    net, layout = network(case)
    weights.save(net, tmp_path / "w.safetensors", layout)
    theirs_ = CASES[case][2]()
    theirs_.load_state_dict(safe.load_file(tmp_path / "w.safetensors"))
    found = {k: t.numpy() for k, t in theirs_.state_dict().items() if t.dtype == torch.float32}
    assert all(found[k].tobytes() == a.tobytes() for k, a in weights.state(net, layout).items())
    again = tengen.models.mobilenet_v2(7, stages=[(1, 16, 1, 1), (6, 24, 2, 2)], weights=tmp_path / "w.safetensors", layout=layout)
    assert all((a == b).all() for a, b in zip(again.state_dict().values(), net.state_dict().values()))


# ---- the language, and what does not fit -------------------------------------------------------------------------------------


def small(**options):
    return tengen.models.mobilenet_v2(7, stages=[(1, 16, 1, 1)], width=0.25, **options)


def test_everything_that_does_not_fit_is_told_at_once():
    net = small()
    state = weights.state(net, "torchvision")
    before = {k: a.copy() for k, a in net.state_dict().items()}
    state["classifier.1.weight"] = state["classifier.1.weight"].T.copy()
    state["features.0.0.weigth"] = state.pop("features.0.0.weight")
    state["features.1.conv.0.1.bias"] = np.zeros(state["features.1.conv.0.1.bias"].shape, np.int32)
    with pytest.raises(ValueError) as e:
        weights.load(net, state, "torchvision")
    told = str(e.value)
    assert "missing: features.0.0.weight (for features.0.conv.weight)" in told and "unexpected: features.0.0.weigth" in told
    assert "classifier.1.weight: (1280, 7) does not fit (7, 1280)" in told and "conv.0.1.bias: int32 are no weights" in told
    assert all((a == before[k]).all() for k, a in net.state_dict().items()), "nothing was loaded"
    with pytest.raises(ValueError, match=r"\.\.\. and \d+ more"):
        weights.load(net, {}, "torchvision")
    with pytest.raises(ValueError, match="no table for the layout 'keras'.*timm, torch, torchvision"):
        weights.load(net, state, "keras")
    with pytest.raises(ValueError, match="MobileNetV3 of the layout timm has eps=1e-05.*make it with"):
        weights.state(tengen.models.mobilenet_v3_large(), "timm")
    assert tengen.models.create("mobilenet_v3_large", layout="timm").eps == 1e-5


def test_floats_of_other_widths():
    net = tengen.models.mlp((3, 2))
    half = {k: a.astype(np.float16) for k, a in weights.state(net).items()}
    weights.load(net, half)
    assert all(a.dtype == np.float32 and (a == half[k].astype(np.float32)).all() for k, a in net.state_dict().items())


def test_files_of_our_own(tmp_path):
    net = tengen.models.lenet()
    tengen.save(net.state_dict(), tmp_path / "net.tgn")
    again = tengen.models.lenet(weights=tmp_path / "net.tgn")
    assert all((a == b).all() for a, b in zip(net.state_dict().values(), again.state_dict().values()))


def test_arrays_of_the_caller_may_change():
    net = tengen.models.mlp((3, 2))
    given = {k: a.copy() for k, a in weights.state(net, "torch").items()}
    weights.load(net, given, "torch")
    before = {k: a.copy() for k, a in net.state_dict().items()}
    for a in given.values():
        a += 1
    assert all((a == before[k]).all() for k, a in net.state_dict().items())


def test_memory_for_large_weights(tmp_path):
    """Loading makes what the network holds and one tensor beside it, and not all a second time."""
    net = M.Sequential(*(M.Linear(512, 512, bias=False) for _ in range(24)))
    state = {k: a.astype(np.float16) for k, a in weights.state(net, "torch").items()}
    write_tensors(tmp_path / "w.safetensors", state, {})
    tracemalloc.start()
    weights.load(net, tmp_path / "w.safetensors", "torch")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    one = 4 * 512 * 512
    assert peak < 24 * one + 3 * one, "as float32, and some of it while it is made"


def test_lines_of_ones_own_and_the_layouts_of_any_network():
    net = M.Sequential(M.Conv2d(3, 4, 1), M.BatchNorm2d(4), M.Linear(5, 6))
    state = weights.state(net, "paddle")
    assert state["1._mean"].shape == (4,) and state["0.bias"].shape == (4,) and state["2.weight"].shape == (5, 6)
    assert weights.state(net, "megengine")["0.bias"].shape == (1, 4, 1, 1)
    lines = "0 -> first.(a|b)\n2 -> last : T"
    mine = weights.state(net, lines)
    assert mine["first.a.weight"].shape == (2, 3, 1, 1) and mine["last.weight"].shape == (5, 6)
    weights.load(net, {k: a + 1 for k, a in mine.items()}, lines)
    assert all((a == mine[k] + 1).all() for k, a in weights.state(net, lines).items())
    lstm = tengen.models.lstm(9, embedding=3, hidden=4)
    assert "lstm.weight_ih_l0" in weights.state(lstm, "torch")
    for wrong in ("a ->", "a -> b : X"):
        with pytest.raises(ValueError, match="is no line of a table"):
            Rule(wrong)
    for wrong, what in (("a.{i} -> b.{j}", "j"), ("a.{i:first} -> b", "first")):
        with pytest.raises(ValueError, match=f"nothing says what '{what}' is"):
            Rule(wrong)
    with pytest.raises(ValueError, match="4 rows are not 3 equal parts"):
        weights.state(net, "0.weight -> (a|b|c)")
    squeezed = {k: a.squeeze() for k, a in weights.state(net, "0.weight -> k : HWIO").items()}
    weights.load(net, squeezed, "0.weight -> k : HWIO")


def test_grouped_filters_are_pytorchs():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: grouped filters are not compared with its")
    theirs_ = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3, groups=2), torch.nn.ConvTranspose2d(6, 4, 3, groups=2))
    net = M.Sequential(M.Conv2d(4, 6, 3, groups=2), M.ConvTranspose2d(6, 4, 3, groups=2))
    weights.load(net, {k: t.numpy() for k, t in theirs_.state_dict().items()}, "torch")
    x = np.random.default_rng(0).normal(size=(1, 4, 5, 5)).astype(np.float32)
    np.testing.assert_allclose(net(Tensor(x)).numpy(), theirs_(torch.from_numpy(x)).detach().numpy(), rtol=0, atol=1e-5)


def test_older_spellings_and_heads_that_are_not_ours():
    net = tengen.models.bert_base(vocabulary=9, width=4, heads=2, depth=1, context=5)
    state = weights.state(net, "transformers")
    old = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): a + 1 for k, a in state.items()}
    old["cls.predictions.bias"] = np.zeros(9, np.float32)
    with pytest.warns(UsageWarning, match="BERT has no such head: cls.predictions.bias"):
        weights.load(net, old, "transformers")
    bare = {k.removeprefix("bert."): a + 2 for k, a in state.items()}
    weights.load(net, bare, "transformers")
    assert all((a == state[k] + 2).all() for k, a in weights.state(net, "transformers").items())
    with pytest.raises(FileFormatError, match="twice"):
        weights.load(net, {**state, "bert.embeddings.LayerNorm.gamma": state["bert.embeddings.LayerNorm.weight"]}, "transformers")


# ---- files --------------------------------------------------------------------------------------------------------------------


def sharded(folder, state, places):
    names = list(state)
    shards = {file: {n: state[n] for i, n in enumerate(names) if i % len(places) == k} for k, file in enumerate(places)}
    for file, arrays in shards.items():
        write_tensors(folder / file, arrays, {"format": "pt"}, padded=False)
    table = {n: file for file, arrays in shards.items() for n in arrays}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": table}))
    return table


def test_shards_and_what_an_index_may_not_say(tmp_path):
    net = tengen.models.mlp((3, 4, 2))
    state = weights.state(net, "torch")
    table = sharded(tmp_path, state, ["a.safetensors", "b.safetensors"])
    for source in (tmp_path, str(tmp_path / INDEX)):
        found = read_state(source)
        assert found.keys() == state.keys() and all((found[k] == a).all() for k, a in state.items())
    outside = tmp_path.parent / "outside.safetensors"
    write_tensors(outside, state, {})
    (tmp_path / "link.safetensors").symlink_to(outside)
    first, second = list(table)[:2]
    for name, message in [
        ("../outside.safetensors", "no name of a file"), (str(outside), "no name of a file"), ("link.safetensors", "link out of"),
        ("c.safetensors", "is not there"), (3, "weight_map"), ("", "no name of a file"),
        ("b.safetensors", "does not place there|where the index"),
    ]:  # fmt: skip
        (tmp_path / INDEX).write_text(json.dumps({"weight_map": {**table, first: name}}))
        with pytest.raises(FileFormatError, match=message):
            read_state(tmp_path)
    for text in ('{"weight_map": {"a": "x", "a": "y"}}', "[]", "{", '{"weight_map": 3}', "\xff", '{"weight_map":' * 50):
        (tmp_path / INDEX).write_text(text, "latin1")
        with pytest.raises(FileFormatError):
            read_state(tmp_path)


def test_the_caches_links_are_followed(tmp_path):
    """huggingface_hub keeps snapshots/<revision>/model.safetensors as a link to ../../blobs/<hash>."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0123"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    write_tensors(blobs / "abc", {"x": np.ones(3, np.float32)}, {})
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    assert (read_state(snapshot)["x"] == 1).all()


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.model."])
def test_names_behind_that_of_a_wrapper_are_pointed_out(prefix):
    net = tengen.models.lenet()
    given = weights.state(net, "torch")
    behind = {prefix + n: a for n, a in given.items()}
    with pytest.raises(ValueError, match=re.escape(f"help: all names begin with {prefix!r}; give {{n.removeprefix({prefix!r}): a")):
        weights.load(net, behind, "torch")
    weights.load(net, {n.removeprefix(prefix): a for n, a in behind.items()}, "torch")
    with pytest.raises(ValueError) as told:  # other names are not of a wrapper
        weights.load(net, {n.replace("weight", "w"): a for n, a in given.items()}, "torch")
    assert "help" not in str(told.value)


def test_files_of_numpy_are_refused_with_what_to_do(tmp_path):
    np.savez(tmp_path / "net.npz", **weights.state(net := tengen.models.lenet(), "torch"))
    with pytest.raises(FileFormatError, match=r"NumPy's files are not read; help: .* dict\(numpy.load\('net.npz'\)\)"):
        weights.load(net, tmp_path / "net.npz", "torch")
    weights.load(net, dict(np.load(tmp_path / "net.npz")), "torch")


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".pkl", ".pdparams", ".h5", ".keras", ".msgpack", ".ckpt", ".params"])
def test_pickles_are_refused_with_the_line_that_converts_them(tmp_path, suffix):
    path = tmp_path / f"net{suffix}"
    path.write_bytes(b"\x80\x04")
    with pytest.raises(FileFormatError, match="are not read; help: where you trust it, convert it by  python .*safetensors"):
        read_state(path)


def test_the_line_converts_pytorchs(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: its files are not converted")
    path = tmp_path / "a net's.pt"
    net = torch.nn.Linear(3, 2)
    torch.save(net.state_dict(), path)
    with pytest.raises(FileFormatError) as e:
        read_state(path)
    words = shlex.split(str(e.value).split("convert it by")[1])
    subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True)
    mine = weights.load(M.Linear(3, 2), path.with_suffix(".safetensors"), "torch")
    assert mine.weight.numpy().tobytes() == net.weight.detach().numpy().tobytes()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_bytes_are_a_state_or_one_error(tmp_path_factory, data):
    """A small file of tensors and an index, with bytes changed, cut out or put in."""
    folder = tmp_path_factory.mktemp("fuzz")
    sharded(folder, {"a.weight": np.ones((2, 3), np.float32), "b": np.zeros(4, np.float32)}, ["a.safetensors", "b.safetensors"])
    path = folder / data.draw(st.sampled_from(["a.safetensors", INDEX]))
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    path.write_bytes(raw)
    try:
        found = read_state(folder)
    except FileFormatError:
        return
    assert all(isinstance(a, np.ndarray) for a in found.values())


def test_a_state_dict_of_pytorch_itself():
    """Parameters that ask for gradients, and bfloat16."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: its state dicts are not tried")
    net = tengen.models.lenet()
    mine = {k: (np.arange(a.size, dtype=np.float32) % 97).reshape(a.shape) for k, a in weights.state(net, "torch").items()}
    for theirs in (torch.from_numpy, lambda a: torch.nn.Parameter(torch.from_numpy(a)), lambda a: torch.from_numpy(a).bfloat16()):
        made = weights.load(tengen.models.lenet(), {k: theirs(a) for k, a in mine.items()}, "torch")
        assert all((a == mine[k]).all() for k, a in weights.state(made, "torch").items())


if __name__ == "__main__":
    import timm
    import torch
    import torchvision
    import transformers

    found = {f"{case}: {k}": a for case in CASES for k, a in outcome(case).items()}
    made = ", ".join(f"{m.__name__} {m.__version__}" for m in (torch, torchvision, timm, transformers))
    saved_outputs.save(SAVED, found, made)
    print(f"{len(found)} arrays, {SAVED.stat().st_size} bytes")
