"""A JavaScript module of an artifact for WebAssembly, with its types.

In: an `Interface`. Out: the text of an ES module that loads ``NAME.wasm`` and ``NAME.bin`` from beside itself, in browsers, node, Deno
and workers, and of its types for TypeScript. The module's memory holds the weights, the scratch memory and the arrays; a run copies
typed arrays in and out.
"""

from __future__ import annotations

import json

from tengen.deploy.ctext import Interface
from tengen.deploy.model import Port

# dtype -> the typed array that holds it; float16 and bfloat16 are their bits
ARRAYS = {
    "float64": "Float64Array", "float32": "Float32Array", "float16": "Uint16Array", "bfloat16": "Uint16Array", "int64": "BigInt64Array",
    "int32": "Int32Array", "int16": "Int16Array", "int8": "Int8Array", "uint64": "BigUint64Array", "uint32": "Uint32Array",
    "uint16": "Uint16Array", "uint8": "Uint8Array", "bool": "Uint8Array", "complex64": "Float32Array", "complex128": "Float64Array",
}  # fmt: skip


def exported(f: Interface) -> list[str]:
    """The names that the module's WebAssembly gives out."""
    return [f"{f.prefix}_run", f.linked(), *([f"{f.prefix}_check"] if f.weights_bytes else []), "__heap_base"]


def _rows(f: Interface) -> list[dict]:
    """What the module must know of each argument, in the order of the C function."""
    rows = []
    ports: dict[str, tuple[Port, ...]] = {"in": f.inputs, "out": f.outputs}
    for a in f.arguments():
        row: dict = {"kind": a.key[0], "name": a.name, "bytes": a.bytes}
        if a.key[0] in ports:
            p = ports[a.key[0]][a.key[1]]
            row |= {"array": ARRAYS[p.dtype.name], "shape": list(p.shape), "dtype": p.dtype.name}
        rows.append(row)
    return rows


def module_text(f: Interface) -> str:
    """The ES module."""
    checks = json.dumps(["", "a pointer is null", "a pointer is not aligned", *f.checks])
    rows = "\n".join(f"  {json.dumps(row)}," for row in _rows(f))
    names = {kind: [a.name for a in f.arguments() if a.key[0] == kind] for kind in ("in", "out")}
    check = f"""  if (exports.{f.prefix}_check(places[0], {f.weights_bytes}))
    throw new Error('{f.prefix}.bin does not belong to {f.prefix}.wasm');
""" if f.weights_bytes else ""  # fmt: skip
    return f"""// {f.prefix}: a neural network, compiled by Tengen for {f.target}.
//   import {{ load }} from './{f.prefix}.mjs';
//   const model = await load();
//   const {{ {", ".join(names["out"])} }} = model.run({{ {", ".join(names["in"])} }});
// Inputs are typed arrays of the right type and length, in row-major order. load(files) takes {{ wasm, weights }} as bytes instead.

export const ARGUMENTS = [
{rows}
];
const CODES = {checks};
const ALIGN = 64;

async function bytesOf(name) {{
  const url = new URL(name, import.meta.url);
  if (url.protocol === 'file:') {{
    const fs = await import('node:fs/promises');
    return fs.readFile(url);
  }}
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${{url}}: ${{answer.status}} ${{answer.statusText}}`);
  return answer.arrayBuffer();
}}

export async function load(files = {{}}) {{
  const {{ instance }} = await WebAssembly.instantiate(files.wasm ?? (await bytesOf('{f.prefix}.wasm')), {{}});
  const {{ exports }} = instance;
  const run = exports.{f.linked()};
  if (!run) throw new Error('{f.prefix}.wasm does not belong to {f.prefix}.mjs: another compilation made it');
  const memory = exports.memory;
  let end = exports.__heap_base.value;
  const places = ARGUMENTS.map((a) => {{
    const at = Math.ceil(end / ALIGN) * ALIGN;
    end = at + Math.max(a.bytes, 1);
    return at;
  }});
  const missing = end - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / 65536));
  const weights = ARGUMENTS.findIndex((a) => a.kind === 'weights');
  if (weights >= 0) {{
    const blob = new Uint8Array(files.weights ?? (await bytesOf('{f.prefix}.bin')));
    if (blob.length !== ARGUMENTS[weights].bytes) throw new Error(`{f.prefix}.bin has ${{blob.length}} bytes`);
    new Uint8Array(memory.buffer).set(blob, places[weights]);
  }}
{check}
  const view = (i) => {{
    const a = ARGUMENTS[i];
    const type = globalThis[a.array];
    return new type(memory.buffer, places[i], a.bytes / type.BYTES_PER_ELEMENT);
  }};
  return {{
    run(inputs = {{}}) {{
      ARGUMENTS.forEach((a, i) => {{
        if (a.kind !== 'in') return;
        const given = inputs[a.name];
        if (!(given instanceof globalThis[a.array]) || given.byteLength !== a.bytes)
          throw new TypeError(`${{a.name}}: a ${{a.array}} of ${{a.bytes}} bytes is needed, for ${{a.dtype}}[${{a.shape}}]`);
        view(i).set(given);
      }});
      const code = run(...places);
      if (code) throw new RangeError(CODES[code] ?? `code ${{code}}`);
      const found = {{}};
      ARGUMENTS.forEach((a, i) => {{
        if (a.kind === 'out') found[a.name] = view(i).slice();
      }});
      return found;
    }},
  }};
}}
"""


def types_text(f: Interface) -> str:
    """The module's types."""
    rows = _rows(f)
    fields = lambda kind: "\n".join(
        f"  /** {r['dtype']}[{', '.join(map(str, r['shape']))}] */\n  {r['name']}: {r['array']};" for r in rows if r["kind"] == kind
    )
    return f"""// Types of {f.prefix}.mjs, a neural network that Tengen compiled for {f.target}.
export interface Inputs {{
{fields("in")}
}}

export interface Outputs {{
{fields("out")}
}}

export interface Model {{
  /** Runs the network once. Throws a TypeError for inputs of another type or length, a RangeError where a check fails. */
  run(inputs: Inputs): Outputs;
}}

export interface Files {{
  wasm?: BufferSource;
  weights?: ArrayBuffer | ArrayLike<number>;
}}

/** Loads the network from beside the module, or from bytes. */
export function load(files?: Files): Promise<Model>;

export const ARGUMENTS: readonly {{ kind: string; name: string; bytes: number; array?: string; shape?: number[]; dtype?: string }}[];
"""
