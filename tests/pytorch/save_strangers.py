"""Runs the programs of `strangers.py` and the files beside it with PyTorch and saves their numbers: ``python tests/pytorch/save_strangers.py``.
"""

import json
from pathlib import Path

import strangers
import strangers_graphs
import strangers_masks
import strangers_modules
import strangers_public
import strangers_sampling
import strangers_science
import strangers_scripts
import strangers_sequences
import strangers_stumbled
import strangers_training
import strangers_vision
import torch
import torch.nn.utils.prune  # which `import torch` alone does not load

torch.manual_seed(0)
FILES = (
    strangers, strangers_stumbled, strangers_vision, strangers_sequences, strangers_sampling, strangers_science, strangers_training,
    strangers_modules, strangers_graphs, strangers_masks, strangers_public, strangers_scripts,
)  # fmt: skip
every = [p for of in FILES for p in of.PROGRAMS]
found = {f.__name__: [float(v) for v in f(torch)] for f in every}
path = Path(__file__).with_name("saved_strangers.json")
path.write_text(json.dumps({"torch": torch.__version__, "programs": found}, indent=1) + "\n")
