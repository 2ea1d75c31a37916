"""What Hugging Face's config.json says of decoders with turning positions, from Llama to Phi, as arguments of ours, and back.

In: a config's `Fields`. Out: the arguments of a `Llama` or of a class below it; and from such a network the settings of a config.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tengen.models.decoders import Gemma2, Olmo2, Phi
from tengen.models.fields import ACTIVATIONS, NAMES, Fields, Kind, fail
from tengen.models.llama import Llama, OffsetRMSNorm

FEATURES = {"qwen3": 128, "gemma": 256, "gemma2": 256, "gemma3_text": 256}  # of a head, where a config says nothing and the width has no say
GEMMAS = ("gemma", "gemma2", "gemma3_text")
PATTERNS = {"gemma2": 2, "gemma3_text": 6, "olmo3": 4}  # the last of so many layers sees all keys, the others a window
WINDOWED = ("mistral", "phi3", *PATTERNS)  # kinds whose windows are on unless something else is said
EPS = {"phi3": 1e-5, "olmo2": 1e-5, "olmo3": 1e-5}
MOST_LAYERS = 1 << 16  # each has a window and positions in lists, before it is known whether the weights are there
YARN = {"beta_fast": 32.0, "beta_slow": 1.0}  # turns in the context: of pairs that stay as they are, and of those that are stretched


def _read_llama(f: Fields) -> dict[str, Any]:
    f.needs(partial_rotary_factor=1.0)
    kind, bias = f.table["model_type"], f.flag("attention_bias", False)
    made = _read_extents(f, kind)
    layers = made["layers"]
    sees = _read_layers(f, kind, layers)
    return {
        **made, **_read_positions(f, kind, sees, layers), "hidden": f.count("intermediate_size", 11008),
        "context": f.count("max_position_embeddings", 2048), "eps": f.number("rms_norm_eps", EPS.get(kind, 1e-6)),
        "tied": f.flag("tie_word_embeddings", kind in (*GEMMAS, "smollm3")), "qkv_bias": kind == "qwen2" or bias,
        "bias": kind != "qwen2" and bias, "mlp_bias": f.flag("mlp_bias", False), "window": _read_window(f, sees),
        "qk_norm": kind in ("qwen3", "gemma3_text", "olmo2", "olmo3"), **_read_gates(f, kind),
    }  # fmt: skip


def _read_extents(f: Fields, kind: str) -> dict[str, Any]:
    """Vocabulary, layers, width, heads, groups, features of a head."""
    layers, heads, width = f.count("num_hidden_layers", 32), f.count("num_attention_heads", 32), f.count("hidden_size", 4096)
    features = f.table.get("head_dim")
    if features is None and kind not in FEATURES and width % heads:
        fail(f"{f.where}: {width} features cannot be shared out to {heads} heads")
    features, groups = f.count("head_dim", FEATURES.get(kind, max(width // heads, 1))), f.count("num_key_value_heads", heads)
    if heads % groups or features % 2:
        fail(f"{f.where}: {heads} heads of {features} features and {groups} of keys and values do not fit")
    names = ("vocabulary", "layers", "width", "heads", "groups", "features")
    return dict(zip(names, (f.count("vocab_size", 32000), layers, width, heads, groups, features)))


def _read_gates(f: Fields, kind: str) -> dict[str, Any]:
    """The activation, and what else of Gemma's is its own. The first one's "gelu" means the approximation by tanh."""
    if kind not in GEMMAS:
        f.needs(hidden_act="silu")
        return {}
    for name in ("hidden_act", "hidden_activation"):
        if f.table.get(name) is not None:
            first = {"gelu": 0} if kind == "gemma" else {}
            f.choice(name, {"gelu_pytorch_tanh": 0, **first}, "gelu_pytorch_tanh")
    if f.table.get("use_bidirectional_attention"):
        fail(f"{f.where}: use_bidirectional_attention is set; Tengen's network sees what stands before")
    made = {"activation": "gelu_tanh", "norm_offset": True, "scale": f.count("hidden_size", 4096) ** 0.5}
    if kind == "gemma":
        return made
    caps = {"cap": ("attn_logit_softcapping", 50.0), "logit_cap": ("final_logit_softcapping", 30.0)}
    found = {}
    for ours, (theirs, default) in caps.items():
        there = kind == "gemma2" if theirs not in f.table else f.table[theirs] is not None
        if there and not (cap := f.number(theirs, default)) > 0:
            fail(f"{f.where}: {theirs} is {cap}; help: a number above 0, or null for none")
        found[ours] = cap if there else None
    if kind == "gemma3_text":
        f.needs(attn_logit_softcapping=None)  # which transformers reads and does not apply
    return {**made, **found, "scores": f.count("query_pre_attn_scalar", 256) ** -0.5}


def _read_positions(f: Fields, kind: str, sees: list[str], layers: int) -> dict[str, Any]:
    """Base and scaling of the positions: of all layers, or of each."""
    if kind == "smollm3":
        base, scaling = _read_turns(f, 2e6)
        return {"base": [base if turned else None for turned in _turned(f, layers)], "scaling": scaling}
    if kind not in ("gemma3_text", "olmo3"):
        base, scaling = _read_turns(f, 1e4)
        return {"base": base, "scaling": scaling}
    nested, r = f.table.get("rope_parameters"), f.below("rope_parameters")
    if nested and set(nested) - {"full_attention", "sliding_attention"}:
        fail(f"{r.where} has not full_attention and sliding_attention alone, each with its own settings")
    full, near = (500000.0, 500000.0) if kind == "olmo3" else (1e6, 1e4)
    theta, local = f.number("rope_theta", full), f.number("rope_local_base_freq", near)
    if f.table.get("rope_scaling") and r.table.get("full_attention"):
        fail(f"{f.where}: rope_parameters and rope_scaling are two names of one setting; help: take one out")
    stretched = r.below("full_attention") if r.table.get("full_attention") else f.below("rope_scaling")
    found = {"full_attention": _read_turn(stretched, theta), "sliding_attention": _read_turn(r.below("sliding_attention"), local)}
    bases, scalings = zip(*(found[s] for s in sees))
    return {"base": list(bases), "scaling": list(scalings)}


def _turned(f: Fields, layers: int) -> list[bool]:
    """Of which layers queries and keys turn with their positions."""
    said = f.table.get("no_rope_layers")
    if said is None:
        interval = f.count("no_rope_layer_interval", 4)
        return [(i + 1) % interval != 0 for i in range(layers)]
    if not isinstance(said, list) or len(said) != layers or any(x not in (0, 1) for x in said):
        fail(f"{f.where}: no_rope_layers does not say 1 or 0 for each of {layers} layers")
    return [bool(x) for x in said]


def _read_turns(f: Fields, base: float) -> tuple[float, dict[str, float] | None]:
    """Base and scaling of the positions, of both spellings: rope_parameters, and rope_theta with rope_scaling."""
    said = [name for name in ("rope_parameters", "rope_scaling") if f.table.get(name)]
    if len(said) == 2 and f.table[said[0]] != f.table[said[1]]:
        fail(f"{f.where}: rope_parameters and rope_scaling are two names of one setting, and do not say the same; help: take one out")
    return _read_turn(f.below(said[0] if said else "rope_parameters"), f.number("rope_theta", base))


def _read_turn(r: Fields, base: float) -> tuple[float, dict[str, float] | None]:
    base, kind = r.number("rope_theta", base), r.table.get("rope_type", r.table.get("type", "default"))
    if kind == "default":
        scaling = None
    elif kind == "linear":
        scaling = {"factor": r.number("factor", 0)}
    elif kind == "llama3":
        names = {"factor": "factor", "low": "low_freq_factor", "high": "high_freq_factor", "context": "original_max_position_embeddings"}
        scaling = {ours: r.number(theirs, 0) for ours, theirs in names.items()}
        if not scaling["low"] < scaling["high"]:
            fail(f"{r.where}: low_freq_factor is not below high_freq_factor")
    elif kind == "yarn":
        scaling = _read_yarn(r)
        if base == 1:
            fail(f"{r.where}: rope_theta is 1, of which yarn has no logarithm")
    else:
        fail(f"{r.where}: rope_type is {str(kind)[:40]!r}; Tengen knows default, linear, llama3 and yarn")
    if not base > 0 or (scaling and not all(x > 0 for x in scaling.values())):
        fail(f"{r.where}: numbers of the positions are above 0")
    return base, scaling


def _read_yarn(r: Fields) -> dict[str, float]:
    """Its own factor of cosines and sines is that of the paper."""
    r.needs(truncate=True, mscale=None, mscale_all_dim=None)
    factor = r.number("factor", 0)
    said = r.table.get("attention_factor") is not None
    attention = r.number("attention_factor", 0) if said else 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
    fast, slow = (r.number(name, default) if r.table.get(name) is not None else default for name, default in YARN.items())
    if not fast > slow:
        fail(f"{r.where}: beta_fast is not above beta_slow")
    return {"factor": factor, "fast": fast, "slow": slow, "context": r.number("original_max_position_embeddings", 0), "attention": attention}


def _read_layers(f: Fields, kind: str, layers: int) -> list[str]:
    """What each layer sees: full_attention or sliding_attention."""
    if layers > MOST_LAYERS:
        fail(f"{f.where}: {layers} layers are more than Tengen builds")
    full = ["full_attention"] * layers
    if kind in ("llama", "gemma", "olmo2") or not f.flag("use_sliding_window", kind in WINDOWED):
        return full
    if kind not in PATTERNS and f.table.get("sliding_window") is None:
        return full
    types = f.table.get("layer_types")
    if types is None:
        if kind in PATTERNS:
            pattern = f.count("sliding_window_pattern", PATTERNS[kind])
            slides = [(i + 1) % pattern != 0 for i in range(layers)]
        elif kind == "smollm3":
            slides = [not turned for turned in _turned(f, layers)]
        else:
            first = 0 if kind in WINDOWED else f.number("max_window_layers", 28)
            slides = [i >= first for i in range(layers)]
        return ["sliding_attention" if s else "full_attention" for s in slides]
    if not isinstance(types, list) or len(types) != layers or any(t not in ("sliding_attention", "full_attention") for t in types):
        fail(f"{f.where}: layer_types does not say full_attention or sliding_attention for each of {layers} layers")
    return types


def _read_window(f: Fields, sees: list[str]) -> Any:
    if "sliding_attention" not in sees:
        return None
    window = f.count("sliding_window", 4096)
    windows = [window if s == "sliding_attention" else None for s in sees]
    return window if None not in windows else windows


def _read_phi(f: Fields) -> dict[str, Any]:
    f.needs(tie_word_embeddings=False)
    table = {"num_hidden_layers": 24, "hidden_size": 2048, "vocab_size": 51200, **f.table}
    made, rope = _read_extents(Fields(table, f.where), "phi"), f.below("rope_parameters")
    base, scaling = _read_turns(f, 1e4)
    part = rope.number("partial_rotary_factor", f.number("partial_rotary_factor", 0.5))
    turning = int(made["features"] * part)
    if turning < 2 or turning % 2 or turning > made["features"]:
        fail(f"{f.where}: partial_rotary_factor is {part}: of heads of {made['features']} features {turning} would turn, which are no pairs")
    return {
        **made, "base": base, "scaling": scaling, "turning": turning, "hidden": f.count("intermediate_size", 8192),
        "context": f.count("max_position_embeddings", 2048), "eps": f.number("layer_norm_eps", 1e-5), "qkv_bias": True, "bias": True,
        "mlp_bias": True, "qk_norm": f.flag("qk_layernorm", False), "activation": f.choice("hidden_act", ACTIVATIONS, "gelu_new"),
    }  # fmt: skip


def _kind_of_llama(net: Llama) -> str:
    """The model_type of a network of the class `Llama`. ValueError where no one has such arguments together."""
    block, windows = net.blocks[0], [b.attn.window for b in net.blocks]
    attn, gemma, windowed = block.attn, isinstance(net.norm, OffsetRMSNorm), any(w is not None for w in windows)
    qkv, out, inside = attn.qkv.bias is not None, attn.proj.bias is not None, block.down.bias is not None
    same, plain = len({*windows} - {None}) <= 1, block.activation == "silu" and net.scale == 1.0
    bases, alike = {base for base, _ in net.positions}, all(p == net.positions[0] for p in net.positions)
    if None in bases:
        kind, fits = "smollm3", plain and len(bases) <= 2 and attn.q_norm is None and qkv == out
        fits = fits and len({str(s) for _, s in net.positions}) == 1 and bases != {None}
    elif gemma:
        kind, fits = "gemma", block.activation == "gelu_tanh" and _scaled_as_gemma(net) and not windowed
        fits = fits and attn.q_norm is None and qkv == out and not inside
    elif attn.q_norm is not None:
        kind, fits = "qwen3", plain and qkv == out and not inside
    elif windowed or (qkv and not out):
        kind = "mistral" if not qkv and None not in windows and same else "qwen2"
        fits = plain and not inside and (kind == "mistral" or (qkv and not out))
    else:
        kind, fits = "llama", plain
    if not (fits and same and _uncapped(net) and (alike or kind == "smollm3")) or len(net.turns[0]) * 2 != attn.features:
        raise ValueError(
            "save_pretrained: transformers' Llama, Mistral, Qwen, Gemma and SmolLM3 have no such windows, biases, norms and positions together"
        )
    return kind


def _scaled_as_gemma(net: Llama) -> bool:
    return net.scale == net.tokens.weight.shape[1] ** 0.5


def _uncapped(net: Llama) -> bool:
    """Whether scores and logits are as they are in all kinds but Gemma 2 and 3."""
    attn = net.blocks[0].attn
    return attn.cap is None and net.logit_cap is None and attn.scale == attn.features**-0.5


def _write_llama(net: Llama) -> dict[str, Any]:
    kind, block, windows = _kind_of_llama(net), net.blocks[0], [b.attn.window for b in net.blocks]
    attn = block.attn
    more: dict[str, Any] = {"rope_parameters": _written_turns(*next(p for p in net.positions if p[0] is not None))}
    if kind in ("llama", "qwen3", "gemma", "smollm3"):
        more["attention_bias"] = attn.proj.bias is not None
    if kind in ("llama", "smollm3"):
        more["mlp_bias"] = block.down.bias is not None
    if kind in ("mistral", "qwen2", "qwen3", "smollm3"):
        more["sliding_window"] = next((w for w in windows if w is not None), None)
    if kind in ("qwen2", "qwen3", "smollm3"):
        more.update(use_sliding_window=more["sliding_window"] is not None, layer_types=_written_layers(net))
    if kind == "smollm3":
        more.update(no_rope_layers=[int(base is not None) for base, _ in net.positions], pad_token_id=None)  # else one of its vocabulary
    return {
        **_written(net, kind, f"{'SmolLM3' if kind == 'smollm3' else kind.capitalize()}ForCausalLM"), "rms_norm_eps": net.norm.eps,
        "hidden_act": "gelu_pytorch_tanh" if kind == "gemma" else "silu", **more,
    }  # fmt: skip


def _written(net: Llama, kind: str, architecture: str) -> dict[str, Any]:
    """What all kinds say alike."""
    block = net.blocks[0]
    return {
        "model_type": kind, "architectures": [architecture], "vocab_size": net.vocabulary, "num_hidden_layers": len(net.blocks),
        "hidden_size": net.tokens.weight.shape[1], "num_attention_heads": block.attn.heads, "num_key_value_heads": block.attn.groups,
        "head_dim": block.attn.features, "intermediate_size": block.hidden, "max_position_embeddings": net.context,
        "tie_word_embeddings": net.head is None,
    }  # fmt: skip


def _written_layers(net: Llama) -> list[str]:
    return ["full_attention" if b.attn.window is None else "sliding_attention" for b in net.blocks]


def _written_turns(base: float, scaling: Mapping[str, float] | None) -> dict[str, Any]:
    names = {
        "factor": "factor", "low": "low_freq_factor", "high": "high_freq_factor", "context": "original_max_position_embeddings",
        "fast": "beta_fast", "slow": "beta_slow", "attention": "attention_factor",
    }  # fmt: skip
    turns: dict[str, Any] = {"rope_theta": base, "rope_type": "default"}
    if scaling:
        turns["rope_type"] = "llama3" if "low" in scaling else "yarn" if "fast" in scaling else "linear"
        turns.update((names[k], v) for k, v in scaling.items())
    if "original_max_position_embeddings" in turns:
        turns["original_max_position_embeddings"] = int(turns["original_max_position_embeddings"])
    return turns


def _write_layered(net: Llama) -> dict[str, Any]:
    """Gemma 2 and 3, OLMo 2 and 3, whose layers may see windows and have positions of their own."""
    block, attn = net.blocks[0], net.blocks[0].attn
    windows, sees = {b.attn.window for b in net.blocks} - {None}, _written_layers(net)
    gemma, qkv = isinstance(net, Gemma2), attn.qkv.bias is not None
    later = attn.q_norm is not None if gemma else bool(windows) or len(net.turns) > 1
    kind = ("gemma3_text" if later else "gemma2") if gemma else "olmo3" if later else "olmo2"
    turns = {s: [p for p, t in zip(net.positions, sees) if t == s] for s in ("full_attention", "sliding_attention")}
    fits = len(windows) <= 1 and block.down.bias is None and qkv == (attn.proj.bias is not None)
    fits = fits and all(p == ps[0] and p[0] is not None for ps in turns.values() for p in ps) and len(net.turns[0]) * 2 == attn.features
    fits = fits and (kind in ("gemma3_text", "olmo3") or len(net.turns) == 1)
    if gemma:
        fits = fits and isinstance(net.norm, OffsetRMSNorm) and block.activation == "gelu_tanh" and _scaled_as_gemma(net)
        fits = fits and (attn.cap is None or kind == "gemma2") and abs(attn.scale**-2 - round(attn.scale**-2)) < 1e-3
    else:
        fits = fits and attn.q_norm is not None and net.scale == 1 and _uncapped(net) and block.activation == "silu"
        fits = fits and not isinstance(net.norm, OffsetRMSNorm)
    if not fits:
        raise ValueError(f"save_pretrained: transformers' {kind} has no such windows, biases, norms and positions together")
    written = {s: _written_turns(*ps[0]) for s, ps in turns.items() if ps}
    flat = kind in ("gemma2", "olmo2")
    more: dict[str, Any] = {"rope_parameters": next(iter(written.values())) if flat else written}
    if kind != "olmo2":
        more.update(layer_types=sees, sliding_window=next(iter(windows), 4096))
    if gemma:
        more.update(
            hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=round(attn.scale**-2), attn_logit_softcapping=attn.cap,
            final_logit_softcapping=net.logit_cap,
        )  # fmt: skip
    else:
        more["hidden_act"] = "silu"
    architecture = {"gemma3_text": "Gemma3ForCausalLM"}.get(kind, f"{kind.capitalize()}ForCausalLM")
    return {**_written(net, kind, architecture), "rms_norm_eps": net.norm.eps, "attention_bias": qkv, **more}


def _write_phi(net: Phi) -> dict[str, Any]:
    block, attn = net.blocks[0], net.blocks[0].attn
    biases = all(m.bias is not None for m in (attn.qkv, attn.proj, block.fc1))
    if not biases or net.head is None or len({str(p) for p in net.positions}) > 1 or attn.window or net.scale != 1 or not _uncapped(net):
        raise ValueError("save_pretrained: transformers' Phi has a bias everywhere, a head of its own, and alike layers without windows")
    turns = {**_written_turns(*net.positions[0]), "partial_rotary_factor": 2 * len(net.turns[0]) / attn.features}
    return {
        **_written(net, "phi", "PhiForCausalLM"), "rope_parameters": turns, "layer_norm_eps": net.norm.eps,
        "hidden_act": NAMES[block.activation], "qk_layernorm": attn.q_norm is not None,
    }  # fmt: skip


def _least(o: Mapping[str, Any], maps: int = 3) -> int:
    """maps: of a perceptron."""
    return o["vocabulary"] * o["width"] + o["layers"] * o["width"] * (maps * o["hidden"] + 2 * o["heads"] * o["features"])


LLAMA = Kind(Llama, _read_llama, _write_llama, _least, "LlamaForCausalLM")
GEMMA2 = Kind(Gemma2, _read_llama, _write_layered, _least, "Gemma2ForCausalLM")
OLMO2 = Kind(Olmo2, _read_llama, _write_layered, _least, "Olmo2ForCausalLM")
DECODERS: dict[str, Kind] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "phi3", "smollm3"), LLAMA),
    **dict.fromkeys(("gemma2", "gemma3_text"), GEMMA2), **dict.fromkeys(("olmo2", "olmo3"), OLMO2),
    "phi": Kind(Phi, _read_phi, _write_phi, lambda o: _least(o, 2), "PhiForCausalLM"),
}  # fmt: skip
