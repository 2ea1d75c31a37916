"""Layers and losses without parameters that mean the same in Tengen: each is Tengen's own class as one of PyTorch's modules, with what those
have (`_modules`, `state_dict(prefix=)`, `named_parameters(recurse=)`, what a subclass registers ...)."""

from __future__ import annotations

from tengen import module as M
from tengen.pytorch.nn.module import Module


class AdaptiveAvgPool1d(Module, M.AdaptiveAvgPool1d):
    """`tengen.module.AdaptiveAvgPool1d`."""


class AdaptiveAvgPool2d(Module, M.AdaptiveAvgPool2d):
    """`tengen.module.AdaptiveAvgPool2d`."""


class AdaptiveAvgPool3d(Module, M.AdaptiveAvgPool3d):
    """`tengen.module.AdaptiveAvgPool3d`."""


class AdaptiveMaxPool1d(Module, M.AdaptiveMaxPool1d):
    """`tengen.module.AdaptiveMaxPool1d`."""


class AdaptiveMaxPool2d(Module, M.AdaptiveMaxPool2d):
    """`tengen.module.AdaptiveMaxPool2d`."""


class AdaptiveMaxPool3d(Module, M.AdaptiveMaxPool3d):
    """`tengen.module.AdaptiveMaxPool3d`."""


class CELU(Module, M.CELU):
    """`tengen.module.CELU`."""


class ChannelShuffle(Module, M.ChannelShuffle):
    """`tengen.module.ChannelShuffle`."""


class CircularPad1d(Module, M.CircularPad1d):
    """`tengen.module.CircularPad1d`."""


class CircularPad2d(Module, M.CircularPad2d):
    """`tengen.module.CircularPad2d`."""


class CircularPad3d(Module, M.CircularPad3d):
    """`tengen.module.CircularPad3d`."""


class ConstantPad1d(Module, M.ConstantPad1d):
    """`tengen.module.ConstantPad1d`."""


class ConstantPad2d(Module, M.ConstantPad2d):
    """`tengen.module.ConstantPad2d`."""


class ConstantPad3d(Module, M.ConstantPad3d):
    """`tengen.module.ConstantPad3d`."""


class CosineEmbeddingLoss(Module, M.CosineEmbeddingLoss):
    """`tengen.module.CosineEmbeddingLoss`."""


class CosineSimilarity(Module, M.CosineSimilarity):
    """`tengen.module.CosineSimilarity`."""


class ELU(Module, M.ELU):
    """`tengen.module.ELU`."""


class Flatten(Module, M.Flatten):
    """`tengen.module.Flatten`."""


class Fold(Module, M.Fold):
    """`tengen.module.Fold`."""


class FractionalMaxPool2d(Module, M.FractionalMaxPool2d):
    """`tengen.module.FractionalMaxPool2d`."""


class FractionalMaxPool3d(Module, M.FractionalMaxPool3d):
    """`tengen.module.FractionalMaxPool3d`."""


class GLU(Module, M.GLU):
    """`tengen.module.GLU`."""


class GaussianNLLLoss(Module, M.GaussianNLLLoss):
    """`tengen.module.GaussianNLLLoss`."""


class Hardshrink(Module, M.Hardshrink):
    """`tengen.module.Hardshrink`."""


class Hardsigmoid(Module, M.Hardsigmoid):
    """`tengen.module.Hardsigmoid`."""


class Hardswish(Module, M.Hardswish):
    """`tengen.module.Hardswish`."""


class Hardtanh(Module, M.Hardtanh):
    """`tengen.module.Hardtanh`."""


class HingeEmbeddingLoss(Module, M.HingeEmbeddingLoss):
    """`tengen.module.HingeEmbeddingLoss`."""


class HuberLoss(Module, M.HuberLoss):
    """`tengen.module.HuberLoss`."""


class KLDivLoss(Module, M.KLDivLoss):
    """`tengen.module.KLDivLoss`."""


class LPPool1d(Module, M.LPPool1d):
    """`tengen.module.LPPool1d`."""


class LPPool2d(Module, M.LPPool2d):
    """`tengen.module.LPPool2d`."""


class LPPool3d(Module, M.LPPool3d):
    """`tengen.module.LPPool3d`."""


class LeakyReLU(Module, M.LeakyReLU):
    """`tengen.module.LeakyReLU`."""


class LogSigmoid(Module, M.LogSigmoid):
    """`tengen.module.LogSigmoid`."""


class LogSoftmax(Module, M.LogSoftmax):
    """`tengen.module.LogSoftmax`."""


class MarginRankingLoss(Module, M.MarginRankingLoss):
    """`tengen.module.MarginRankingLoss`."""


class MaxPool1d(Module, M.MaxPool1d):
    """`tengen.module.MaxPool1d`."""


class MaxPool2d(Module, M.MaxPool2d):
    """`tengen.module.MaxPool2d`."""


class MaxPool3d(Module, M.MaxPool3d):
    """`tengen.module.MaxPool3d`."""


class MaxUnpool1d(Module, M.MaxUnpool1d):
    """`tengen.module.MaxUnpool1d`."""


class MaxUnpool2d(Module, M.MaxUnpool2d):
    """`tengen.module.MaxUnpool2d`."""


class MaxUnpool3d(Module, M.MaxUnpool3d):
    """`tengen.module.MaxUnpool3d`."""


class Mish(Module, M.Mish):
    """`tengen.module.Mish`."""


class PairwiseDistance(Module, M.PairwiseDistance):
    """`tengen.module.PairwiseDistance`."""


class PixelShuffle(Module, M.PixelShuffle):
    """`tengen.module.PixelShuffle`."""


class PixelUnshuffle(Module, M.PixelUnshuffle):
    """`tengen.module.PixelUnshuffle`."""


class PoissonNLLLoss(Module, M.PoissonNLLLoss):
    """`tengen.module.PoissonNLLLoss`."""


class ReLU(Module, M.ReLU):
    """`tengen.module.ReLU`."""


class ReLU6(Module, M.ReLU6):
    """`tengen.module.ReLU6`."""


class ReflectionPad1d(Module, M.ReflectionPad1d):
    """`tengen.module.ReflectionPad1d`."""


class ReflectionPad2d(Module, M.ReflectionPad2d):
    """`tengen.module.ReflectionPad2d`."""


class ReflectionPad3d(Module, M.ReflectionPad3d):
    """`tengen.module.ReflectionPad3d`."""


class ReplicationPad1d(Module, M.ReplicationPad1d):
    """`tengen.module.ReplicationPad1d`."""


class ReplicationPad2d(Module, M.ReplicationPad2d):
    """`tengen.module.ReplicationPad2d`."""


class ReplicationPad3d(Module, M.ReplicationPad3d):
    """`tengen.module.ReplicationPad3d`."""


class SELU(Module, M.SELU):
    """`tengen.module.SELU`."""


class SiLU(Module, M.SiLU):
    """`tengen.module.SiLU`."""


class Sigmoid(Module, M.Sigmoid):
    """`tengen.module.Sigmoid`."""


class SmoothL1Loss(Module, M.SmoothL1Loss):
    """`tengen.module.SmoothL1Loss`."""


class SoftMarginLoss(Module, M.SoftMarginLoss):
    """`tengen.module.SoftMarginLoss`."""


class Softmax(Module, M.Softmax):
    """`tengen.module.Softmax`."""


class Softmax2d(Module, M.Softmax2d):
    """`tengen.module.Softmax2d`."""


class Softmin(Module, M.Softmin):
    """`tengen.module.Softmin`."""


class Softshrink(Module, M.Softshrink):
    """`tengen.module.Softshrink`."""


class Softsign(Module, M.Softsign):
    """`tengen.module.Softsign`."""


class Tanh(Module, M.Tanh):
    """`tengen.module.Tanh`."""


class Tanhshrink(Module, M.Tanhshrink):
    """`tengen.module.Tanhshrink`."""


class Threshold(Module, M.Threshold):
    """`tengen.module.Threshold`."""


class TripletMarginLoss(Module, M.TripletMarginLoss):
    """`tengen.module.TripletMarginLoss`."""


class TripletMarginWithDistanceLoss(Module, M.TripletMarginWithDistanceLoss):
    """`tengen.module.TripletMarginWithDistanceLoss`."""


class Unflatten(Module, M.Unflatten):
    """`tengen.module.Unflatten`."""


class Unfold(Module, M.Unfold):
    """`tengen.module.Unfold`."""


class Upsample(Module, M.Upsample):
    """`tengen.module.Upsample`."""


class UpsamplingBilinear2d(Module, M.UpsamplingBilinear2d):
    """`tengen.module.UpsamplingBilinear2d`."""


class UpsamplingNearest2d(Module, M.UpsamplingNearest2d):
    """`tengen.module.UpsamplingNearest2d`."""


class ZeroPad1d(Module, M.ZeroPad1d):
    """`tengen.module.ZeroPad1d`."""


class ZeroPad2d(Module, M.ZeroPad2d):
    """`tengen.module.ZeroPad2d`."""


class ZeroPad3d(Module, M.ZeroPad3d):
    """`tengen.module.ZeroPad3d`."""


__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
    "CELU", "ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "CosineEmbeddingLoss", "CosineSimilarity", "ELU", "Flatten", "Fold", "FractionalMaxPool2d", "FractionalMaxPool3d", "GLU",
    "GaussianNLLLoss", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "LPPool1d",
    "LPPool2d", "LPPool3d", "LeakyReLU", "LogSigmoid", "LogSoftmax", "MarginRankingLoss", "MaxPool1d", "MaxPool2d", "MaxPool3d",
    "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Mish", "PairwiseDistance", "PixelShuffle", "PixelUnshuffle", "PoissonNLLLoss", "ReLU",
    "ReLU6", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d",
    "SELU", "SiLU", "Sigmoid", "SmoothL1Loss", "SoftMarginLoss", "Softmax", "Softmax2d", "Softmin", "Softshrink", "Softsign", "Tanh",
    "Tanhshrink", "Threshold", "TripletMarginLoss", "TripletMarginWithDistanceLoss", "Unflatten", "Unfold", "Upsample",
    "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip
