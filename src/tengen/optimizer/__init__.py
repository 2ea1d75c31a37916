"""Optimizers: they update parameters from their gradients. MegEngine's interface, with PyTorch's further optimizers and schedules."""

from tengen.base.lazy import modules_of
from tengen.optimizer.adam import LAMB, Adam, Adamax, AdamW, LAMBFp16, NAdam, RAdam, SparseAdam
from tengen.optimizer.adaptive import Adadelta, Adagrad, Lion, RMSprop, Rprop
from tengen.optimizer.clip import clip_grad_norm, clip_grad_norm_, clip_grad_value, clip_grad_value_
from tengen.optimizer.compose import ChainedScheduler, ReduceLROnPlateau, SequentialLR
from tengen.optimizer.cycles import CyclicLR, OneCycleLR
from tengen.optimizer.groups import decay_groups
from tengen.optimizer.lbfgs import LBFGS
from tengen.optimizer.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from tengen.optimizer.optimizer import Optimizer
from tengen.optimizer.sgd import SGD

__getattr__ = modules_of(__name__)
__all__ = [
    "LAMB", "LBFGS", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ChainedScheduler", "ConstantLR", "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LAMBFp16", "LRScheduler", "LambdaLR", "LinearLR", "Lion", "MultiStepLR",
    "MultiplicativeLR", "NAdam", "OneCycleLR", "Optimizer", "PolynomialLR", "RAdam", "RMSprop", "ReduceLROnPlateau", "Rprop",
    "SequentialLR", "SparseAdam", "StepLR", "clip_grad_norm", "clip_grad_norm_", "clip_grad_value", "clip_grad_value_", "decay_groups",
]  # fmt: skip
