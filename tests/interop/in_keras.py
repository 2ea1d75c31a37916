"""Runs where Keras 3 is: writes a network and its results into a folder."""

import sys

import keras
import numpy as np

net = keras.Sequential(
    [
        keras.Input((12, 12, 3)), keras.layers.Conv2D(6, 3, name="conv"), keras.layers.BatchNormalization(epsilon=1e-5, name="bn"),
        keras.layers.ReLU(), keras.layers.DepthwiseConv2D(3, name="depthwise"), keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(4, name="fc"),
    ]
)  # fmt: skip
rng = np.random.default_rng(0)
net.set_weights([rng.normal(size=w.shape).astype(np.float32) ** (2 if "variance" in w.path else 1) for w in net.weights])
x = rng.normal(size=(2, 12, 12, 3)).astype(np.float32)
net.save(sys.argv[1] + "/net.keras")
net.export(sys.argv[1] + "/saved")
np.savez(sys.argv[1] + "/results.npz", x=x, y=np.asarray(net(x)))
