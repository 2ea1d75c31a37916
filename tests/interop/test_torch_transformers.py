"""Models of transformers whose shapes or values decide what is computed, beside PyTorch. More: benchmarks/transformers_networks.py."""

import numpy as np
import pytest
from needs import since

from tengen import trace
from tengen.interop.torch import from_torch, to_module

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: its models are not compared")
SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}


def beside(model, net, **given):
    """Tengen's and PyTorch's output agree; the former."""
    have = net(**from_torch(given))["logits"]
    with torch.no_grad():
        want = model(**given).logits.numpy()
    np.testing.assert_allclose(have.numpy(), want, rtol=2e-5, atol=2e-6 * np.abs(want).max())
    return have


@since("torch", "2.13", "it says one extent in two ways, of which only a run can tell that they are equal")
def test_sound_of_any_length():
    """One program of wav2vec2 for all batches and lengths: convolutions with strides, and one over positions that is padded."""
    torch.manual_seed(0)
    layers = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    model = transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(vocab_size=12, **SIZE, **layers, **positions)).eval()
    open_ = {"input_values": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}}
    net = to_module(model, (), {"input_values": torch.randn(2, 160)}, training=False, dynamic_shapes=open_)
    run = trace(net, dynamic_axes={"input_values": {0: "batch", 1: "time"}})
    for shape in ((2, 160), (3, 333), (5, 97)):
        sound = torch.randn(shape)
        assert beside(model, net, input_values=sound).numpy().tobytes() == beside(model, run, input_values=sound).numpy().tobytes()
    assert run.stats().programs == 1


def test_experts_of_a_mixture():
    """Each token goes to two of four experts, some of which get none; gradients of all weights are PyTorch's."""
    from tengen.autodiff import GradManager

    torch.manual_seed(0)
    options = {"num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2, "use_cache": False}
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(vocab_size=12, **SIZE, **options)).eval()
    ids = torch.tensor([[3, 7, 1]])
    net = to_module(model, (), {"input_ids": ids}, training=False, dynamic_shapes={"input_ids": {1: torch.export.Dim("length", max=64)}})
    run = trace(net, dynamic_axes={"input_ids": {1: "length"}})
    for given in (ids, torch.randint(0, 12, (1, 9))):
        assert beside(model, net, input_ids=given).numpy().tobytes() == beside(model, run, input_ids=given).numpy().tobytes()
    assert run.stats().programs == 1
    (model(ids).logits ** 2).sum().backward()
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward((net(**from_torch({"input_ids": ids}))["logits"] ** 2).sum())
    found = dict(net.named_parameters())
    for name, p in model.named_parameters():
        want = np.zeros(p.shape, np.float32) if p.grad is None else p.grad.numpy()
        np.testing.assert_allclose(found[name].grad.numpy(), want, rtol=1e-4, atol=1e-5 * max(np.abs(want).max(), 1e-3), err_msg=name)
