"""Changes folders of Hugging Face by chance, guided by the branches that the readers take (atheris), and looks whether every one gives a
network or one FileFormatError. An input is config.json, the index, and the header of one shard with some of its data, joined by a line.

    python benchmarks/fuzz/weights.py [-runs=100000] [-max_total_time=300] [libFuzzer's other options]

Prints what became of the folders after every 5,000, and at the end how many were tried.
"""

import json
import sys
import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.pop(0)  # the folder of this file, whose names are those of packages
import atheris

from tengen.base.errors import FileFormatError
from tengen.deploy import tensorfile
from tengen.interop import onnx, torch  # noqa: F401  (what is imported before is not instrumented, which takes minutes)

with atheris.instrument_imports(include=["tengen.interop.weights", "tengen.models"]):
    from tengen.interop.weights.store import INDEX, WEIGHTS
    from tengen.models import BERT, GPT, BasicBlock, BERTTagger, Llama, ResNet, ViT
    from tengen.models.pretrained import CONFIG, from_pretrained, save_pretrained

LINE, SHARD = b"\n----\n", "model-00001-of-00001.safetensors"
TINY = {"vocabulary": 5, "context": 4}
NETWORKS = {
    "gpt": lambda: GPT(layers=1, width=4, heads=2, tied=True, activation="gelu_tanh", **TINY),
    "llama": lambda: Llama(layers=1, width=4, heads=2, hidden=3, groups=1, **TINY),
    "bert": lambda: BERT(width=4, heads=2, depth=1, hidden=3, **TINY),
    "tagger": lambda: BERTTagger(3, width=4, heads=2, depth=1, hidden=3, **TINY),
    "vit": lambda: ViT(2, 4, 2, 4, 2, 1, hidden=3), "resnet": lambda: ResNet(BasicBlock, [1], 2, width=2),
}  # fmt: skip
found: Counter[str] = Counter()


def one(data: bytes, folder: Path) -> None:
    """Tries one folder. Any other error than FileFormatError ends the run."""
    found["folders"] += 1
    config, index, shard = (data.split(LINE, 2) + [b"", b""])[:3]
    (folder / CONFIG).write_bytes(config)
    (folder / INDEX).unlink(missing_ok=True)
    if index:
        (folder / INDEX).write_bytes(index)
    (folder / (SHARD if index else WEIGHTS)).write_bytes(shard)
    (folder / (WEIGHTS if index else SHARD)).unlink(missing_ok=True)
    try:
        from_pretrained(folder)
        found["networks"] += 1
    except FileFormatError:
        found["FileFormatError"] += 1
    if not found["folders"] % 5000:
        print(dict(found), file=sys.stderr, flush=True)


def main() -> None:
    """Runs libFuzzer from folders of small networks, as one file and as an index with a shard."""
    warnings.simplefilter("ignore")
    for f in (tensorfile.parse_tensors, tensorfile._arrays, tensorfile._row):
        setattr(tensorfile, f.__name__, atheris.instrument_func(f))
    with TemporaryDirectory() as corpus, TemporaryDirectory() as work:
        for name, build in NETWORKS.items():
            save_pretrained(build(), work)
            config, shard = ((Path(work) / n).read_bytes() for n in (CONFIG, WEIGHTS))
            names = json.loads(shard[8 : 8 + int.from_bytes(shard[:8], "little")])
            index = json.dumps({"weight_map": {k: SHARD for k in names if k != "__metadata__"}}).encode()
            header = json.dumps({k: v for k, v in names.items() if k != "__metadata__"}).encode()  # without a checksum, which no change fits
            plain = len(header).to_bytes(8, "little") + header + shard[8 + int.from_bytes(shard[:8], "little") :]
            for kind, parts in (("index", (config, index, plain)), ("file", (config, b"", plain))):
                (Path(corpus) / f"{name} {kind}").write_bytes(LINE.join(parts))
        options = ["-max_len=20000", "-rss_limit_mb=4000", "-print_final_stats=1", *sys.argv[1:]]
        atheris.Setup([sys.argv[0], corpus, *options], lambda data: one(data, Path(work)))
        atheris.Fuzz()  # ends the process, so that the count at the end is libFuzzer's


if __name__ == "__main__":
    main()
