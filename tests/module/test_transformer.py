"""Encoder and decoder layers against PyTorch's, with every kind of mask, norms before and after, batches first and second, in
float64 on both sides.

`transformer.npz` has what PyTorch gave, so that a machine without it compares too; where PyTorch is installed it runs as well.
`python tests/module/test_transformer.py` writes the file anew, and notes PyTorch's version in it.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import saved_outputs  # noqa: E402  (after the path is set)

import tengen.module as M  # noqa: E402  (after the path is set)
from tengen import Tensor, random, trace  # noqa: E402  (after the path is set)
from tengen.autodiff import GradManager  # noqa: E402  (after the path is set)

SAVED = Path(__file__).with_name("transformer.npz")
T, S, N, E, HEADS = 5, 4, 2, 8, 2
MAPS = ("query_map", "key_map", "value_map")
# Rounding in float64 is 1e-16; sums of some hundred terms in some ten layers of operations leave 1e-13. A wrong term is 1e-3 and more.
RTOL = 1e-11


def same_weights(mine, theirs):
    """Gives PyTorch's layer the weights of ours; the names of its parameters, as ours are called, to parts of them."""
    import torch

    state, names = {}, {}
    for name, value in mine.state_dict().items():
        *path, kind = name.split(".")
        value = torch.from_numpy(np.array(value))
        if path and path[-1] in MAPS:
            there = ".".join([*path[:-1], f"in_proj_{kind}"])
            state.setdefault(there, []).append((MAPS.index(path[-1]), value))
            names[name] = (there, slice(E * MAPS.index(path[-1]), E * (MAPS.index(path[-1]) + 1)))
        else:
            state[name.replace("out_map", "out_proj")] = value
            names[name] = (name.replace("out_map", "out_proj"), slice(None))
    joined = {
        k: torch.cat([x for _, x in sorted(v, key=lambda p: p[0])]) if isinstance(v, list) else v for k, v in state.items()
    }
    theirs.double().load_state_dict(joined)
    return theirs.train(), names  # with dropout 0: in evaluation PyTorch takes another way, which gives NaN for float masks


def drawn(mine):
    """Weights that keep every part apart, norms and biases included."""
    for i, p in enumerate(mine.parameters()):
        p._reset(Tensor(np.random.default_rng(i).normal(0.2, 0.5, p.shape)))
    return mine.eval()


def noise(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def hidden(seed, *shape):
    """A mask in which everybody sees the first key."""
    mask = np.random.default_rng(seed).uniform(size=shape) < 0.4
    mask[..., 0] = False
    return mask


MASKS = {
    "none": (None, None),
    "bool": (hidden(1, T, T), hidden(2, N, T)),
    "heads": (hidden(3, N * HEADS, T, T), None),
    "padding": (None, hidden(4, N, T)),
    "float": (noise(5, T, T), noise(6, N, T)),
    "both": (noise(7, T, T), hidden(8, N, T)),
}


def given(masks, kind):
    return [None if m is None else kind(m) for m in masks]


ENCODERS = [{}, {"norm_first": True, "batch_first": True, "activation": "gelu"}, {"bias": False}]
DECODERS = [{}, {"norm_first": True, "batch_first": True}]
EVERY = [(True, o, masks) for o in range(len(ENCODERS)) for masks in MASKS] + [(False, o, "") for o in range(len(DECODERS))]


def made(encoder, o):
    """(our layers, PyTorch's to be made of torch, the inputs)."""
    options = (ENCODERS if encoder else DECODERS)[o]
    order = lambda n: (N, n, E) if options.get("batch_first") else (n, N, E)
    if encoder:
        mine = M.TransformerEncoder(M.TransformerEncoderLayer(E, HEADS, 12, 0.0, **options), 2, M.LayerNorm(E))

        def theirs(nn):
            return nn.TransformerEncoder(
                nn.TransformerEncoderLayer(E, HEADS, 12, 0.0, **options), 2, nn.LayerNorm(E), enable_nested_tensor=False
            )

        return drawn(mine), theirs, [noise(0, *order(T))]
    mine = M.TransformerDecoder(M.TransformerDecoderLayer(E, HEADS, 12, 0.0, **options), 2)
    theirs = lambda nn: nn.TransformerDecoder(nn.TransformerDecoderLayer(E, HEADS, 12, 0.0, **options), 2)
    return drawn(mine), theirs, [noise(1, *order(T)), noise(2, *order(S))]


def masks_of(encoder, masks):
    return MASKS[masks] if encoder else (np.triu(np.ones((T, T), bool), 1), hidden(1, T, S), hidden(2, N, T), hidden(3, N, S))


def ours(encoder, o, masks):
    """The result, and the gradients of its squares' sum with respect to inputs and parameters."""
    net, _, inputs = made(encoder, o)
    xs = [Tensor(x) for x in inputs]
    gm = GradManager().attach([*xs, *net.parameters()])
    with gm:
        y = net(*xs, *given(masks_of(encoder, masks), Tensor))
        gm.backward((y * y).sum())
    found = {f"gradient of input {i}": x.grad.numpy() for i, x in enumerate(xs)}
    return {"y": y.numpy(), **found, **{f"gradient of {k}": p.grad.numpy() for k, p in net.named_parameters()}}


def pytorchs(encoder, o, masks):
    """The same from PyTorch."""
    import torch

    net, make, inputs = made(encoder, o)
    theirs, names = same_weights(net, make(torch.nn))
    xs = [torch.from_numpy(x).requires_grad_() for x in inputs]
    found = masks_of(encoder, masks)
    if encoder and found[0] is not None and found[1] is not None and found[0].dtype != found[1].dtype:  # which PyTorch discourages
        found = (found[0], np.where(found[1], -np.inf, 0.0))
    y = theirs(*xs, *given(found, torch.from_numpy))
    (y * y).sum().backward()
    gradients = dict(theirs.named_parameters())
    parts = {f"gradient of {k}": gradients[there].grad.numpy()[at] for k, (there, at) in names.items()}
    return {"y": y.detach().numpy(), **{f"gradient of input {i}": x.grad.numpy() for i, x in enumerate(xs)}, **parts}


def label(encoder, o, masks):
    return f"{'encoder' if encoder else 'decoder'} {o} {masks}: "


@pytest.fixture(scope="module", params=["saved", "live"])
def source(request):
    if request.param == "saved":
        return lambda *which: saved_outputs.load(SAVED, label(*which))
    pytest.importorskip("torch", reason="PyTorch is not installed: its saved outputs are compared, it is not run")
    return lambda *which: {k: saved_outputs.abridged(a) for k, a in pytorchs(*which).items()}


@but(every=6)
@pytest.mark.parametrize("encoder, o, masks", EVERY)
def test_results_and_gradients_are_those_of_pytorch(encoder, o, masks, source):
    saved_outputs.agree(ours(encoder, o, masks), source(encoder, o, masks), RTOL)


def test_a_causal_decoder_is_one_with_a_causal_mask():
    net, _, inputs = made(False, 0)
    xs, masks = [Tensor(x) for x in inputs], given(masks_of(False, ""), Tensor)
    y, again = net(*xs, *masks), net(*xs, None, *masks[1:], tgt_is_causal=True)
    np.testing.assert_allclose(again.numpy(), y.numpy(), rtol=1e-13, atol=1e-13)  # other kernels, float64


def test_layers_are_traced_and_trained():
    layer = M.TransformerEncoderLayer(E, HEADS, 12, dropout=0.5)
    x = Tensor(noise(0, T, N, E).astype(np.float32))
    random.seed(1)
    dropped = layer(x)
    assert dropped.tolist() != layer(x).tolist()
    layer.eval()
    assert trace(layer)(x).numpy().tobytes() == layer(x).numpy().tobytes()
    assert layer(x[:, :1]).numpy().tobytes() == np.ascontiguousarray(layer(x).numpy()[:, :1]).tobytes()
    with pytest.raises(ValueError, match="activation='tanhh'"):
        M.TransformerEncoderLayer(E, HEADS, activation="tanhh")


if __name__ == "__main__":
    import torch

    found = {label(*which) + k: a for which in EVERY for k, a in pytorchs(*which).items()}
    saved_outputs.save(SAVED, found, f"PyTorch {torch.__version__}, by {Path(__file__).name}")
    print(f"{len(found)} arrays, {SAVED.stat().st_size} bytes")
