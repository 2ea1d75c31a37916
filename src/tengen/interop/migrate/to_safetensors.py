"""Weights, and for MegEngine graphs, of other frameworks as safetensors files.

One file that needs NumPy and the framework, nothing of Tengen: copy it to the old environment and run it there (Python 3.6 or newer).

    python to_safetensors.py megengine weights.pkl weights.safetensors     (also paddle, keras, tensorflow, flax, mxnet, chainer,
    python to_safetensors.py megengine-graph traced.tm net.safetensors      mindspore, oneflow, jittor, torch, npz)
    python to_safetensors.py megengine-dump net.mge net.safetensors

These frameworks read pickles, which can hold programs: run it on files that you trust.
"""

import json
import sys

import numpy as np

CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "void16": "BF16",  # the bits of bfloat16, which NumPy has not by itself
}  # fmt: skip


def write(path, arrays, texts=None):
    """A dict of arrays as a safetensors file."""
    header, at = {"__metadata__": dict(texts or {}, format="np")}, 0
    rows = sorted(arrays.items(), key=lambda row: (-row[1].dtype.itemsize, row[0]))  # each begins at a multiple of its element
    for name, a in rows:
        if a.dtype.name not in CODES:
            raise SystemExit(f"{name}: {a.dtype} cannot be written")
        header[name] = {"dtype": CODES[a.dtype.name], "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "wb") as f:
        f.write(len(raw).to_bytes(8, "little") + raw)
        for _, a in rows:
            f.write(np.ascontiguousarray(a).tobytes())


def flat(x, prefix=""):
    """Nested dicts and lists as one dict of arrays, names joined by dots. What is no array is left out and told."""
    rows = x.items() if hasattr(x, "items") else enumerate(x) if isinstance(x, (list, tuple)) else None
    if rows is not None:
        found = {}
        for name, value in rows:
            found.update(flat(value, f"{prefix}.{name}" if prefix else str(name)))
        return found
    a = x
    for method in ("asnumpy", "numpy"):
        if hasattr(a, method):
            a = getattr(a, method)()
            break
    if not isinstance(a, (np.ndarray, np.generic)) or np.asarray(a).dtype == object:
        print(f"left out: {prefix} ({type(x).__name__})", file=sys.stderr)
        return {}
    return {prefix: np.asarray(a)}


def below(x, *names):
    """The state dict inside of a checkpoint that holds more."""
    for name in names:
        if hasattr(x, "items") and name in x:
            return x[name]
    return x


def megengine(path):
    import megengine

    return flat(below(megengine.load(path), "state_dict", "model"))


def paddle(path):
    import paddle

    return flat({k: v for k, v in paddle.load(path).items() if k != "StructuredToParameterName@@"})


def keras(path):
    import keras

    net = keras.models.load_model(path, compile=False)
    return flat({getattr(w, "path", w.name).replace(":0", "").replace("/", "."): np.asarray(w) for w in net.weights})


def tensorflow(path):
    """The variables of a checkpoint, or of a SavedModel's folder."""
    import os

    import tensorflow as tf

    path = os.path.join(path, "variables", "variables") if os.path.isdir(os.path.join(path, "variables")) else path
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    names = [name for name, _ in tf.train.list_variables(path) if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    return flat({n.replace(end, "").replace("/", "."): tf.train.load_variable(path, n) for n in names})


def flax(path):
    """What `flax.serialization.msgpack_serialize` and `to_bytes` wrote."""
    from flax import serialization

    with open(path, "rb") as f:
        return flat(serialization.msgpack_restore(f.read()))


def mxnet(path):
    """A .params file; arg: and aux: before names are taken away."""
    import mxnet

    return flat({k.split(":", 1)[-1]: v for k, v in mxnet.nd.load(path).items()})


def npz(path):
    """Arrays of numpy.savez. Slashes in names, as Chainer's serializers write them, become dots."""
    with np.load(path, allow_pickle=False) as found:
        return flat({name.strip("/").replace("/", "."): found[name] for name in found.files})


def mindspore(path):
    import mindspore

    return flat(mindspore.load_checkpoint(path))


def oneflow(path):
    import oneflow

    return flat(oneflow.load(path))


def jittor(path):
    import jittor

    return flat(jittor.load(path))


def torch(path):
    import torch

    found = below(torch.load(path, map_location="cpu", weights_only=True), "state_dict", "model")
    tensors = {k: t.detach().contiguous() for k, t in found.items() if hasattr(t, "detach")}
    return flat({k: t.view(torch.int16).numpy().view("V2") if t.dtype == torch.bfloat16 else t for k, t in tensors.items()})


# ---- MegEngine's graphs ----------------------------------------------------------------------------------------------


def megengine_graph(path):
    """A TracedModule that megengine.save wrote: its calls as JSON, its layers' settings, and all tensors."""
    import megengine
    from megengine.traced_module import expr, node

    net = megengine.load(path).flatten()
    arrays, layers, calls = {}, {}, []

    def value(x):
        if isinstance(x, node.Node):
            return {"node": x._id}
        if isinstance(x, (list, tuple)):
            return {"tuple" if isinstance(x, tuple) else "list": [value(v) for v in x]}
        if isinstance(x, slice):
            return {"slice": [value(x.start), value(x.stop), value(x.step)]}
        if isinstance(x, (np.ndarray, np.generic)) or isinstance(x, megengine.Tensor):
            name = f"constant.{len(arrays)}"
            arrays[name] = x.numpy() if isinstance(x, megengine.Tensor) else np.asarray(x)
            return {"tensor": name}
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if x is Ellipsis:
            return {"ellipsis": True}
        return {"unknown": str(x)} if not isinstance(x, (np.dtype, type)) else {"dtype": np.dtype(x).name}

    def layer(m):
        for name, known in layers.items():
            if known[0] is m:
                return name
        name = f"layer{len(layers)}"
        plain = {k: v for k, v in vars(m).items() if not k.startswith("_") and isinstance(v, (bool, int, float, str, tuple, list))}
        plain["bias"] = getattr(m, "bias", None) is not None
        layers[name] = (m, {"class": type(m).__name__, "settings": json.loads(json.dumps(plain, default=str))})
        arrays.update(flat(m.state_dict(), name))
        return name

    for e in net.graph._exprs:
        call = {"out": [n._id for n in e.outputs], "name": str(e)}
        if isinstance(e, expr.GetAttr):
            owner = net
            for part in e.name.split("."):
                owner = owner[int(part)] if part.isdigit() and not hasattr(owner, part) else getattr(owner, part)
            call.update({"layer": layer(owner)} if isinstance(owner, megengine.module.Module) else {"constant": value(owner)})
        elif isinstance(e, expr.Constant):
            owner = e.value
            call.update({"layer": layer(owner)} if isinstance(owner, megengine.module.Module) else {"constant": value(owner)})
        elif isinstance(e, expr.Apply):
            plain = {k: getattr(e.opdef, k) for k in dir(e.opdef) if not k.startswith("_")}
            call.update(operator=type(e.opdef).__name__, args=[value(a) for a in e.inputs], kwargs={})
            call["settings"] = {k: v if isinstance(v, (bool, int, float)) else str(v) for k, v in plain.items() if not callable(v)}
        elif isinstance(e, (expr.CallMethod, expr.CallFunction)):
            call.update(args=[value(a) for a in e.args], kwargs={k: value(v) for k, v in e.kwargs.items()})
            call.update({"method": e.method} if isinstance(e, expr.CallMethod) else {"function": e.func.__name__})
        else:
            call.update(operator=type(e).__name__, args=[], kwargs={})
        calls.append(call)
    inputs, outputs = [n._id for n in net.graph.inputs[1:]], [n._id for n in net.graph.outputs]
    graph = {"inputs": inputs, "outputs": outputs, "layers": {k: v[1] for k, v in layers.items()}, "calls": calls}
    return arrays, {"megengine": json.dumps(graph)}


def megengine_dump(path):
    """A .mge file that trace.dump wrote: its operators with their settings as JSON, and its constants. Small integers, which are shapes
    and indices, stand in the JSON."""
    from megengine.utils.network import Network

    net = Network.load(path)
    arrays, calls, inputs, numbers = {}, [], [], {}
    number = lambda v: numbers.setdefault(v.id, len(numbers))
    for o in net.all_oprs:
        if o.type == "Host2DeviceCopy":
            inputs.append(number(o.outputs[0]))
            continue
        call = {"out": [number(v) for v in o.outputs], "name": str(o.outputs[0].name)}
        if o.type in ("ImmutableTensor", "SharedDeviceTensor"):
            a = np.asarray(o.outputs[0].numpy())
            if a.dtype.kind in "iu" and a.size <= 64:
                call["constant"] = {"ints": a.tolist()}
            else:
                name = f"constant.{len(arrays)}"
                arrays[name], call["constant"] = a, {"tensor": name}
        else:
            known = (bool, int, float, str, list)
            settings = {k: v if isinstance(v, known) else str(v) for k, v in (o.params or {}).items()}
            settings["ndim"] = len(o.outputs[0].shape or ())
            call.update(operator=o.type, args=[{"node": number(v)} for v in o.inputs], kwargs={}, settings=settings)
        calls.append(call)
    graph = {"inputs": inputs, "outputs": [number(v) for v in net.output_vars], "layers": {}, "calls": calls}
    return arrays, {"megengine": json.dumps(graph)}


GRAPHS = {"megengine-graph": megengine_graph, "megengine-dump": megengine_dump}
READERS = {
    "megengine": megengine, "paddle": paddle, "keras": keras, "tensorflow": tensorflow, "flax": flax, "mxnet": mxnet, "chainer": npz,
    "npz": npz, "mindspore": mindspore, "oneflow": oneflow, "jittor": jittor, "torch": torch,
}  # fmt: skip


def main(words):
    if len(words) != 3 or words[0] not in list(READERS) + list(GRAPHS):
        raise SystemExit(__doc__)
    kind, source, target = words
    arrays, texts = GRAPHS[kind](source) if kind in GRAPHS else (READERS[kind](source), None)
    if not arrays:
        raise SystemExit(f"{source} holds no arrays")
    write(target, arrays, texts)
    print(f"{target}: {len(arrays)} tensors, {sum(a.size for a in arrays.values()):,} numbers")


if __name__ == "__main__":
    main(sys.argv[1:])
