"""Writes the TFLite files beside it, and `expected.npz`: what TensorFlow's interpreter with reference kernels gives for them.

Needs TensorFlow (2.21 wrote what is here): python tests/interop/tflite/make.py
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent
RNG = np.random.default_rng(3)
tf.keras.utils.set_random_seed(3)
K = tf.keras


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def cnn(activation="hard_swish"):
    x = K.Input((16, 16, 3), 1)
    y = K.layers.Conv2D(8, 3, strides=2, padding="same")(x)
    y = K.layers.BatchNormalization()(y)
    y = K.layers.ReLU(6.0)(y)
    z = K.layers.DepthwiseConv2D(3, padding="same")(y)
    z = K.layers.Activation(activation)(z)
    z = K.layers.Conv2D(8, 1)(z)
    y = K.layers.Add()([y, z])
    gate = K.layers.Dense(8, "sigmoid")(K.layers.GlobalAveragePooling2D(keepdims=True)(y))
    y = K.layers.Concatenate()([K.layers.MaxPool2D(2)(y * gate), K.layers.AveragePooling2D(2)(y)])
    y = K.layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu")(y)
    y = K.layers.UpSampling2D(2, interpolation="bilinear")(y)
    y = K.layers.Flatten()(K.layers.AveragePooling2D(4)(y))
    return K.Model(x, K.layers.Dense(5, "softmax")(y))


def pictures():
    for _ in range(40):
        yield [floats(1, 16, 16, 3)]


def keras(model, kind="float", samples=pictures, sequence=False):
    c = tf.lite.TFLiteConverter.from_keras_model(model)
    if kind == "float16":
        c.optimizations, c.target_spec.supported_types = [tf.lite.Optimize.DEFAULT], [tf.float16]
    if kind in ("dynamic", "int8", "uint8", "int16"):
        c.optimizations = [tf.lite.Optimize.DEFAULT]
        c._experimental_disable_per_channel = False
    if kind in ("int8", "uint8", "int16"):
        c.representative_dataset = samples
        c.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        c.inference_input_type = c.inference_output_type = {"int8": tf.int8, "uint8": tf.uint8, "int16": tf.int16}[kind]
    if kind == "int16":
        c.target_spec.supported_ops = [tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8]
    if kind == "sparse":
        c.optimizations = [tf.lite.Optimize.EXPERIMENTAL_SPARSITY]
    return c.convert()


def functions(module, *names):
    f = [getattr(module, n).get_concrete_function() for n in names]
    c = tf.lite.TFLiteConverter.from_concrete_functions(f, module)
    c.experimental_enable_resource_variables = True
    return c.convert()


class Branches(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([3], tf.float32), tf.TensorSpec([], tf.int32)])
    def run(self, x, count):
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2.0, lambda: tf.nn.relu(x) - 1.0)
        i, total = tf.while_loop(
            lambda i, t: tf.logical_and(i < count, tf.reduce_max(t) < 50.0), lambda i, t: (i + 1, t * 1.5 + y), [0, y]
        )
        return i, total


class Counter(tf.Module):
    def __init__(self):
        self.total = tf.Variable([1.0, 2.0, 3.0])

    @tf.function(input_signature=[tf.TensorSpec([3], tf.float32)])
    def run(self, x):
        self.total.assign_add(x)
        return self.total * 2.0


class Audio(tf.Module):
    def __init__(self):
        self.mel = tf.constant(np.abs(floats(33, 6)))

    @tf.function(input_signature=[tf.TensorSpec([256], tf.float32)])
    def run(self, x):
        frames = tf.signal.stft(x, 64, 32, fft_length=64)
        power = tf.square(tf.abs(frames))
        return tf.math.log(tf.matmul(power, self.mel) + 1e-3)


def attention():
    x = K.Input((7,), dtype="int32")
    y = K.layers.Embedding(30, 8)(x)
    z = K.layers.MultiHeadAttention(2, 4)(y, y)
    y = K.layers.LayerNormalization()(y + z)
    y = K.layers.Dense(12, "gelu")(y)
    return K.Model(x, K.layers.Dense(3)(K.layers.GlobalAveragePooling1D()(y)))


def recurrent(layer, **options):
    x = K.Input((6, 4), 1)
    return K.Model(x, K.layers.Dense(2)(layer(5, **options)(x)))


def sparse():
    x = K.Input((64,), 1)
    dense = K.layers.Dense(32)
    model = K.Model(x, dense(x))
    w, b = dense.get_weights()
    keep = RNG.random((64 // 4, 32)) < 0.1
    dense.set_weights([w * np.repeat(keep, 4, 0), b])
    return model


def main():
    picture, words, steps = floats(1, 16, 16, 3), RNG.integers(0, 30, (1, 7)).astype(np.int32), floats(1, 6, 4)
    net, made = cnn(), {}
    other = cnn("relu")  # the converter has no hard_swish of 16 bits
    for kind in ("float", "float16", "dynamic", "int8", "uint8", "int16"):
        x = (
            picture
            if kind in ("float", "float16", "dynamic")
            else RNG.integers(*((0, 256) if kind == "uint8" else (-128, 128)), picture.shape)
        )
        made[f"cnn_{kind}"] = (
            keras(net if kind != "int16" else other, kind),
            [[x.astype(kind) if kind in ("int8", "uint8", "int16") else x]],
        )
    made["attention"] = keras(attention()), [[words]]
    made["attention_dynamic"] = keras(attention(), "dynamic"), [[words]]
    made["lstm"] = keras(recurrent(K.layers.LSTM)), [[steps]]
    made["gru"] = keras(recurrent(K.layers.GRU)), [[steps]]
    made["lstm_backwards"] = keras(recurrent(K.layers.LSTM, go_backwards=True, return_sequences=True)), [[steps]]
    made["branches"] = (
        functions(Branches(), "run"),
        [[np.array(v, np.float32), np.array(n, np.int32)] for v, n in (([1, 2, 3], 4), ([-3, 1, -1], 9))],
    )
    made["counter"] = functions(Counter(), "run"), [[floats(3)] for _ in range(3)]
    made["audio"] = functions(Audio(), "run"), [[floats(256)]]
    made["sparse"] = keras(sparse(), "sparse"), [[floats(1, 64)]]
    arrays = {}
    for name, (data, calls) in made.items():
        (HERE / f"{name}.tflite").write_bytes(data)
        kinds = tf.lite.experimental.OpResolverType
        run = tf.lite.Interpreter(model_content=data, experimental_op_resolver_type=kinds.BUILTIN_REF)
        try:
            run.allocate_tensors()
        except RuntimeError:
            run = tf.lite.Interpreter(model_content=data, experimental_op_resolver_type=kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
            run.allocate_tensors()
        ins, outs = run.get_input_details(), run.get_output_details()
        for c, call in enumerate(calls):
            given = {tuple(a.shape): a for a in call}
            for i, d in enumerate(ins):
                a = given[tuple(d["shape"])] if len(ins) > 1 else call[0]
                run.set_tensor(d["index"], a)
                arrays[f"{name}/{c}/in{i}"] = a
            run.invoke()
            for i, d in enumerate(outs):
                arrays[f"{name}/{c}/out{i}"] = run.get_tensor(d["index"])
        print(name, len(data), sorted({o["op_name"] for o in run._get_ops_details()}))
    np.savez_compressed(HERE / "expected.npz", **arrays)


if __name__ == "__main__":
    main()
