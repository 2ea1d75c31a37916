"""Caches of transformers' models as arguments and results: greedy texts step by step, beside `generate`."""

import inspect

import numpy as np
import pytest
from needs import since

from tengen import Tensor, trace
from tengen.interop.torch import from_torch, to_module

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def gpt2(transformers):
    config = transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
    return transformers.GPT2LMHeadModel(config)


def llama(transformers):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **SMALL))


@since("torch", "2.13", "it cannot decompose a program whose arguments are numbers")
@pytest.mark.parametrize("make", [gpt2, llama])
def test_greedy_texts_are_those_of_generate(make):
    """One program for all steps: the length of the cache is open. Its argument is called `cache` from transformers 5.24 on."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: its caches are not compared")
    torch.manual_seed(0)
    model, ids, steps = make(transformers).eval(), torch.randint(3, 99, (2, 5)), 8
    with torch.no_grad():
        first = model(ids, use_cache=True)
    takes = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    gives = next(name for name in ("cache", "past_key_values") if name in first)
    layers = [{2: torch.export.Dim.DYNAMIC}] * 2
    given = {"input_ids": ids[:, :1], takes: first[gives], "use_cache": True}
    begin = to_module(model, (), {"input_ids": ids, "use_cache": True}, training=False)
    shapes = {"input_ids": None, takes: [layers, layers], "use_cache": None}
    step = trace(to_module(model, (), given, training=False, dynamic_shapes=shapes))
    out, found = begin(input_ids=from_torch(ids), use_cache=True), []
    assert set(out[gives]) == {"key_cache", "value_cache"} and len(out[gives]["key_cache"]) == 2
    for _ in range(steps):
        found.append(out["logits"].numpy()[:, -1].argmax(-1).astype(np.int64))
        out = step(input_ids=Tensor(found[-1][:, None]), use_cache=True, **{takes: out[gives]})
    want = model.generate(ids, max_new_tokens=steps, do_sample=False, eos_token_id=None, pad_token_id=0)[:, ids.shape[1] :]
    assert np.stack(found, 1).tolist() == want.tolist() and step.stats().programs == 2
