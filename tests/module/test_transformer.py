"""Encoder and decoder layers against PyTorch's, with every kind of mask, norms before and after, batches first and second."""

import numpy as np
import pytest

import tengen.module as M
from tengen import Tensor, random, trace
from tengen.autodiff import GradManager

torch = pytest.importorskip("torch")
T, S, N, E, HEADS = 5, 4, 2, 8, 2
MAPS = ("query_map", "key_map", "value_map")


def same_weights(mine, theirs):
    """Gives PyTorch's layer the weights of ours."""
    state = {}
    for name, value in mine.state_dict().items():
        *path, kind = name.split(".")
        value = torch.from_numpy(np.array(value))
        if path and path[-1] in MAPS:
            state.setdefault(".".join([*path[:-1], f"in_proj_{kind}"]), []).append((MAPS.index(path[-1]), value))
        else:
            state[name.replace("out_map", "out_proj")] = value
    joined = {
        k: torch.cat([x for _, x in sorted(v, key=lambda p: p[0])]) if isinstance(v, list) else v for k, v in state.items()
    }
    theirs.load_state_dict(joined)
    return theirs.train()  # with dropout 0: in evaluation PyTorch takes another way, which gives NaN for float masks


def drawn(mine):
    """Weights that keep every part apart, norms and biases included."""
    for i, p in enumerate(mine.parameters()):
        p[...] = np.random.default_rng(i).normal(0.2, 0.5, p.shape).astype(np.float32)
    return mine.eval()


def noise(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


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


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("options", [{}, {"norm_first": True, "batch_first": True, "activation": "gelu"}, {"bias": False}])
def test_encoder(masks, options):
    mine = drawn(M.TransformerEncoder(M.TransformerEncoderLayer(E, HEADS, 12, 0.0, **options), 2, M.LayerNorm(E)))
    layer = torch.nn.TransformerEncoderLayer(E, HEADS, 12, 0.0, **options)
    theirs = same_weights(mine, torch.nn.TransformerEncoder(layer, 2, torch.nn.LayerNorm(E), enable_nested_tensor=False))
    x = noise(0, *((N, T, E) if options.get("batch_first") else (T, N, E)))
    masks = theirs_masks = MASKS[masks]
    if masks[0] is not None and masks[1] is not None and masks[0].dtype != masks[1].dtype:  # which PyTorch discourages
        theirs_masks = (masks[0], np.where(masks[1], -np.inf, 0).astype(np.float32))
    with torch.no_grad():
        want = theirs(torch.from_numpy(x), *given(theirs_masks, torch.from_numpy)).numpy()
    got = mine(Tensor(x), *given(masks, Tensor)).numpy()
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "batch_first": True}])
def test_decoder_and_its_gradients(options):
    random.seed(0)
    mine = drawn(M.TransformerDecoder(M.TransformerDecoderLayer(E, HEADS, 12, 0.0, **options), 2))
    theirs = same_weights(mine, torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(E, HEADS, 12, 0.0, **options), 2))
    first = options.get("batch_first")
    x, memory = noise(1, *((N, T, E) if first else (T, N, E))), noise(2, *((N, S, E) if first else (S, N, E)))
    causal = np.triu(np.ones((T, T), bool), 1)
    masks = causal, hidden(1, T, S), hidden(2, N, T), hidden(3, N, S)
    a, b = (torch.from_numpy(v).requires_grad_() for v in (x, memory))
    want = theirs(a, b, *given(masks, torch.from_numpy))
    (want * want).sum().backward()
    p, q = Tensor(x), Tensor(memory)
    gm = GradManager().attach([p, q])
    with gm:
        y = mine(p, q, *given(masks, Tensor))
        gm.backward((y * y).sum())
    np.testing.assert_allclose(y.numpy(), want.detach().numpy(), rtol=2e-5, atol=2e-5)
    for mine_, theirs_ in ((p, a), (q, b)):
        np.testing.assert_allclose(mine_.grad.numpy(), theirs_.grad.numpy(), rtol=1e-3, atol=1e-4)
    again = mine(p, q, None, *given(masks[1:], Tensor), tgt_is_causal=True)
    np.testing.assert_allclose(again.numpy(), y.numpy(), rtol=1e-6, atol=1e-6)


def test_layers_are_traced_and_trained():
    layer = M.TransformerEncoderLayer(E, HEADS, 12, dropout=0.5)
    x = Tensor(noise(0, T, N, E))
    random.seed(1)
    dropped = layer(x)
    assert dropped.tolist() != layer(x).tolist()
    layer.eval()
    assert trace(layer)(x).numpy().tobytes() == layer(x).numpy().tobytes()
    assert layer(x[:, :1]).numpy().tobytes() == np.ascontiguousarray(layer(x).numpy()[:, :1]).tobytes()
    with pytest.raises(ValueError, match="activation='tanhh'"):
        M.TransformerEncoderLayer(E, HEADS, activation="tanhh")
