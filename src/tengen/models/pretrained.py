"""Folders in Hugging Face's layout, read and written: config.json, safetensors, perhaps in shards, and a tokenizer.

In: a folder, or the name of a repository with the commit that is meant. Out: a network with its weights. Nothing of a folder is executed,
and what lies outside of it is not read.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tengen.base.dtype import DType, bfloat16, float16, float32, float64
from tengen.base.dtype import dtype as as_dtype
from tengen.base.errors import ArgumentError, DownloadError, FileFormatError
from tengen.base.files import read_regular, replacing_set
from tengen.deploy.tensorfile import write_tensors
from tengen.interop import weights
from tengen.interop.weights.store import INDEX, JSON_LIMIT, WEIGHTS, fail, inside, read_json, read_state
from tengen.models.configs import Fields, kind_for, kind_of
from tengen.models.generation import LanguageModel
from tengen.module import Module, init

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer.json"
PATTERNS = [CONFIG, GENERATION, TOKENIZER, "model*.safetensors", INDEX]
FLOATS = (float32, float64, float16, bfloat16)
SHARD = 5_000_000_000  # bytes of a file, as transformers writes them
_OF_WEIGHTS = re.compile(rf"{re.escape(WEIGHTS)}|{re.escape(INDEX)}|model-\d{{5}}-of-\d{{5}}\.safetensors")  # names of what is written


def from_pretrained(source: str | os.PathLike, revision: str | None = None, dtype: Any = "float32") -> Module:
    """A network with its weights from a folder in Hugging Face's layout: GPT-2, Llama, Mistral, Qwen2, Qwen3, Gemma 1 to 3 (texts), SmolLM3,
    OLMo 2 and 3, Phi-1 to Phi-3, BERT, ViT, ResNet.

    Args:
        source: a folder with config.json and model.safetensors (or shards with their index), or a repository "owner/name", which
            huggingface_hub fetches. revision: the commit of a repository that is meant, 40 hexadecimal digits: what a name stands for
            may change, and huggingface_hub names a commit's files by their hashes. dtype: of the network's weights: "float32", "float64",
            "float16", "bfloat16", or "auto", the one in which the file holds most of its numbers.

    Returns: the network, in evaluation. BERT is what config.json names under architectures: BertForMaskedLM, BertForSequenceClassification,
        BertForTokenClassification, BertForQuestionAnswering, or else BertModel, without a head. A language model
        has the folder's end tokens as `eos`, which `generate` stops at.
    Errors: FileFormatError for a folder that is not such a one, for settings that Tengen's network does not have, and for weights that
        do not fit them; DownloadError where a repository cannot be had; ArgumentError for one without a revision.
    Numerics: weights are rounded to `dtype`: float16 and bfloat16 become float32 exactly. In float32 results are transformers' but for
        rounding; in float16 and bfloat16 every operation rounds its results to them, and computes in float32.
    Memory: that of the weights in `dtype`, and 64 MB; weights that the file holds in that dtype and as they lie here are the file's pages.

    >>> import tempfile, tengen
    >>> folder = tempfile.mkdtemp()
    >>> net = tengen.models.gpt(1, 16, 2, 8, 11)
    >>> tengen.models.save_pretrained(net, folder)
    >>> same = tengen.models.from_pretrained(folder)
    >>> (same.tokens.weight.numpy() == net.tokens.weight.numpy()).all()
    np.True_
    """
    folder = _folder(source, revision)
    where = str(folder / CONFIG)
    if not os.path.lexists(where):
        fail(f"{folder}: it has no {CONFIG}, which says what network the weights are of")
    table = read_json(inside(folder, CONFIG))
    kind, state = kind_for(table, where), read_state(folder)
    kept = _dtype_of(state) if isinstance(dtype, str) and dtype == "auto" else as_dtype(dtype)
    if kept not in FLOATS:
        raise ArgumentError(f"from_pretrained: dtype is {kept}; help: 'auto', or one of {', '.join(d.name for d in FLOATS)}")
    options = kind.read(Fields(table, where))
    held = sum(a.size for a in state.values())
    if (least := kind.least(options)) > held:
        fail(f"{where}: it describes a network of at least {least:,} numbers, and the folder's weights are {held:,}")
    try:
        with init.undrawn():
            net = kind.build(**options)
            for t in net.tensors():
                if t.dtype is not kept and t.dtype.is_inexact:
                    t._reset(init.untouched(t.shape, kept))
        weights.fill(net, state, "transformers")
    except FileFormatError:
        raise
    except ValueError as e:  # heads that do not share the width, weights that do not fit
        raise FileFormatError(f"{folder}: {e}") from e
    if isinstance(net, LanguageModel):
        net.eos = _end_tokens(folder, table, net.vocabulary)
    return net.eval()


def save_pretrained(net: Module, folder: str | os.PathLike, tokenizer: Any = None, shard: int = SHARD) -> None:
    """Writes a folder that `from_pretrained` and transformers load: config.json, model.safetensors, or shards with their index.

    Args:
        net: a GPT, Llama (or another decoder that `from_pretrained` gave), BERT (with a head or without), ViT or ResNet. folder: is made where
            it is not there. tokenizer: one of the package tokenizers, which is written beside. shard: bytes of a file at most; a tensor
            that is larger has a file of its own.
    Errors: ValueError for another network. OSError where it cannot be written, with the files that were there as they were.

    The files replace older ones together: where that is cut short, the folder has no config.json, and is no network to anybody.
    """
    name, kind = kind_of(net)
    state = {k: np.ascontiguousarray(a) for k, a in weights.stored(net, "transformers").items()}
    settings = {"model_type": name, "architectures": [kind.architecture], "dtype": _dtype_of(state).name, **kind.write(net)}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(net, LanguageModel) and net.eos:
        settings["eos_token_id"] = net.eos[0] if len(net.eos) == 1 else list(net.eos)
    files = _sharded(state, shard)
    with replacing_set(folder / CONFIG) as written:  # without it no reader takes the weights
        for file, arrays in files.items():
            write_tensors(written.new(folder / file), arrays, {"format": "pt"}, padded=False)
        if len(files) > 1:
            total = {"total_size": sum(a.nbytes for a in state.values())}
            table = {"metadata": total, "weight_map": {k: file for file, arrays in files.items() for k in arrays}}
            _write_json(written.new(folder / INDEX), table)
        if tokenizer is not None:
            written.new(folder / TOKENIZER).write(tokenizer.to_str(pretty=True).encode())
        _write_json(written.new(folder / CONFIG), settings)
        for old in os.listdir(folder):  # other weights, which some would read instead, or too
            if _OF_WEIGHTS.fullmatch(old) and old not in (*files, *([INDEX] if len(files) > 1 else [])):
                written.remove(folder / old)


def load_tokenizer(folder: str | os.PathLike, revision: str | None = None) -> Any:
    """The tokenizer of a folder in Hugging Face's layout, one of the package tokenizers: ``encode(text).ids``, ``decode(ids)``.

    Args: as of `from_pretrained`.
    Errors: ModuleNotFoundError without the package (``pip install tokenizers``); FileFormatError for a tokenizer.json that is none.
    """
    try:
        import tokenizers
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError("tokenizers are read by the package tokenizers; help: pip install 'tengen[hub]'") from e
    path = inside(_folder(folder, revision), TOKENIZER)
    raw = read_regular(path)
    if len(raw) > JSON_LIMIT:
        fail(f"{path}: it has {len(raw)} bytes, at most {JSON_LIMIT} are read")
    try:
        return tokenizers.Tokenizer.from_buffer(raw)
    except Exception as e:  # the package raises nothing more special
        raise FileFormatError(f"{path}: {str(e)[:200]}") from e


def _dtype_of(state: dict[str, np.ndarray]) -> DType:
    """The floating dtype that most of the numbers have."""
    return max(FLOATS, key=lambda d: sum(a.size for a in state.values() if as_dtype(a.dtype) is d))


def _folder(source: str | os.PathLike, revision: str | None) -> Path:
    path = Path(source)
    if path.is_dir():
        return path
    name = os.fspath(source)
    if not isinstance(name, str) or not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) or path.exists():
        fail(f"{name!r} is no folder; help: a folder with {CONFIG} and {WEIGHTS}, or a repository 'owner/name' with its revision")
    if revision is None or not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise ArgumentError(f"{name}: which commit is meant? help: revision='...', the 40 digits that its page shows under History")
    try:
        import huggingface_hub
    except ModuleNotFoundError as e:
        raise DownloadError(
            f"{name}: repositories are fetched by huggingface_hub; help: pip install 'tengen[hub]', or pass a folder"
        ) from e
    try:
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=PATTERNS))
    except Exception as e:  # of the network, of the repository, of the disk: many classes, of several packages
        told = (str(e).strip().splitlines() or [""])[0][:200]
        raise DownloadError(f"{name} at {revision[:12]} could not be had: {type(e).__name__}: {told}; help: pass a folder") from e


def _end_tokens(folder: Path, table: dict[str, Any], vocabulary: int) -> tuple[int, ...]:
    if (folder / GENERATION).exists():
        table = {**table, **read_json(inside(folder, GENERATION))}
    found = table.get("eos_token_id")
    ids = found if isinstance(found, list) else [] if found is None else [found]
    if len(ids) > 1000 or any(type(i) is not int for i in ids):
        fail(f"{folder}: eos_token_id is {str(found)[:60]!r}, which is no token")
    return tuple(i for i in ids if 0 <= i < vocabulary)  # configs of small tests keep the large ones' ids


def _sharded(state: dict[str, np.ndarray], most: int) -> dict[str, dict[str, np.ndarray]]:
    """The tensors of each file, those of large elements first, so that each begins at a multiple of its element."""
    groups: list[dict[str, np.ndarray]] = [{}]
    for name, a in sorted(state.items(), key=lambda row: (-as_dtype(row[1].dtype).size, row[0])):
        if groups[-1] and sum(x.nbytes for x in groups[-1].values()) + a.nbytes > most:
            groups.append({})
        groups[-1][name] = a
    n = len(groups)
    return {WEIGHTS: groups[0]} if n == 1 else {f"model-{i:05}-of-{n:05}.safetensors": g for i, g in enumerate(groups, 1)}


def _write_json(file: BinaryIO, table: dict[str, Any]) -> None:
    file.write((json.dumps(table, indent=2) + "\n").encode())
