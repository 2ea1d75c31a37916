"""Runs where Keras 3 and TensorFlow are: writes a network, TFLite files of it, and results into a folder."""

import sys

import keras
import numpy as np
import tensorflow as tf

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

for name in ("float", "int8"):
    converter = tf.lite.TFLiteConverter.from_saved_model(sys.argv[1] + "/saved")
    if name == "int8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([row[None]] for row in x)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    data = converter.convert()
    with open(f"{sys.argv[1]}/{name}.tflite", "wb") as f:
        f.write(data)
run = tf.lite.Interpreter(model_content=data, experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_REF)
run.allocate_tensors()
codes = rng.integers(-128, 128, (1, 12, 12, 3)).astype(np.int8)
run.set_tensor(run.get_input_details()[0]["index"], codes)
run.invoke()
np.savez(sys.argv[1] + "/integers.npz", x=codes, y=run.get_tensor(run.get_output_details()[0]["index"]))
