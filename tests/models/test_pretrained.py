"""Folders of Hugging Face: our logits and greedy tokens are transformers', and transformers loads what we write.

`saved_pretrained.npz` has what transformers gave for networks of a few thousand weights, which follow from their names, so that a machine
without it compares too. `python tests/models/test_pretrained.py` writes it anew.
"""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from exhaustive import but, exhaustive
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import saved_outputs  # noqa: E402  (after the path is set)

from tengen import Tensor, models, random  # noqa: E402  (after the path is set)
from tengen.base.dtype import bfloat16  # noqa: E402  (after the path is set)
from tengen.base.errors import ArgumentError, DownloadError, FileFormatError  # noqa: E402  (after the path is set)
from tengen.cli.main import main  # noqa: E402  (after the path is set)
from tengen.deploy.tensorfile import write_tensors  # noqa: E402  (after the path is set)
from tengen.interop import weights  # noqa: E402  (after the path is set)
from tengen.interop.weights.store import read_state  # noqa: E402  (after the path is set)
from tengen.models.configs import Fields, kind_for  # noqa: E402  (after the path is set)
from tengen.module import init  # noqa: E402  (after the path is set)

SAVED = Path(__file__).with_name("saved_pretrained.npz")
RTOL = 1e-5
NEW = 24  # tokens of a text
LLAMA = {
    "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
    "vocab_size": 50, "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None, "rms_norm_eps": 1e-5,
}  # fmt: skip
TURNS = {
    "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
BERT = {
    "model_type": "bert", "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": 50,
    "max_position_embeddings": 64,
}  # fmt: skip
LABELS = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
HEADED = {
    "MaskedLM": {"hidden_act": "relu"}, "SequenceClassification": LABELS, "TokenClassification": LABELS, "QuestionAnswering": {},
}  # fmt: skip
CONFIGS = {
    "gpt2": {
        "model_type": "gpt2", "n_layer": 2, "n_embd": 24, "n_head": 3, "vocab_size": 50, "n_positions": 64, "bos_token_id": None,
        "eos_token_id": None,
    },
    "llama": {"model_type": "llama", **LLAMA, "rope_theta": 500.0},
    "llama3": {"model_type": "llama", **LLAMA, "rope_parameters": TURNS, "attention_bias": True, "mlp_bias": True},
    "linear": {"model_type": "llama", **LLAMA, "head_dim": 8, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "yarn": {
        "model_type": "qwen2", **LLAMA, "hidden_size": 32,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "beta_fast": 8.0, "original_max_position_embeddings": 16},
    },
    "mistral": {"model_type": "mistral", **LLAMA, "sliding_window": 6},
    "qwen2": {
        "model_type": "qwen2", **LLAMA, "tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1,
    },
    "qwen3": {"model_type": "qwen3", **LLAMA, "head_dim": 8, "tie_word_embeddings": True, "attention_bias": True},
    "gemma": {"model_type": "gemma", **LLAMA, "head_dim": 8, "hidden_act": "gelu_pytorch_tanh"},
    "gemma2": {
        "model_type": "gemma2", **LLAMA, "head_dim": 8, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 6,
        "sliding_window": 5, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 9.0, "tie_word_embeddings": False,
    },
    "gemma3": {
        "model_type": "gemma3_text", **LLAMA, "num_hidden_layers": 3, "head_dim": 8, "query_pre_attn_scalar": 6, "sliding_window": 5,
        "sliding_window_pattern": 2, "rope_local_base_freq": 50.0, "rope_theta": 700.0,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "tie_word_embeddings": False,
    },
    "olmo2": {"model_type": "olmo2", **LLAMA, "attention_bias": True, "rope_theta": 300.0},
    "olmo3": {
        "model_type": "olmo3", **LLAMA, "hidden_size": 32, "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "beta_fast": 8.0, "original_max_position_embeddings": 16},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "smollm3": {
        "model_type": "smollm3", **LLAMA, "no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 5, "pad_token_id": None,
    },
    "phi": {"model_type": "phi", **LLAMA, "hidden_size": 32, "partial_rotary_factor": 0.5, "qk_layernorm": True},
    "bert": BERT,
    **{f"bert {task}": {"architectures": [f"BertFor{task}"], **BERT, **more} for task, more in HEADED.items()},
    "vit": {
        "model_type": "vit", "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "image_size": 32,
        "patch_size": 8, "id2label": {"0": "a", "1": "b", "2": "c"},
    },
    "resnet": {
        "model_type": "resnet", "depths": [1, 1], "hidden_sizes": [8, 16], "embedding_size": 8, "layer_type": "basic",
        "id2label": {"0": "a", "1": "b", "2": "c"},
    },
}  # fmt: skip
TEXTS = [name for name in CONFIGS if not name.startswith("bert") and name not in ("vit", "resnet")]


def value(name, shape):
    """Weights that depend on their name alone, large enough that the likeliest token is far from the next."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith("running_var"):
        return (rng.random(shape) + 0.5).astype(np.float32)
    if len(shape) < 2:
        return (0.1 * rng.normal(size=shape) + name.endswith("weight")).astype(np.float32)
    return (0.4 * rng.normal(size=shape)).astype(np.float32)


def folder_of(name, folder):
    """A folder as transformers writes it, made without it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    kind = kind_for(CONFIGS[name], "")
    net = kind.build(**kind.read(Fields(CONFIGS[name], "")))
    state = {k: value(k, a.shape) for k, a in weights.state(net, "transformers").items()}
    write_tensors(folder / "model.safetensors", state, {"format": "pt"}, padded=False)
    return folder


def sample(name):
    rng = np.random.default_rng(2)
    if name in ("vit", "resnet"):
        return rng.normal(size=(2, 3, 32, 32)).astype(np.float32)
    return rng.integers(1, 50, (2, 9)).astype(np.int32)


def mine(folder, name):
    net = models.from_pretrained(folder)
    y = net(Tensor(sample(name)))
    found = {"y": (y[0] if isinstance(y, tuple) else y).numpy()}
    if "Answering" in name:
        found["ends"] = y[1].numpy()
    if name in TEXTS:
        found["text"] = net.generate(sample(name), NEW)
    return found


def theirs(folder, name):
    import torch
    import transformers

    kind = {"bert": "BertModel", "vit": "AutoModelForImageClassification", "resnet": "AutoModelForImageClassification"}
    kind |= {f"bert {task}": f"BertFor{task}" for task in HEADED}
    # Before 5.24 transformers took PyTorch's attention for Gemma 2 by itself, which leaves out the bound on its scores.
    more = {"attn_implementation": "eager"} if name == "gemma2" else {}
    net = getattr(transformers, kind.get(name, "AutoModelForCausalLM")).from_pretrained(folder, **more).eval()
    x = torch.from_numpy(sample(name))
    with torch.no_grad():
        y = net(x.long() if x.dtype == torch.int32 else x)
        found = {"y": (y.last_hidden_state if name == "bert" else y[0]).numpy()}
        if "Answering" in name:
            found["ends"] = y.end_logits.numpy()
        if name in TEXTS:
            found["text"] = net.generate(x.long(), max_new_tokens=NEW, do_sample=False, pad_token_id=0).numpy()
    return found


def compare(got, want):
    if "text" in got:
        text = want.pop("text")
        same = np.isclose(saved_outputs.abridged(got.pop("text")), text, rtol=1e-12, atol=1e-12)  # its last number is a product of BLAS's
        assert same.all(), "the same tokens"
    saved_outputs.agree(got, want, RTOL)


@but(every=4)
@pytest.mark.parametrize("name", CONFIGS)
def test_results_are_those_that_were_saved(name, tmp_path):
    compare(mine(folder_of(name, tmp_path / name), name), saved_outputs.load(SAVED, f"{name}: "))


@but(every=4)
@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_loads_our_folder(name, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: its saved outputs were compared, it is not run")
    pytest.importorskip("transformers", reason="transformers is not installed: its saved outputs were compared, it is not run")
    net = models.from_pretrained(folder_of(name, tmp_path / name))
    models.save_pretrained(net, tmp_path / "ours", shard=20_000)
    found = theirs(tmp_path / "ours", name)
    compare(found, saved_outputs.load(SAVED, f"{name}: "))
    a, b = read_state(tmp_path / "ours"), read_state(tmp_path / name)
    assert a.keys() == b.keys() and all(a[k].tobytes() == b[k].tobytes() for k in a)
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 1, "in shards"
    again = models.from_pretrained(tmp_path / "ours")
    assert all((x == y).all() for x, y in zip(net.state_dict().values(), again.state_dict().values()))


@but(these=["gemma2"])
@pytest.mark.parametrize("name", ["gemma2", "gemma3", "olmo2", "smollm3", "phi"])
def test_a_prompt_among_others_gives_what_it_gives_alone(name, tmp_path):
    """Prompts of different lengths are continued by one traced step, a single one eagerly: the same tokens, and logits of the same bits."""
    net = models.from_pretrained(folder_of(name, tmp_path / name))
    long, short = sample(name)[0], sample(name)[1][:4]
    texts = net.generate([long, short], 6)
    for row, prompt in zip(texts, (long, short)):
        assert (row == net.generate(prompt[None], 6)[0]).all()
    (_, caches), whole = net.step(Tensor(long[None, :-1])), net(Tensor(long[None]))
    assert net.step(Tensor(long[None, -1:]), caches)[0].numpy()[0, 0].tobytes() == whole.numpy()[0, -1].tobytes()


def test_layers_that_lie_joined(tmp_path):
    """Phi-3's files have queries, keys and values in one array, and both parts of the perceptrons; the network is Mistral's."""
    folder = folder_of("mistral", tmp_path / "n")
    state = read_state(folder)
    for i in range(2):
        at = f"model.layers.{i}."
        for parts, whole in ((("q_proj", "k_proj", "v_proj"), "self_attn.qkv_proj"), (("gate_proj", "up_proj"), "mlp.gate_up_proj")):
            names = [f"{at}{whole.partition('.')[0]}.{part}.weight" for part in parts]
            state[f"{at}{whole}.weight"] = np.concatenate([state.pop(name) for name in names])
    write_tensors(folder / "model.safetensors", state, {"format": "pt"}, padded=False)
    (folder / "config.json").write_text(json.dumps({**CONFIGS["mistral"], "model_type": "phi3"}))
    compare(mine(folder, "mistral"), saved_outputs.load(SAVED, "mistral: "))
    state["model.layers.1.mlp.gate_up_proj.weight"] = state["model.layers.1.mlp.gate_up_proj.weight"][1:]
    write_tensors(folder / "model.safetensors", state, {"format": "pt"}, padded=False)
    with pytest.raises(FileFormatError, match=r"gate_up_proj.weight: \(79, 24\) does not fit \(80, 24\)"):
        models.from_pretrained(folder)


def test_nothing_is_drawn_for_weights_that_are_loaded(tmp_path):
    folder, before = folder_of("gpt2", tmp_path / "n"), random.get_state()
    models.from_pretrained(folder)
    models.gpt(2, 24, 3, 64, 50, tied=True, weights=folder, layout="transformers")
    assert str(random.get_state()) == str(before)
    models.gpt(1, 8, 2, 8, 9)
    assert str(random.get_state()) != str(before)


def test_end_tokens_and_half_precision(tmp_path):
    folder = folder_of("gpt2", tmp_path / "n")
    state = {k: a.astype(np.float16) for k, a in read_state(folder).items()}
    write_tensors(folder / "model.safetensors", state, {}, padded=False)
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 99]}')
    (folder / "config.json").write_text(json.dumps({**CONFIGS["gpt2"], "activation_function": "relu"}))
    net = models.from_pretrained(folder)
    assert net.eos == (7,) and net.blocks[1].activation == "relu" and net.tokens.weight.dtype == "float32"
    models.save_pretrained(net, tmp_path / "m")
    written = json.loads((tmp_path / "m" / "config.json").read_text())
    assert written["eos_token_id"] == 7 and written["activation_function"] == "relu"


LOADING = """
import sys
from tengen import models
peak = lambda: int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) << 10
before = peak()
net = models.from_pretrained(sys.argv[1], dtype=sys.argv[2])
print(peak() - before)
"""


@exhaustive
def test_loading_takes_the_weights_size_and_64_mb(tmp_path):
    """Of GPT-2's weights most lie transposed in the file, and are copied. Files of float32 and bfloat16, with a checksum of all."""
    with init.undrawn():
        models.save_pretrained(models.gpt(2, 1024, 8, 64, 6000, tied=True, activation="gelu_tanh"), tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert size > 110 << 20
    half = tmp_path / "half"
    half.mkdir()
    (half / "config.json").write_bytes((tmp_path / "config.json").read_bytes())
    state = {k: a.astype(bfloat16.numpy) for k, a in read_state(tmp_path).items()}
    write_tensors(half / "model.safetensors", state, {}, padded=False)
    for folder, dtype, most in (
        (tmp_path, "float32", size), (tmp_path, "float64", 2 * size), (tmp_path, "bfloat16", size // 2), (half, "float32", size),
        (half, "auto", size // 2),
    ):  # fmt: skip
        done = subprocess.run([sys.executable, "-c", LOADING, str(folder), dtype], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) < most + (64 << 20), (folder.name, dtype, done.stdout)


def test_the_dtype_that_a_network_is_loaded_in(tmp_path):
    folder = folder_of("llama", tmp_path / "n")
    full = models.from_pretrained(folder)
    for name in ("bfloat16", "float16", "float64"):
        net = models.from_pretrained(folder, dtype=name)
        assert {t.dtype.name for t in net.tensors()} == {name}
        want = [t.numpy().astype(t2.dtype.numpy) for t, t2 in zip(full.tensors(), net.tensors())]
        assert all(a.tobytes() == t.numpy().tobytes() for a, t in zip(want, net.tensors()))
        y, z = (n(Tensor(sample("llama"))) for n in (full, net))
        assert z.dtype == name
        step = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float64": 2.0**-24}[name]
        assert np.abs(z.numpy().astype(np.float64) - y.numpy()).max() < 40 * step * np.abs(y.numpy()).max()
        models.save_pretrained(net, tmp_path / name)
        assert json.loads((tmp_path / name / "config.json").read_text())["dtype"] == name
        again = models.from_pretrained(tmp_path / name, dtype="auto")
        assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(net.tensors(), again.tensors()))
        assert {t.dtype.name for t in models.from_pretrained(tmp_path / name).tensors()} == {"float32"}
    with pytest.raises(ArgumentError, match="dtype is int32"):
        models.from_pretrained(folder, dtype="int32")
    state = {k: a.astype(np.float64) for k, a in read_state(folder).items()}
    state["model.norm.weight"][3] = 1e300
    write_tensors(folder / "model.safetensors", state, {}, padded=False)
    with pytest.raises(FileFormatError, match=r"model.norm.weight: 1e\+300 is larger than what float32 holds"):
        models.from_pretrained(folder)
    assert models.from_pretrained(folder, dtype="auto").norm.weight.numpy()[3] == 1e300


def test_files_as_repositories_have_them(tmp_path):
    """GPT-2's has no prefix, and masks that are no weights; a head that is the embedding may stand there a second time."""
    folder = folder_of("gpt2", tmp_path / "n")
    state = {k.removeprefix("transformer."): a for k, a in read_state(folder).items()}
    state["h.0.attn.bias"] = np.ones((1, 1, 64, 64), np.uint8)
    write_tensors(folder / "model.safetensors", {**state, "lm_head.weight": state["wte.weight"]}, {}, padded=False)
    compare(mine(folder, "gpt2"), saved_outputs.load(SAVED, "gpt2: "))
    write_tensors(folder / "model.safetensors", {**state, "lm_head.weight": state["wte.weight"] + 1}, {}, padded=False)
    with pytest.raises(FileFormatError, match="unexpected: lm_head.weight"):
        models.from_pretrained(folder)


WRONG = {
    "model_type is 'rwkv'": {"model_type": "rwkv"},
    "n_layer is 'two'": {"n_layer": "two"},
    "n_embd is 'True'": {"n_embd": True},
    "n_head is '0'": {"n_head": 0},
    "activation_function is 'mish', which is not one of": {"activation_function": "mish"},
    "scale_attn_weights is 'False'": {"scale_attn_weights": False},
    "at least .* numbers, and the folder's weights are": {"n_layer": 1 << 30, "n_embd": 1 << 30},
    "24 features cannot be shared out to 5 heads": {"n_head": 5},
    r"missing: transformer.h.2.*(?s:.*)|at least": {"n_layer": 3},
    "transformer.wpe.weight: .* does not fit": {"n_positions": 63},
    "eos_token_id is 'x'": {"eos_token_id": "x"},
    "quantised by 'gptq'": {"quantization_config": {"quant_method": "gptq", "bits": 4}},
}


def test_configs_that_do_not_fit(tmp_path):
    folder = folder_of("gpt2", tmp_path / "n")
    for message, change in WRONG.items():
        (folder / "config.json").write_text(json.dumps({**CONFIGS["gpt2"], **change}))
        with pytest.raises(FileFormatError, match=message):
            models.from_pretrained(folder)
    for text in ("[]", "{", '{"a": 1, "a": 2}', ""):
        (folder / "config.json").write_text(text)
        with pytest.raises(FileFormatError):
            models.from_pretrained(folder)
    llama = {
        "rope_type is 'dynamic'": {"rope_parameters": {"rope_type": "dynamic"}},
        "numbers of the positions": {"rope_scaling": {"type": "linear"}},
        "layer_types": {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 3, "layer_types": ["x"]},
        "do not fit": {"num_key_value_heads": 3}, "rope_parameters is '3'": {"rope_parameters": 3},
        "hidden_act is 'gelu'": {"hidden_act": "gelu"},
        "do not say the same": {"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        "rope_scaling: rope_type is 'longrope'": {"rope_parameters": None, "rope_scaling": {"rope_type": "longrope"}},
        "beta_fast is not above": {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1}},
        "mscale is '0.5'": {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "mscale": 0.5}},
        "the positions are above 0": {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
    }  # fmt: skip
    gemma = {"use_bidirectional_attention is set": {"use_bidirectional_attention": True}, "hidden_act is 'silu'": {"hidden_act": "silu"}}
    llama |= {message: {"model_type": "gemma", **change} for message, change in gemma.items()}
    llama |= {
        "attn_logit_softcapping is 0.0; help": {"model_type": "gemma2", "attn_logit_softcapping": 0},
        "hidden_activation is 'gelu'": {"model_type": "gemma2", "hidden_activation": "gelu"},
        "attn_logit_softcapping is '5.0'": {"model_type": "gemma3_text", "attn_logit_softcapping": 5.0},
        "has not full_attention and sliding_attention alone": {"model_type": "gemma3_text", "rope_parameters": {"rope_theta": 1e4}},
        "no_rope_layers does not say 1 or 0": {"model_type": "smollm3", "no_rope_layers": [1]},
        "of heads of 6 features 1 would turn": {"model_type": "phi", "partial_rotary_factor": 0.2},
        "tie_word_embeddings is 'True'": {"model_type": "phi", "tie_word_embeddings": True},
        "layers are more than": {"model_type": "gemma3_text", "num_hidden_layers": 1 << 17},
    }  # fmt: skip
    for message, change in llama.items():
        (folder / "config.json").write_text(json.dumps({**CONFIGS["llama"], **change}))
        with pytest.raises(FileFormatError, match=message):
            models.from_pretrained(folder)


@pytest.mark.filterwarnings("ignore::tengen.base.errors.UsageWarning")  # a config may name another head than the file has
@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_config_is_a_network_or_one_error(tmp_path_factory, data):
    name = data.draw(st.sampled_from(list(CONFIGS)))
    table, folder = dict(CONFIGS[name]), tmp_path_factory.getbasetemp() / f"config {name}"
    if not folder.exists():
        folder_of(name, folder)
    strange = st.one_of(
        st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(), st.text(max_size=5),
        st.lists(st.integers(-2, 9), max_size=4),
        st.dictionaries(st.sampled_from(["rope_type", "factor"]), st.sampled_from(["linear", "llama3", "yarn", 2.0, -1, None]), max_size=3),
    )  # fmt: skip
    more = ["rope_parameters", "rope_scaling", "head_dim", "sliding_window", "layer_types", "n_inner", "id2label"]
    for _ in range(data.draw(st.integers(1, 3))):
        table[data.draw(st.sampled_from([k for k in [*table, *more] if k != "model_type"]))] = data.draw(strange)
    (folder / "config.json").write_text(json.dumps(table))
    try:
        net = models.from_pretrained(folder)
    except FileFormatError:
        return
    assert isinstance(net, kind_for(table, "").build)


def test_repositories_are_named_by_their_commit(monkeypatch, tmp_path):
    with pytest.raises(ArgumentError, match="which commit is meant"):
        models.from_pretrained("openai-community/gpt2")
    with pytest.raises(ArgumentError, match="which commit is meant"):
        models.from_pretrained("openai-community/gpt2", revision="main")
    with pytest.raises(FileFormatError, match="is no folder"):
        models.from_pretrained("/nowhere/at/all")
    with pytest.raises(FileFormatError, match="it has no config.json"):
        models.from_pretrained(tmp_path)
    with pytest.raises(FileFormatError, match="config.json"):
        (tmp_path / "config.json").symlink_to("/etc/hostname")
        models.from_pretrained(tmp_path)
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: fetching is not tried")
    fetched = folder_of("gpt2", tmp_path / "fetched")
    asked = []
    monkeypatch.setattr(hub, "snapshot_download", lambda *a, **k: asked.append((a, k["revision"])) or str(fetched), raising=False)
    assert models.from_pretrained("a/b", revision="0" * 40).vocabulary == 50 and asked == [(("a/b",), "0" * 40)]

    def offline(*a, **k):
        raise OSError("no route to host\nmore")

    monkeypatch.setattr(hub, "snapshot_download", offline, raising=False)
    with pytest.raises(DownloadError, match="a/b at 000000000000 could not be had: OSError: no route to host; help"):
        models.from_pretrained("a/b", revision="0" * 40)


@pytest.fixture
def spoken(tmp_path):
    """A folder with a tokenizer of 50 words."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: texts are not tried")
    folder = folder_of("gpt2", tmp_path / "spoken")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(50)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))
    return folder


def test_texts_on_the_terminal(spoken):
    net, words = models.from_pretrained(spoken), models.load_tokenizer(spoken)
    ids = net.generate([words.encode("w3 w4").ids], 6)[0].tolist()
    want = words.decode(ids[2:])
    done = CliRunner().invoke(main, ["generate", str(spoken), "--prompt", "w3 w4", "--tokens", "6"])
    assert done.exit_code == 0, done.output
    assert done.output.strip() == want
    stop = want.split()[2]
    done = CliRunner().invoke(main, ["generate", str(spoken), "--prompt", "w3 w4", "--tokens", "6", "--stop", stop, "--echo"])
    assert done.output.strip() == " ".join(["w3 w4", *want.split()[: want.split().index(stop) + 1]])
    draw = lambda seed: CliRunner().invoke(
        main, ["generate", str(spoken), "--prompt", "w3", "--tokens", "5", "--temperature", "2", "--top-k", "40", "--seed", seed]
    )
    assert draw("1").output == draw("1").output != draw("2").output
    os.unlink(spoken / "tokenizer.json")
    done = CliRunner().invoke(main, ["generate", str(spoken), "--prompt", "w3"])
    assert done.exit_code == 1 and "tokenizer.json" in done.output
    (spoken / "tokenizer.json").write_text("{}")
    with pytest.raises(FileFormatError, match="tokenizer.json"):
        models.load_tokenizer(spoken)


if __name__ == "__main__":
    import tempfile

    import transformers

    found = {}
    for name in CONFIGS:
        with tempfile.TemporaryDirectory() as folder:
            found.update({f"{name}: {k}": a for k, a in theirs(folder_of(name, Path(folder)), name).items()})
    saved_outputs.save(SAVED, found, f"transformers {transformers.__version__}, by {Path(__file__).name}")
    print(f"{len(found)} arrays, {SAVED.stat().st_size} bytes")
