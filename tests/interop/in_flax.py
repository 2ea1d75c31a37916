"""Runs where Flax is: writes the weights of networks of its two interfaces, and results, into a folder."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx, serialization

folder = sys.argv[1]
rng = np.random.default_rng(0)
x = rng.normal(size=(2, 12, 12, 3)).astype(np.float32)


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.Conv(6, (3, 3), padding="VALID", name="conv")(x)
        x = linen.relu(linen.BatchNorm(use_running_average=True, name="bn")(x))
        x = linen.Conv(6, (3, 3), padding="VALID", feature_group_count=6, name="depthwise")(x).mean((1, 2))
        return linen.Dense(4, name="fc")(linen.LayerNorm(name="norm")(x))


class NewNet(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 6, (3, 3), padding="VALID", rngs=rngs)
        self.bn = nnx.BatchNorm(6, use_running_average=True, rngs=rngs)
        self.depthwise = nnx.Conv(6, 6, (3, 3), padding="VALID", feature_group_count=6, rngs=rngs)
        self.norm = nnx.LayerNorm(6, rngs=rngs)
        self.fc = nnx.Linear(6, 4, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.bn(self.conv(x)))
        return self.fc(self.norm(self.depthwise(x).mean((1, 2))))


def drawn(tree):
    """None that a new network has: biases, factors and statistics too."""
    return jax.tree.map(lambda a: jnp.asarray(rng.uniform(0.1, 1, a.shape).astype(np.float32)), tree)


def keep(name, tree, y):
    with open(f"{folder}/{name}.msgpack", "wb") as f:
        f.write(serialization.to_bytes(tree))
    np.savez(f"{folder}/{name}.npz", x=x, y=np.asarray(y))


net = Net()
variables = drawn(net.init(jax.random.key(0), x))
keep("linen", variables, net.apply(variables, x))
half = jax.tree.map(lambda a: a.astype(jnp.bfloat16), variables)
keep("half", half, net.apply(jax.tree.map(lambda a: a.astype(jnp.float32), half), x))

graph, state = nnx.split(NewNet(nnx.Rngs(0)))
state = drawn(state)
keep("nnx", nnx.to_pure_dict(state), nnx.merge(graph, state)(x))
