"""Mutated model files, loaded and run, in a process of its own so that a crash is seen: python file_fuzz.py FOLDER first last ...

FOLDER holds seed files (`make_seeds`). A case is a number: it chooses a seed, what is changed in it, and the inputs. The change
knows what a file is made of (types, extents, attributes, operands, ops, schedules, bytes); the checksum is made again, and
often the types behind the change are derived again, so that much loads. What loads is run, in native code and now and then in
the interpreter of kernels, which sees every access outside of a buffer.

Before each case its description is written to standard output, after it what came of it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
import resource
import signal
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent))
from recorded import dumped

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, load_graph, trace
from tengen.autodiff import GradManager
from tengen.base.dtype import dtype
from tengen.base.errors import FileFormatError, TengenError
from tengen.deploy.tensorfile import NO_SUM
from tengen.ir.jsonform import from_json, to_json
from tengen.ops.define import REGISTRY, lookup
from tengen.optimizer import SGD

PATIENCE_S = 30  # for one case
MOST_BYTES = 64 << 20  # of all values of a program that is run
MEMORY = 6 << 30  # of the process
EVERY = 8  # so many cases for one that is interpreted too
EDGES = (
    0,
    1,
    -1,
    2,
    3,
    -2,
    7,
    16,
    17,
    64,
    1 << 31,
    1 << 62,
    (1 << 63) - 1,
    -(1 << 63),
    1.0,
    3.0,
    0.5,
    True,
    None,
    "",
    "x",
    "same",
)
EXTENTS = ("0", "1", "2", "3", "17", "N", "N * 2", "N - 3", "N // 2", "N * 1152921504606846976", "N * 2305843009213693952", "M")
HOW = ["input type"] * 2 + ["attribute"] * 3 + ["operand"] * 2 + ["op", "output type", "delete", "twice", "result", "leaf"]


# ---- seeds


def _call(op, tensors, attrs):
    if op.variadic:
        n = len(tensors) - len(op.tensors) + 1
        return op.call(**{op.tensors[0]: tensors[:n]}, **dict(zip(op.tensors[1:], tensors[n:])), **attrs)
    return op.call(**dict(zip(op.tensors, tensors)), **attrs)


def _samples():
    """(op, arrays, attributes) of every op: its own samples, and plain numbers for those without."""
    for name, op in sorted(REGISTRY.items()):
        if "." in name:
            continue
        if op.samples:
            for c in op.samples:
                found = [a for x in c.inputs(np.random.default_rng(3)) for a in (x if isinstance(x, (list, tuple)) else [x])]
                yield op, [None if a is None else np.asarray(a) for a in found], dict(c.attrs)
        elif op.kind == "elementwise":
            bits = op.name.startswith("bitwise") or op.name.endswith("shift")
            yield op, [np.arange(7, dtype="int32") if bits else np.linspace(0.1, 0.9, 7)] * len(op.tensors), {}


def _narrow(a):
    return a if a is None or a.dtype != np.float64 else a.astype("float32")


def _of_samples(group):
    """A function that calls these ops, and its arguments."""
    arrays = [_narrow(a) for _, ins, _ in group for a in ins if a is not None]

    def calls(*xs):
        left, out = list(xs), []
        for op, ins, attrs in group:
            made = _call(op, [None if a is None else left.pop(0) for a in ins], attrs)
            out += made if isinstance(made, (tuple, list)) else [made]
        return tuple(out)

    return calls, [Tensor(a, dtype=dtype(a.dtype)) for a in arrays]


def _gradients(f, *xs):
    """The results of a function and its gradients, so that ops which only gradients use stand in the file."""
    gm = GradManager()
    with gm:
        gm.attach(list(xs))
        y = f(*xs)
        gm.backward(F.sum(y * y))
    return (y, *(x.grad for x in xs))


def _floats(*shape):
    return Tensor(np.random.default_rng(1).standard_normal(shape).astype("float32"))


class _Small(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.deep = (
            M.Conv2d(2, 16, 3, padding=1),
            M.BatchNorm2d(16),
            M.Conv2d(16, 16, 3, padding=1, groups=16),
        )
        self.out = M.Linear(16, 3)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)))
        return self.out(F.dropout(F.max_pool2d(self.deep(x), 2).mean((2, 3)), 0.3, self.training))


class _Words(M.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.attention = M.Embedding(11, 8), M.LSTM(8, 8), M.MultiHeadAttention(8, 2)

    def forward(self, x):
        return self.lstm(self.attention(self.embed(x), is_causal=True))[0]


def _networks():
    """(name, traced function, arguments): loops of a program and of a graph, branches, states, checks, gradients, open extents."""
    batch = {0: "batch"}
    small, words = _Small(), _Words()
    net = M.Linear(5, 3)
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    tokens = Tensor(np.arange(12, dtype="int32").reshape(3, 4) % 11)
    images = Tensor(np.ones((6, 8, 96, 96), "float32"))  # more than stays in cache lies between its convolutions
    convs = M.Sequential(M.Conv2d(8, 32, 3, padding=1), M.ReLU(), M.Conv2d(32, 32, 3, padding=1), M.ReLU(), M.Conv2d(32, 8, 1))
    plain = lambda f: trace(f)
    opened = lambda f: trace(f, dynamic_axes=batch)
    yield "step", plain(step), (_floats(4, 5), Tensor(np.array([0, 1, 2, 1], "int32")))
    yield "conv_open", opened(small.eval()), (_floats(2, 2, 8, 8),)
    yield "words_open", opened(words.eval()), (tokens,)
    yield "words", plain(words.eval()), (tokens,)
    yield "images", plain(convs.eval()), (images,)
    yield "lstm_grad", plain(lambda x: _gradients(lambda x: M.LSTM(4, 8)(x)[0], x)), (_floats(3, 2, 4),)
    attention = lambda q, k, v: F.scaled_dot_product_attention(q, k, v)
    yield "attention_grad", plain(lambda q, k, v: _gradients(attention, q, k, v)), tuple(_floats(2, 5, 8) for _ in range(3))
    yield "conv_grad", plain(lambda x: _gradients(lambda x: F.max_pool2d(M.Conv2d(2, 4, 3)(x), 2), x)), (_floats(2, 2, 8, 8),)
    halved = lambda s, x: F.cond(s.sum() > x.sum(), lambda s: s * 0.5, lambda s: s + x, s)
    yield "loops", plain(lambda x: F.scan(lambda s, x: (halved(s, x), s @ s.T), x[0], x)), (_floats(3, 2, 4),)
    sums = lambda x: (x.sum(0), F.full((x.shape[0] * 2,), 1.0), F.concat([x, x]), x[:, :2], F.softmax(x, 1))
    yield "sums_open", opened(sums), (_floats(3, 4),)
    index = lambda x, i: (x[i], F.gather(x, 0, F.reshape(i, (-1, 1))))
    yield "index", plain(index), (_floats(5, 4), Tensor(np.array([0, 4, 2], "int32")))


def make_seeds(folder: Path, of_each: int = 5) -> list[str]:
    """Writes the seed files; returns the ops that stand in none, although they have samples."""
    folder.mkdir(exist_ok=True)
    samples, missing = list(_samples()), []
    groups = [samples[i : i + of_each] for i in range(0, len(samples), of_each)]
    for number, group in enumerate(groups):
        for i, part in enumerate([group, *([one] for one in group)]):
            f, xs = _of_samples(part)
            try:
                dumped(f, xs, folder / f"samples{number:03}_{i}.tgn")
            except Exception as e:
                if len(part) == 1:
                    missing.append(f"{part[0][0].name}: {type(e).__name__}: {str(e)[:100]}")
                continue
            if len(part) > 1:
                break
    for name, t, xs in _networks():
        t(*xs)
        t.dump(folder / f"net_{name}.tgn")
    model = load_graph(folder / "net_conv_open.tgn").at(batch=2)
    (folder / "schedules.json").write_text(json.dumps(_schedules(model)))
    model.schedules = {}
    tengen.deploy.dump_model(model, folder / "net_tuned.tgn")
    return missing


def _schedules(model) -> dict[str, str]:
    """What the rules say for each problem of a model, by key."""
    from tengen.codegen.targets import Target
    from tengen.compiler.schedules import tuned_schedules
    from tengen.passes.lower import lower
    from tengen.passes.pipeline import optimize

    table = tuned_schedules()
    lo, _ = lower(optimize(model.graph), Target.host(), schedules=table)
    return {table.key(c.problem_key): str(c.rule) for c in lo.choices.values()}


# ---- changes


def parts(data: bytes):
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    return header, json.loads(header["__metadata__"]["graph"]), data[8 + n :]


def sealed(header: dict, graph: str, rest: bytes, schedules: dict | None = None) -> bytes:
    meta = {**header["__metadata__"], "checksum": NO_SUM, "graph": graph}
    meta |= {"schedules": json.dumps(schedules)} if schedules else {}
    raw = json.dumps({**header, "__metadata__": meta}).encode("utf-8", "replace")
    data = len(raw).to_bytes(8, "little") + raw + rest
    return data.replace(NO_SUM.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def _leaves(x, path=()):
    inner = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    if not isinstance(x, (dict, list)):
        yield path
    for k, v in inner:
        yield from _leaves(v, (*path, k))


def _put(x, path, value):
    for k in path[:-1]:
        x = x[k]
    x[path[-1]] = value


def _at(x, path):
    for k in path:
        x = x[k]
    return x


def _other_type(r, text: str, types: list[str]) -> str:
    """Another type of the file, or the same with another extent, axis, or dtype."""
    head, _, dims = text[:-1].partition("[")
    extents = dims.split(",") if dims else []
    how = r.random()
    if how < 0.3:
        return r.choice(types)
    if how < 0.45:
        return f"{r.choice(['f32', 'f64', 'i32', 'i64', 'bool', 'u8', 'f16', 'bf16'])}[{dims}]"
    if how < 0.6:
        extents.insert(r.randint(0, len(extents)), r.choice(EXTENTS))
    elif extents and how < 0.7:
        extents.pop(r.randrange(len(extents)))
    elif extents:
        extents[r.randrange(len(extents))] = r.choice(EXTENTS + tuple(str(n) for n in range(1, 10)))
    return f"{head}[{','.join(extents)}]"


def change(r: random.Random, g: dict) -> str:
    """Changes a graph's JSON in one place; says what."""
    nodes, types = g["nodes"], [t for _, t in g["inputs"]] + [o[1] for n in g["nodes"] for o in n["outputs"]]
    n_values = len(g["inputs"]) + len(g["constants"]) + len(g["states"]) + sum(len(n["outputs"]) for n in nodes)
    node = r.choice(nodes) if nodes else None
    how = r.choice(HOW)
    if how == "input type" and g["inputs"]:
        row = r.choice(g["inputs"])
        row[1] = _other_type(r, row[1], types)
        return f"input {row}"
    if node is None:
        return "nothing"
    if how == "attribute" and (paths := list(_leaves(node["attrs"]))):
        path = r.choice(paths)
        old = _at(node["attrs"], path)
        new = r.choice([*EDGES, old + 1 if type(old) is int else 1, -old if type(old) in (int, float) else 0])
        if path:
            _put(node["attrs"], path, {"dim": r.choice(EXTENTS)} if r.random() < 0.1 else new)
        return f"{node['op']}: {'.'.join(map(str, path))} {old!r} -> {new!r}"
    if how == "operand" and node["inputs"]:
        i = r.randrange(len(node["inputs"]))
        node["inputs"][i] = r.choice([None, r.randrange(n_values), r.randrange(n_values), r.choice(node["inputs"])])
        return f"{node['op']}: operand {i} = {node['inputs'][i]}"
    if how == "op":
        old, node["op"] = node["op"], r.choice([m["op"] for m in nodes] + sorted(REGISTRY))
        return f"{old} -> {node['op']}"
    if how == "output type" and node["outputs"]:
        row = r.choice(node["outputs"])
        row[1] = _other_type(r, row[1], types)
        return f"{node['op']}: gives {row[1]}"
    if how == "delete":
        nodes.remove(node)
        return f"without {node['op']}"
    if how == "twice":
        nodes.append(json.loads(json.dumps(node)))
        g["outputs"].append([f"again{len(nodes)}", n_values])
        return f"{node['op']} twice"
    if how == "result" and g["outputs"]:
        r.choice(g["outputs"])[1] = r.randrange(n_values)
        return "another result"
    path = r.choice(list(_leaves(g)))
    _put(g, path, r.choice(EDGES))
    return f"{path} = {_at(g, path)!r}"


def alone(r: random.Random, g: dict) -> dict:
    """A graph of one node of another, whose operands are inputs: each may have any type by itself."""
    types = [row[1] for row in g["inputs"] + g["constants"] + g["states"]]
    for n in g["nodes"]:
        types += [row[1] for row in n["outputs"]]
    n = r.choice(g["nodes"])
    inputs = [[f"x{i}", types[v]] for i, v in enumerate(n["inputs"]) if v is not None]
    at = iter(range(len(inputs)))
    node = {**n, "inputs": [None if v is None else next(at) for v in n["inputs"]]}
    outputs = [[f"y{i}", len(inputs) + i] for i in range(len(n["outputs"]))]
    return {**g, "inputs": inputs, "constants": [], "states": [], "nodes": [node], "outputs": outputs, "checks": []}


def repaired(text: str) -> str:
    """The graph with attributes in canonical form and types as the rules derive them, as far as they do."""
    g = from_json(text)
    for n in g.nodes:
        types = [None if v is None else v.type for v in n.inputs]
        op = lookup(n.op)
        n.attrs = op.canonical(types, tuple(n.attrs.values()))
        for v, t in zip(n.outputs, op.infer_types(types, n.attrs)):
            v.type = t
    for s in g.states.values():
        if s.written is not None and s.written.type is not s.read.type:
            s.written = None
    return to_json(g)


def mutated(r: random.Random, data: bytes, schedules: dict[str, str]) -> tuple[bytes, str]:
    """A file that is like a good one, and what is different."""
    header, graph, rest = parts(data)
    if graph["graph"]["nodes"] and r.random() < 0.5:
        graph["graph"], rest = alone(r, graph["graph"]), b""
        header = {"__metadata__": header["__metadata__"]}
        schedules = {}
    told = []
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        try:
            told.append(change(r, graph["graph"]))
        except (TypeError, ValueError, LookupError):  # an earlier change has left no graph to change
            break
    text = json.dumps(graph)
    if r.random() < 0.75:
        try:
            text = repaired(text)
            told.append("types derived again")
        except Exception:  # rules are there to refuse
            pass
    if r.random() < 0.1:
        at = r.randrange(len(text))
        text = text[:at] + r.choice('0123456789-,[]{}"Nfei ') + text[at + r.choice([0, 1]) :]
        told.append(f"character {at}")
    changed = {}
    for key, s in schedules.items():
        name, _, numbers = s[:-1].partition("(")
        fields = [p.split("=") for p in numbers.split(", ")]
        r.choice(fields)[1] = str(r.choice([0, 1, 2, 3, 5, 6, 8, 16, 17, 64, 4096, 999999999]))
        changed[key] = f"{name}({', '.join('='.join(p) for p in fields)})"
    return sealed(header, text, rest, changed), "; ".join(told)


# ---- running


def _inputs(r: random.Random, model) -> list[np.ndarray]:
    rng, n = np.random.default_rng(r.randrange(1 << 30)), {}
    found = []
    for p in model.inputs:
        shape = tuple(d if isinstance(d, int) else n.setdefault(str(d), r.choice([0, 1, 2, 3, 4, 8])) for d in p.shape)
        a = rng.standard_normal(shape) * 3 if p.dtype.is_float else rng.integers(*r.choice([(0, 2), (0, 4), (-3, 9)]), shape)
        with np.errstate(all="ignore"):
            found.append(np.asarray(a).astype(p.dtype.numpy))
    return found


def _small(model, inputs) -> bool:
    """Whether what it declares fits the memory that a case may take. SizeError, ShapeError as the program says."""
    numbers = {str(d): k for p, a in zip(model.inputs, inputs) for d, k in zip(p.shape, a.shape) if not isinstance(d, int)}
    graph = model.at(**{e: numbers[e] for e in model.extents}).graph if model.extents else model.graph
    return sum(math.prod(v.type.shape) * v.type.dtype.size for g in graph.graphs() for v in g.values()) < MOST_BYTES


def run(r: random.Random, data: bytes) -> str:
    """What becomes of a file: a line that begins with BAD for what must not happen."""
    try:
        model = load_graph(io.BytesIO(data))
    except FileFormatError as e:
        return f"refused: {str(e)[:150]!r}"
    except Exception as e:
        return f"BAD loading: {type(e).__name__}: {str(e)[:300]!r}"
    try:
        inputs = _inputs(r, model)
        if not _small(model, inputs):
            return "not run: too large"
        for _ in range(2):
            made = model(*inputs)
        for t in made if isinstance(made, tuple) else (made,):
            float(np.sum(t.numpy().astype("float64")))
    except (TengenError, MemoryError) as e:
        return f"error: {type(e).__name__}: {str(e)[:150]!r}"
    except Exception as e:
        return f"BAD running: {type(e).__name__}: {str(e)[:300]!r}"
    if model.extents or model.graph.states or r.randrange(EVERY) or _cost(model) > 20_000:
        return "a result"
    return _interpreted(model, inputs)


def _cost(model) -> int:
    return sum(math.prod(v.type.shape) for v in model.graph.values())


def _interpreted(model, inputs) -> str:
    from ways import Lowered

    try:
        Lowered(model.graph, inputs).interpret()
    except Exception as e:
        return f"BAD interpreted: {type(e).__name__}: {str(e)[:300]!r}"
    return "a result, interpreted too"


def main(folder: Path, first: int, last: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE_S * 60, PATIENCE_S * 60))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process
    tengen.set_threads(2)
    files = sorted(folder.glob("*.tgn"))
    schedules = json.loads((folder / "schedules.json").read_text())
    np.seterr(all="ignore")
    for case in range(first, last):
        r = random.Random(case)
        file = r.choice(files)
        data, told = mutated(r, file.read_bytes(), schedules if file.stem == "net_tuned" else {})
        print(f"{case} {file.stem}: {told}", flush=True)
        signal.alarm(PATIENCE_S)
        print(f"  {run(r, data)}", flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parent.parent / d) for d in ("numerics", "kernels", "codegen")]
    folder = Path(sys.argv[1])
    if sys.argv[2:] == ["seeds"]:
        print(*make_seeds(folder), sep="\n")
    else:
        main(folder, int(sys.argv[2]), int(sys.argv[3]))
