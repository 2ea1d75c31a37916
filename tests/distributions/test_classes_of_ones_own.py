"""Classes that programs derive from distributions: they read what their base keeps, and have its divergences."""

import numpy as np
import pytest

from tengen import Tensor
from tengen import distributions as D
from tengen import functional as F

LOGITS = np.array([[0.5, -1.0, 2.0], [0.0, 0.3, -0.2]], np.float32)


class Mixed(D.OneHotCategorical):
    """Weights that are mixed with even ones."""

    def __init__(self, logits, share=0.1):
        probs = F.softmax(logits, -1) * (1.0 - share) + share / logits.shape[-1]
        super().__init__(logits=F.log(probs))

    def argmost(self):
        return F.one_hot(F.argmax(super().logits, -1), super().probs.shape[-1])


def test_what_a_base_keeps_is_read_by_super():
    assert Mixed(Tensor(LOGITS)).argmost().tolist() == np.eye(3)[LOGITS.argmax(1)].tolist()

    class Shifted(D.Normal):
        def middle(self):
            return super().loc + super().scale

    assert Shifted(Tensor([1.0]), Tensor([2.0])).middle().tolist() == [3.0]
    with pytest.raises(AttributeError, match="'Normal' object has no attribute 'rate'"):
        print(D.Normal(0.0, 1.0).rate)
    assert D.Bernoulli(probs=Tensor(0.5)).logits.item() == 0.0


def test_a_divergence_of_vectors_with_a_one():
    p, q = Mixed(Tensor(LOGITS)), Mixed(Tensor(LOGITS[::-1].copy()), 0.2)
    a, b = (d.probs.numpy().astype(np.float64) for d in (p, q))
    np.testing.assert_allclose(D.kl_divergence(p, q).numpy(), (a * np.log(a / b)).sum(-1), rtol=1e-5)
    whole = D.kl_divergence(D.Independent(p, 1), D.Independent(q, 1)).item()
    np.testing.assert_allclose(whole, (a * np.log(a / b)).sum(), rtol=1e-5)
