"""Texts from GPT and Llama: a row does not depend on the others, in any way of running; how a text ends, and how tokens are chosen."""

import sys

import numpy as np
import pytest

import tengen
from tengen import Tensor
from tengen.models.llama import frequencies

PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3], [8]]


@pytest.fixture(scope="module")
def net():
    """Heads in groups, a window in one of two layers, biases: all that a step may have."""
    net = tengen.models.llama(2, 24, 4, 40, 50, groups=2, context=96, window=[None, 6], qkv_bias=True).eval()
    for i, (name, t) in enumerate(sorted(net.named_tensors())):
        a = np.random.default_rng(i).normal(size=t.shape)
        t._reset((0.3 * a if t.ndim > 1 else name.endswith("weight") + 0.1 * a).astype(np.float32))
    return net


def test_a_row_does_not_depend_on_the_others(net):
    for options in ({}, {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.3}):
        seeds = {"seed": [7, 8, 9]} if options else {}
        together = net.generate(PROMPTS, 12, **options, **seeds)
        assert [len(row) for row in together] == [len(p) + 12 for p in PROMPTS]
        for i, prompt in enumerate(PROMPTS):
            alone = net.generate([prompt], 12, **options, **({"seed": [7 + i]} if options else {}))
            assert alone.shape == (1, len(prompt) + 12) and (alone[0] == together[i]).all()


def test_the_traced_step_has_the_bits_of_forward(net, monkeypatch):
    """At places of each row's own, with keys of a window, and shared by two heads."""
    ids = np.zeros((3, 13), np.int32)
    for row, prompt in zip(ids, PROMPTS):
        row[: len(prompt)] = prompt
    lengths = np.array([len(p) for p in PROMPTS], np.int32)
    how = tengen.models.generation.Sampling()
    numbers, uniform = Tensor(how.numbers()), np.zeros((1, 3, 1), np.float32)
    decode = net._decoder(3, 40, how.key())
    first = decode.begin(ids, lengths, numbers, Tensor(uniform[0]), np.zeros((3, 1), bool))
    assert first.tolist() == [net(Tensor(np.array([p], np.int32))).numpy()[0, -1].argmax() for p in PROMPTS]
    texts, seen = [list(p) for p in PROMPTS], Tensor(np.arange(64, dtype=np.int32))
    traced = tengen.trace(lambda: net._logits(net._decoded(decode.tokens.reshape(-1, 1), decode.places, seen, decode.caches)))
    for step in range(10):
        new = np.array([5 + step, 6, 7 + step])
        decode.at(new, lengths + step)
        logits = traced().numpy()
        assert (decode(numbers, Tensor(uniform))[0] == logits[:, 0].argmax(-1)).all()
        for i, text in enumerate(texts):
            text.append(int(new[i]))
            assert net(Tensor(np.array([text], np.int32))).numpy()[0, -1].tobytes() == logits[i, 0].tobytes()
    whole = np.array([texts[1]], np.int32)
    step, held = net.step(Tensor(whole[:, :7]))
    rest, _ = net.step(Tensor(whole[:, 7:]), held)
    want = net(Tensor(whole)).numpy()
    assert np.concatenate([step.numpy(), rest.numpy()], 1).tobytes() == want.tobytes()
    text = net.generate(PROMPTS[:1], 12)
    monkeypatch.setattr(sys.modules["tengen.models.generation"], "TRACED", 1)
    assert (net.generate(PROMPTS[:1], 12) == text).all()
    drawn = {"temperature": 1.0, "seed": 4, "repetition_penalty": 1.2}
    for options in ({}, drawn):  # several tokens in a call, of which one sees more places, and one after the other
        assert np.stack(list(net.stream(PROMPTS[:1], 80, **options)), 1)[0].tolist() == net.generate(PROMPTS[:1], 80, **options)[0][5:].tolist()


def test_tokens_as_they_come_and_how_a_text_ends(net):
    text = net.generate(PROMPTS, 10)
    shown: list = []
    assert all((a == b).all() for a, b in zip(net.generate(PROMPTS, 10, callback=shown.append), text))
    assert (np.stack(shown, 1) == [row[-10:] for row in text]).all() and (np.stack(list(net.stream(PROMPTS, 10))) == shown).all()
    ends = {int(text[0][-8]), int(text[2][-3])}
    short = net.generate(PROMPTS, 10, eos=sorted(ends))
    for row, prompt, whole in zip(short, PROMPTS, text):
        new = whole[len(prompt) :].tolist()
        stop = next((i + 1 for i, t in enumerate(new) if t in ends), 10)
        assert row.tolist() == prompt + new[:stop]
    same = net.generate(np.array([PROMPTS[0], PROMPTS[0][::-1]]), 10, eos=sorted(ends))
    assert same.dtype == np.int32 and same.shape[0] == 2
    decode = lambda ids: " ".join(f"<{i}>" for i in ids)
    word = f"<{text[0][-6]}> <{text[0][-5]}>"
    stopped = net.generate(PROMPTS[:1], 10, stop=word, decode=decode)
    first = next(i for i in range(1, 11) if word in decode(text[0][5 : 5 + i]))
    assert stopped[0].tolist() == text[0][: 5 + first].tolist()
    net.eos = (int(text[0][-8]),)
    assert (net.generate(PROMPTS[:1], 10) == net.generate(PROMPTS[:1], 10, eos=net.eos)).all() and len(net.generate(PROMPTS[:1], 10)[0]) < 15
    net.eos = ()


def test_a_repetition_penalty_counts_the_prompt_and_the_text(net):
    text = net.generate(PROMPTS[:1], 10, repetition_penalty=1.5)[0].tolist()
    for at in range(5, 15):
        logits = net(Tensor(np.array([text[:at]], np.int32))).numpy()[0, -1].copy()
        seen = list(set(text[:at]))
        logits[seen] = np.where(logits[seen] > 0, logits[seen] / np.float32(1.5), logits[seen] * np.float32(1.5))
        assert logits.argmax() == text[at]


def test_what_is_refused(net):
    for arguments, options, message in [
        (([[1, 2]], 95), {}, "a prompt of 2 tokens and 95 more do not fit a context of 96"),
        (([[50]], 1), {}, "the token 50 is none of a vocabulary of 50"), (([[-1]], 1), {}, "the token -1 is none"),
        (([[(1 << 32) + 5]], 1), {}, "the token 4294967301 is none"),
        (([], 1), {}, "tokens are ids"), (([[]], 1), {}, "tokens are ids"), (([[0.5]], 1), {}, "tokens are ids"),
        (([1, 2], 1), {}, "tokens are ids"), (([[1]], -1), {}, "-1 more"), (([[1]], 1), {"seed": [1, 2]}, "2 seeds for 1 prompts"),
        (([[1]], 1), {"stop": "x"}, "stop needs decode"), (([[1]], 1), {"stop": "", "decode": str}, "none of them empty"),
        (([[1]], 1), {"temperature": 1e-40}, "temperature=1e-40"), (([[1]], 1), {"top_k": 2.5}, "top_k=2.5"),
        (([[1]], 1), {"temperature": float("nan")}, "temperature=nan"), (([[1]], 1), {"min_p": 2}, "min_p=2"),
        (([[1]], 1), {"repetition_penalty": 0}, "repetition_penalty=0"), (([[1]], 1), {"top_k": 0}, "top_k=0"),
        ((None, 1), {}, "tokens are ids"), (([[1]], 2.5), {}, "count=2.5 is no"), (([[1]], "3"), {}, "count='3' is no"),
        (([[1]], 1), {"temperature": "hot"}, "temperature='hot'"), (([[1]], 1), {"seed": -1}, "seed=-1 is negative"),
        (([[1]], 1), {"seed": "a"}, "seed='a' is neither"), (([[1]], 1), {"eos": "a"}, "eos='a' is neither"),
        (([[1]], 1), {"stop": 3, "decode": str}, "stop is a text"), (([[1]], 1), {"stop": "a", "decode": 3}, "3 is no function"),
        (([[1]], 1), {"callback": 3}, "callback=3 is no function"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            net.generate(*arguments, **options)


def test_frequencies():
    """Llama 3's ramp, from its definition: short waves as they are, long ones eight times as long, and between them a mixture."""
    plain = 1 / 10000 ** (np.arange(0, 64, 2) / 64)
    waves = 2 * np.pi / plain
    got = frequencies(64, 10000.0, {"factor": 8.0, "low": 1.0, "high": 4.0, "context": 2048})
    short, long = waves < 2048 / 4, waves > 2048
    smooth = (2048 / waves - 1) / 3
    want = np.where(short, plain, np.where(long, plain / 8, (1 - smooth) * plain / 8 + smooth * plain))
    np.testing.assert_allclose(got, want, rtol=1e-7)
    assert short.any() and long.any() and (~short & ~long).any()
    np.testing.assert_allclose(frequencies(64, 10000.0, {"factor": 2.0}), plain / 2, rtol=1e-7)
    with pytest.raises(ValueError, match="heads of 3 features"):
        tengen.models.llama(1, 12, 4, 8, 9)
    with pytest.raises(ValueError, match="for each of 2 layers"):
        tengen.models.llama(2, 16, 4, 8, 9, window=[3])
    with pytest.raises(ValueError, match="4 heads cannot share 3"):
        tengen.models.llama(1, 16, 4, 8, 9, groups=3)
