"""JAX's side of training: the functions of `jax_networks.py`, compiled as one step.

In: a network's name and its weights by Tengen's names. Out: `JaxTrainer.step()`. There are definitions of MLP, LeNet, LSTM and GPT
(`FORWARD`); the others have none here.
"""

from __future__ import annotations

from collections.abc import Callable

import compare
import numpy as np
from jax_networks import FORWARD, adamw, sgd
from networks import RATES, Network

jax = compare.peer("jax")
jnp = jax.numpy if jax else None


class JaxTrainer:
    """A compiled step that is given its weights and state, and gives new ones in their place."""

    def __init__(self, network: Network, weights: dict[str, np.ndarray], batch: int):
        w = {k: jnp.asarray(v) for k, v in weights.items()}
        zeros = {k: jnp.zeros_like(v) for k, v in w.items()}
        adam = network.optimizer == "AdamW"
        self.state = w, (jnp.float32(0), zeros, {k: v + 0 for k, v in zeros.items()}) if adam else zeros
        forward, rates = FORWARD[network.name], RATES[network.optimizer]
        data, label = jnp.asarray(network.data(batch)), jnp.asarray(network.labels(batch).ravel())

        def loss_of(w, data, label):
            logits = forward(w, data).reshape(-1, network.classes)
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), label[:, None], 1).mean()

        def train(w, state, data, label):
            loss, g = jax.value_and_grad(loss_of)(w, data, label)
            return loss, *(adamw if adam else sgd)(w, g, state, **rates)

        run = jax.jit(train, donate_argnums=(0, 1))

        def step():
            loss, *self.state = run(*self.state, data, label)
            return loss.block_until_ready()

        self.step: Callable = step

    def weights(self) -> dict[str, np.ndarray]:
        """The parameters' values by name."""
        return {k: np.asarray(v) for k, v in self.state[0].items()}
