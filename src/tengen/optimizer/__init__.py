"""Optimizers: they update parameters from their gradients. MegEngine's interface."""

from tengen.optimizer.adam import Adam, AdamW
from tengen.optimizer.clip import clip_grad_norm, clip_grad_value
from tengen.optimizer.lr_scheduler import CosineAnnealingLR, LRScheduler, MultiStepLR
from tengen.optimizer.optimizer import Optimizer
from tengen.optimizer.sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CosineAnnealingLR",
    "LRScheduler",
    "MultiStepLR",
    "Optimizer",
    "clip_grad_norm",
    "clip_grad_value",
]
