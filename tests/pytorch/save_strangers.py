"""Runs the programs of `strangers.py` and the files beside it with PyTorch and saves their numbers: ``python tests/pytorch/save_strangers.py``,
with names behind it those programs alone.
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.utils.prune  # which `import torch` alone does not load
from every_stranger import COMPILED, PLAIN

torch.manual_seed(0)
path, names = Path(__file__).with_name("saved_strangers.json"), sys.argv[1:]
saved = json.loads(path.read_text()) if names else {"torch": torch.__version__, "programs": {}}
if saved["torch"] != torch.__version__:
    raise SystemExit(f"the saved numbers are of PyTorch {saved['torch']}, this is {torch.__version__}; help: save all programs anew")
found = {f.__name__: [float(v) for v in f(torch)] for f in PLAIN + COMPILED if not names or f.__name__ in names}
path.write_text(json.dumps(saved | {"programs": saved["programs"] | found}, indent=1) + "\n")
