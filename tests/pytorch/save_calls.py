"""Evaluates `pytorch_calls.py` with PyTorch and saves what it gives: ``python tests/pytorch/save_calls.py``."""

import warnings
from pathlib import Path

import numpy as np
import torch
from pytorch_calls import CALLS, make

warnings.simplefilter("ignore")
found = {f"{k}.{j}": a for k, call in enumerate(CALLS) for j, a in enumerate(make(torch, call))}
np.savez_compressed(Path(__file__).with_name("saved_calls.npz"), version=torch.__version__, calls=np.array(CALLS), **found)
