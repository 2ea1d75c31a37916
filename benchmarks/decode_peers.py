"""Text by other libraries from networks whose weights alone are integers in groups of 32: llama.cpp and OpenVINO.

In: the size of a network, and bits of a weight. Out: objects with `generate(ids, new)`, greedy. Weights are random and their own: only time
can be compared. llama.cpp reads a GGUF file (Q8_0 or Q4_0: a float16 scale for each group), which is written here. OpenVINO gets a graph of
the kind that NNCF and optimum-intel make: constants of i8 or i4 are converted, multiplied by float16 scales and reshaped in front of each
product; keys and values are states. Both round activations to 8 bits in products, as `activations="int8"` does.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import compare
import numpy as np

GROUP = 32  # features that share a scale
EPS = 1e-5
LOW = -1e9  # a score that no key is seen with


@dataclass(frozen=True)
class Size:
    """A network: GPT-2's kind (layer norms, learned positions, gelu) or, if `gated`, Llama's (RMS norms, rotary positions, SwiGLU).

    Attributes:
        groups: heads of keys and values. hidden: features between the perceptron's layers. words: tokens. context: places, at most.
    """

    layers: int
    width: int
    heads: int
    groups: int
    hidden: int
    words: int
    context: int
    gated: bool

    @property
    def features(self) -> int:
        """Of a head."""
        return self.width // self.heads

    @property
    def shared(self) -> int:
        """Features of all keys, or all values."""
        return self.groups * self.features


# ---- llama.cpp


def _gguf_matrices(size: Size) -> dict[str, tuple[int, int]]:
    """(outputs, inputs) of each matrix of integers, by GGUF's names."""
    w, h, kv = size.width, size.hidden, size.shared
    if size.gated:
        block = {"attn_q": (w, w), "attn_k": (kv, w), "attn_v": (kv, w), "ffn_gate": (h, w)}
    else:
        block = {"attn_qkv": (w + 2 * kv, w)}
    block |= {"attn_output": (w, w), "ffn_up": (h, w), "ffn_down": (w, h)}
    found = {f"blk.{i}.{name}": shape for i in range(size.layers) for name, shape in block.items()}
    return {"token_embd": (size.words, w), "output": (size.words, w)} | found


def write_gguf(size: Size, bits: int, file: str) -> None:
    """A GGUF file of random weights, without a tokeniser."""
    import gguf

    kind = gguf.GGMLQuantizationType.Q8_0 if bits == 8 else gguf.GGMLQuantizationType.Q4_0
    r, out = np.random.default_rng(0), gguf.GGUFWriter(file, "llama" if size.gated else "gpt2")
    for add, value in (
        (out.add_block_count, size.layers), (out.add_context_length, size.context), (out.add_embedding_length, size.width),
        (out.add_feed_forward_length, size.hidden), (out.add_head_count, size.heads), (out.add_head_count_kv, size.groups),
        (out.add_vocab_size, size.words), (out.add_tokenizer_model, "none"),
        (out.add_layer_norm_rms_eps if size.gated else out.add_layer_norm_eps, EPS),
    ):  # fmt: skip
        add(value)
    if size.gated:
        out.add_rope_dimension_count(size.features)
    for name, (rows, columns) in _gguf_matrices(size).items():
        blocks = r.integers(0, 256, (rows, columns // GROUP, 2 + 4 * bits), dtype=np.uint8)
        blocks[:, :, :2] = np.array([0.01 / (1 << bits - 4)], np.float16).view(np.uint8)  # the scale; integers follow
        out.add_tensor(f"{name}.weight", blocks.reshape(rows, -1), raw_dtype=kind)
        if not size.gated and name.startswith("blk"):
            out.add_tensor(f"{name}.bias", np.zeros(rows, np.float32))
    norms = ["output_norm", *(f"blk.{i}.{n}_norm" for i in range(size.layers) for n in ("attn", "ffn"))]
    for name in norms:
        out.add_tensor(f"{name}.weight", np.ones(size.width, np.float32))
        if not size.gated:
            out.add_tensor(f"{name}.bias", np.zeros(size.width, np.float32))
    if not size.gated:
        out.add_tensor("position_embd.weight", r.standard_normal((size.context, size.width)).astype(np.float32))
    for step in (out.write_header_to_file, out.write_kv_data_to_file, out.write_tensors_to_file, out.close):
        step()


class LlamaCpp:
    """llama.cpp by llama-cpp-python."""

    def __init__(self, size: Size, bits: int):
        import llama_cpp

        self.library, self.words = llama_cpp, size.words
        with tempfile.TemporaryDirectory() as folder:
            write_gguf(size, bits, file := str(Path(folder) / "net.gguf"))
            threads = {"n_threads": compare.THREADS, "n_threads_batch": compare.THREADS}
            self.net = llama_cpp.Llama(file, n_ctx=size.context, n_batch=512, use_mmap=False, verbose=False, **threads)

    def generate(self, ids: np.ndarray, new: int) -> np.ndarray:
        """The ids (1, T) with `new` more."""
        self.net.reset()
        found, some = ids[0].tolist(), ids[0].tolist()
        for _ in range(new):
            self.net.eval(some)
            logits = np.ctypeslib.as_array(self.library.llama_get_logits_ith(self.net.ctx, -1), (self.words,))
            some = [int(logits.argmax())]
            found += some
        return np.array([found])


# ---- OpenVINO


class _Graph:
    """Writes OpenVINO's graph. `x` below are nodes of float32, (1, T, features)."""

    def __init__(self, size: Size, bits: int):
        import openvino as ov
        from openvino import opset13 as op

        self.ov, self.op, self.size, self.bits, self.random = ov, op, size, bits, np.random.default_rng(0)
        self.states: list = []
        given = {"ids": ([1, -1], np.int64), "places": ([-1], np.int64), "mask": ([-1, -1], np.float32), "beam": ([1], np.int32)}
        self.inputs = {name: op.parameter(shape, dtype, name=name) for name, (shape, dtype) in given.items()}

    def matrix(self, rows: int, columns: int):
        """Random integers and their scales, as a matrix of float32 that the plug-in does not make."""
        op, t = self.op, self.ov.Type
        shape = (rows, columns // GROUP, GROUP)
        packed = self.random.integers(0, 256, rows * columns * self.bits // 8, dtype=np.uint8)
        kind = t.i8 if self.bits == 8 else t.i4
        held = self.ov.Tensor(packed.view(np.int8) if self.bits == 8 else packed, self.ov.Shape(shape), kind)
        codes = op.constant(held, shared_memory=False)  # else it would read memory that NumPy has freed
        scale = op.constant(np.full((*shape[:2], 1), 0.01 / (1 << self.bits - 4), np.float16))
        values = op.multiply(op.convert(codes, "f16"), scale)
        return op.convert(op.reshape(values, [rows, columns], False), "f32")

    def linear(self, x, columns: int, rows: int):
        """A product, and a bias in GPT-2's kind."""
        y = self.op.matmul(x, self.matrix(rows, columns), False, True)
        return y if self.size.gated else self.op.add(y, np.zeros(rows, np.float32))

    def norm(self, x):
        """An RMS norm, or a layer norm."""
        op, ones = self.op, np.ones(self.size.width, np.float32)
        if not self.size.gated:
            return op.add(op.multiply(op.mvn(x, [-1], True, EPS, "INSIDE_SQRT"), ones), 0 * ones)
        mean = op.reduce_mean(op.power(x, np.float32(2)), [-1], True)
        return op.multiply(op.divide(x, op.sqrt(op.add(mean, np.float32(EPS)))), ones)

    def heads(self, x, count: int):
        """(1, T, features of all) -> (1, heads, T, features)."""
        return self.op.transpose(self.op.reshape(x, [0, 0, count, self.size.features], True), [0, 2, 1, 3])

    def turned(self, x):
        """With positions by rotation."""
        op, half = self.op, self.size.features // 2
        angles = np.arange(self.size.context)[:, None] * 10000.0 ** -(np.arange(half) / half)
        cos, sin = (op.gather(np.concatenate([f(angles)] * 2, 1).astype(np.float32), self.inputs["places"], 0) for f in (np.cos, np.sin))
        first, second = (op.slice(x, [at], [at + half], [1], [3]) for at in (0, half))
        return op.add(op.multiply(x, cos), op.multiply(op.concat([op.negative(second), first], 3), sin))

    def held(self, new, name: str):
        """What a state holds and, behind it, what is new, which the state holds then."""
        op, s = self.op, self.size
        empty = op.constant(np.zeros((1, s.groups, 0, s.features), np.float32))
        before = op.read_value(empty, name, self.ov.Type.f32, self.ov.PartialShape([1, s.groups, -1, s.features]))
        whole = op.concat([op.gather(before, self.inputs["beam"], 0), new], 2)
        self.states.append(op.assign(whole, name))
        if s.groups == s.heads:
            return whole
        wide = op.broadcast(op.unsqueeze(whole, [2]), [1, 1, s.heads // s.groups, 1, 1], broadcast_spec="BIDIRECTIONAL")
        return op.reshape(wide, [0, s.heads, -1, s.features], True)

    def block(self, x, i: int):
        """Attention and a perceptron."""
        op, s = self.op, self.size
        y = self.norm(x)
        q, k, v = (self.linear(y, s.width, n) for n in (s.width, s.shared, s.shared))
        q, k, v = self.heads(q, s.heads), self.heads(k, s.groups), self.heads(v, s.groups)
        if s.gated:
            q, k = self.turned(q), self.turned(k)
        k, v = self.held(k, f"k{i}"), self.held(v, f"v{i}")
        y = op.scaled_dot_product_attention(q, k, v, op.unsqueeze(self.inputs["mask"], [0, 1]))
        y = op.reshape(op.transpose(y, [0, 2, 1, 3]), [0, 0, s.width], True)
        x = op.add(x, self.linear(y, s.width, s.width))
        y = self.norm(x)
        up = self.linear(y, s.width, s.hidden)
        up = op.multiply(op.swish(self.linear(y, s.width, s.hidden)), up) if s.gated else op.gelu(up, "ERF")
        return op.add(x, self.linear(up, s.hidden, s.width))

    def model(self):
        """The network, from ids to the logits of the last place."""
        op, s = self.op, self.size
        table = op.constant(self.random.integers(-127, 128, (s.words, s.width), dtype=np.int8))
        x = op.multiply(op.convert(op.gather(table, self.inputs["ids"], 0), "f32"), np.float32(0.01))
        if not s.gated:
            places = self.random.standard_normal((s.context, s.width)).astype(np.float32)
            x = op.add(x, op.gather(places, self.inputs["places"], 0))
        for i in range(s.layers):
            x = self.block(x, i)
        last = op.slice(self.norm(x), [-1], [np.iinfo(np.int64).max], [1], [1])
        logits = op.matmul(last, self.matrix(s.words, s.width), False, True)
        return self.ov.Model([op.result(logits)], self.states, list(self.inputs.values()), "decoder")


class OpenVINO:
    """OpenVINO's CPU plug-in."""

    def __init__(self, size: Size, bits: int):
        import openvino as ov

        if compare.ISA:
            raise RuntimeError("its products take AVX-512, whatever oneDNN is told")
        settings = {
            "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": compare.THREADS, "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_HYPER_THREADING": True, "DYNAMIC_QUANTIZATION_GROUP_SIZE": GROUP,
        }  # fmt: skip
        self.request = ov.Core().compile_model(_Graph(size, bits).model(), "CPU", settings).create_infer_request()

    def generate(self, ids: np.ndarray, new: int) -> np.ndarray:
        """The ids (1, T) with `new` more."""
        self.request.reset_state()
        found, some = ids.astype(np.int64), ids.astype(np.int64)
        for _ in range(new):
            stop = found.shape[1]
            places = np.arange(stop - some.shape[1], stop)
            mask = np.where(np.arange(stop) <= places[:, None], np.float32(0), np.float32(LOW))
            logits = self.request.infer([some, places, mask, np.zeros(1, np.int32)], share_inputs=True, share_outputs=True)[0]
            some = np.array([[int(logits.argmax())]])
            found = np.concatenate([found, some], 1)
        return found


DECODERS = {"llama.cpp": ("llama_cpp", LlamaCpp), "OpenVINO": ("openvino", OpenVINO)}  # contender -> module, class
