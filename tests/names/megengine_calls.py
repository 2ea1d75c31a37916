"""Calls of MegEngine's functions, layers and methods, the same text for MegEngine and Tengen: `python megengine_calls.py` in an
environment with MegEngine 1.13 writes their results to `megengine_calls.npz`, which `test_megengine_calls.py` compares with. Each call
has the package, its `functional` and `module` and the arrays of `OPERANDS` as tensors."""

import sys
from pathlib import Path

import numpy as np

SAVED = Path(__file__).with_name("megengine_calls.npz")
VERSION = "MegEngine 1.13.0"
R = np.random.RandomState(3)  # whose numbers are the same with every NumPy


def _f(*shape):
    return R.standard_normal(shape).astype("f4")


OPERANDS = {
    "x": _f(3, 4), "y": _f(3, 4), "row": _f(4), "col": _f(3, 1), "pos": np.abs(_f(3, 4)) + 0.1, "unit": np.tanh(_f(3, 4)) * 0.9,
    "i": R.randint(-9, 9, (3, 4)).astype("i4"), "j": R.randint(1, 5, (3, 4)).astype("i4"),
    "u8": R.randint(0, 255, (3, 4)).astype("u1"),
    "i8": R.randint(-99, 99, (3, 4)).astype("i1"), "b": R.rand(3, 4) > 0.5, "c": R.rand(3, 4) > 0.5,
    "one": np.float32(2.5), "none": np.zeros((0, 4), "f4"),
    "odd": np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 2.5], "f4"),
    "halves": np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.49], "f4"),
    "im": _f(2, 4, 6, 5), "seq": _f(2, 4, 7), "vol": _f(1, 2, 4, 5, 3), "w1": _f(6, 4, 3), "w2": _f(6, 4, 3, 3),
    "wg": _f(2, 3, 2, 3, 3),
    "wt": _f(4, 6, 3, 3), "w3": _f(3, 2, 2, 2, 2), "b2": _f(1, 6, 1, 1), "a": _f(2, 3, 4), "d": _f(2, 4, 5),
    "sq": _f(3, 3) + 3 * np.eye(3, dtype="f4"),
    "label": np.array([1, 0, 3], "i4"), "target": (R.rand(3, 4) > 0.5).astype("f4"),
    "idx": R.randint(0, 3, (3, 4)).astype("i4"),
    "words": R.randint(0, 4, (2, 3)).astype("i4"), "cube": _f(2, 3, 4, 5), "flags": np.array([[1, 0], [0, 2]], "i4"),
    "same": np.array([2, 1, 2, 3, 1], "f4"),
    "boxes": np.array([[0, 0, 0, 3, 4], [1, 1, 1, 5, 4.5]], "f4"),
    "grid": np.stack(np.meshgrid(np.linspace(-0.7, 4.6, 4), np.linspace(-0.4, 5.3, 3)), -1)[None].repeat(2, 0).astype("f4"),
    "matrix": np.array([[[1.1, 0.2, -0.3], [-0.1, 0.9, 0.4], [0.01, -0.02, 1.0]]] * 2, "f4"),
    "g4": _f(4), "mean": _f(1, 4, 1, 1), "var": np.abs(_f(1, 4, 1, 1)) + 0.5, "h": _f(3, 4).astype("f2"),
}  # fmt: skip

UNARY = "abs neg exp expm1 sin cos tanh sigmoid relu relu6 hswish hsigmoid silu gelu softplus logsigmoid "
UNARY += "ceil floor round sign square atan asinh sinh cosh"
POSITIVE = "log log1p sqrt"
UNIT = "asin acos atanh"
BINARY = "add sub mul div maximum minimum atan2 pow logaddexp mod floor_div equal not_equal less less_equal greater greater_equal"
REDUCE = "sum mean prod max min std var argmax argmin"

# name -> what is computed; `m` is the package, `F` functional, `M` module, `t` the tensors
CALLS = {
    **{f"F.{n}": f"F.{n}(t.x)" for n in UNARY.split()}, **{f"F.{n}": f"F.{n}(t.pos)" for n in POSITIVE.split()},
    **{f"F.{n}": f"F.{n}(t.unit)" for n in UNIT.split()},
    **{f"F.{n} of ints": f"F.{n}(t.i)" for n in "abs neg exp relu sign square".split()},
    **{f"F.{n} odd": f"F.{n}(t.odd)" for n in "exp log sqrt relu sigmoid sign ceil floor tanh abs isnan isinf gelu silu softplus".split()},
    **{f"F.{n}": f"F.{n}(t.pos, t.y)" for n in BINARY.split()},
    **{f"F.{n} of ints": f"F.{n}(t.i, t.j)" for n in BINARY.split() if n not in "atan2 logaddexp pow"},
    **{f"F.{n} row": f"F.{n}(t.x, t.row)" for n in "add mul div maximum less".split()},
    **{f"F.{n} of both": f"F.{n}(t.x, t.j)" for n in "add sub mul div maximum mod less equal".split()},
    **{f"F.{n}": f"F.{n}(t.b, t.c)" for n in "logical_and logical_or logical_xor".split()},
    "F.logical_not": "F.logical_not(t.b)",
    "F.left_shift": "F.left_shift(t.j, 2)", "F.right_shift": "F.right_shift(t.i, 1)", "F.acosh": "F.acosh(t.pos + 1)",
    "F.tan": "F.tan(t.unit)",
    **{f"F.{n}": f"F.{n}(t.x)" for n in REDUCE.split()}, **{f"F.{n} 0": f"F.{n}(t.x, axis=0)" for n in REDUCE.split()},
    **{f"F.{n} -1 kept": f"F.{n}(t.x, axis=-1, keepdims=True)" for n in REDUCE.split()},
    **{f"F.{n} of ints": f"F.{n}(t.i, axis=1)" for n in "sum mean max min argmax argmin".split()},
    "F.sum of bytes": "F.sum(t.u8)", "F.sum of bools": "F.sum(t.b)",
    "F.mean of bools": "F.mean(t.b, axis=0)", "F.sum of two axes": "F.sum(t.cube, axis=(1, 2))",
    "F.max of two axes": "F.max(t.cube, axis=[0, 3])",
    "x.sum": "t.x.sum()", "x.mean": "t.x.mean(axis=1)", "x.max": "t.x.max(0)", "x.min": "t.x.min(0, True)",
    "x.prod": "t.x.prod(axis=1)",
    "F.clip": "F.clip(t.x, -0.5, 0.5)", "F.clip below": "F.clip(t.x, lower=0.1)", "F.clip above": "F.clip(t.x, upper=0.1)",
    "F.clip ints": "F.clip(t.i, -2, 3)",
    "F.norm": "F.norm(t.row)", "F.norm 1": "F.norm(t.x, ord=1, axis=1)", "F.norm inf": "F.norm(t.x, ord=np.inf, axis=0)",
    "F.norm 3": "F.norm(t.x, 3, axis=1, keepdims=True)",
    "F.normalize": "F.normalize(t.x, axis=1)", "F.normalize of all": "F.normalize(t.row)",
    "F.normalize 1": "F.normalize(t.x, ord=1, axis=0)",
    "F.matmul": "F.matmul(t.x, t.y, transpose_b=True)", "F.matmul a": "F.matmul(t.x, t.y, transpose_a=True)",
    "F.matmul batch": "F.matmul(t.a, t.d)",
    "F.matmul vector": "F.matmul(t.x, t.row)", "F.matmul vectors": "F.matmul(t.row, t.g4)",
    "F.matmul wide": "F.matmul(t.x, t.d)", "@": "t.a @ t.d", "F.dot": "F.dot(t.row, t.g4)",
    "F.matinv": "F.matinv(t.sq)", "F.svd": "F.svd(t.x)[1]", "F.linear": "F.linear(t.x, t.y, t.row[:3])",
    "F.topk": "F.topk(t.x, 2)", "F.topk rising": "F.topk(t.x, 2, descending=False)",
    "F.topk kth": "F.topk(t.x, 2, kth_only=True)", "F.sort": "F.sort(t.x)",
    "F.sort falling": "F.sort(t.x, descending=True)", "F.argsort": "F.argsort(t.x)",
    "F.argsort falling": "F.argsort(t.row, descending=True)", "F.sort equal": "F.sort(t.same)",
    "F.cumsum": "F.cumsum(t.x, axis=1)", "F.cumsum ints": "F.cumsum(t.i, axis=0)",
    "F.arange": "F.arange(5)", "F.arange step": "F.arange(1, 4, 0.5)", "F.arange ints": "F.arange(1, 9, 3, dtype='int32')",
    "F.arange down": "F.arange(5, 1, -2)",
    "F.linspace": "F.linspace(0, 1, 5)", "F.linspace one": "F.linspace(3, 10, 1)", "F.eye": "F.eye(3)",
    "F.eye wide": "F.eye(2, 4)", "F.full": "F.full((2, 3), 1.5)",
    "F.full of int": "F.full((2,), 3)", "F.full of bool": "F.full((2,), True)", "F.ones": "F.ones((2, 3))",
    "F.zeros": "F.zeros(3, dtype='int32')", "F.ones_like": "F.ones_like(t.i)",
    "F.zeros_like": "F.zeros_like(t.h)", "F.full_like": "F.full_like(t.x, 3)", "F.full_like of ints": "F.full_like(t.i, 2.7)",
    "F.diag": "F.diag(t.row)", "F.diag of": "F.diag(t.sq, k=1)",
    "F.concat": "F.concat([t.x, t.y], axis=1)", "F.concat of both": "F.concat([t.x, t.i])",
    "F.stack": "F.stack([t.x, t.y], axis=-1)", "F.split": "F.split(t.x, 2, axis=1)",
    "F.split at": "F.split(t.cube, [1, 3], axis=2)", "F.reshape": "F.reshape(t.x, (2, -1))",
    "F.flatten": "F.flatten(t.cube, 1, 2)", "F.flatten rest": "F.flatten(t.cube, 2)",
    "F.transpose": "F.transpose(t.cube, (3, 0, 2, 1))", "F.transpose x": "F.transpose(t.x, (1, 'x', 0))",
    "F.squeeze": "F.squeeze(t.col)", "F.squeeze axis": "F.squeeze(t.col, 1)",
    "F.expand_dims": "F.expand_dims(t.x, 1)", "F.expand_dims two": "F.expand_dims(t.x, [0, 2])",
    "F.broadcast_to": "F.broadcast_to(t.col, (2, 3, 4))", "F.tile": "F.tile(t.x, (2, 1))",
    "F.repeat": "F.repeat(t.x, 2, axis=1)", "F.repeat flat": "F.repeat(t.x, 2)", "F.roll": "F.roll(t.x, 1, 0)",
    "F.roll two": "F.roll(t.x, (1, -1), (0, 1))",
    "F.roll flat": "F.roll(t.x, 2)", "F.swapaxes": "F.swapaxes(t.cube, 0, 2)", "F.where": "F.where(t.b, t.x, t.y)",
    "F.cond_take": "F.cond_take(t.b, t.x)", "F.gather": "F.gather(t.x, 0, t.idx)",
    "F.scatter": "F.scatter(F.zeros((3, 4)), 0, t.idx[:1], t.y[:1])", "F.one_hot": "F.one_hot(t.label, 4)",
    "F.indexing_one_hot": "F.indexing_one_hot(t.x, t.label)",
    "F.indexing_one_hot kept": "F.indexing_one_hot(t.x, t.label, 1, keepdims=True)",
    "F.meshgrid": "F.meshgrid(t.row, t.g4[:2])", "F.meshgrid ij": "F.meshgrid(t.row, t.g4[:2], indexing='ij')",
    "F.pad": "F.pad(t.x, ((1, 0), (2, 1)))", "F.pad value": "F.pad(t.x, ((1, 0),), constant_value=3.0)",
    "F.pad reflect": "F.pad(t.im, ((0, 0), (0, 0), (1, 2), (1, 1)), mode='reflect')",
    "F.pad edge": "F.pad(t.im, ((0, 0), (0, 0), (1, 2), (1, 1)), mode='replicate')",
    "F.softmax": "F.softmax(t.x)", "F.softmax 0": "F.softmax(t.x, axis=0)", "F.softmax of one axis": "F.softmax(t.row)",
    "F.softmax of three axes": "F.softmax(t.seq)", "F.softmax of four axes": "F.softmax(t.im)", "M.Softmax of three axes": "M.Softmax()(t.seq)",
    "F.softmax of five axes": "F.softmax(t.vol)",
    "M.Softmax of none": "M.Softmax(axis=None)(t.x)", "F.softmax of axes": "F.softmax(t.im, axis=[1, 3])",
    "F.logsoftmax": "F.logsoftmax(t.x, axis=1)", "F.logsumexp": "F.logsumexp(t.x, axis=1)",
    "F.logsumexp kept": "F.logsumexp(t.x, 0, keepdims=True)",
    "F.leaky_relu": "F.leaky_relu(t.x)", "F.leaky_relu steep": "F.leaky_relu(t.x, 0.2)", "F.prelu": "F.prelu(t.x, t.row[:1])",
    "F.conv1d": "F.conv1d(t.seq, t.w1, stride=2, padding=1)",
    "F.conv2d": "F.conv2d(t.im, t.w2, t.b2, stride=(2, 1), padding=(1, 0))",
    "F.conv2d dilated": "F.conv2d(t.im, t.w2, dilation=2, padding=2)", "F.conv2d groups": "F.conv2d(t.im, t.wg, groups=2)",
    "F.conv3d": "F.conv3d(t.vol, t.w3)", "F.conv_transpose2d": "F.conv_transpose2d(t.im, t.wt, stride=2, padding=1)",
    "F.max_pool2d": "F.max_pool2d(t.im, 2)", "F.max_pool2d padded": "F.max_pool2d(t.im, 3, 2, 1)",
    "F.avg_pool2d": "F.avg_pool2d(t.im, 2, 1)", "F.avg_pool2d padded": "F.avg_pool2d(t.im, 3, 2, 1)",
    "F.avg_pool2d all": "F.avg_pool2d(t.im, 3, 2, 1, mode='average')",
    "F.adaptive_avg_pool2d": "F.adaptive_avg_pool2d(t.im, (3, 2))",
    "F.adaptive_max_pool2d": "F.adaptive_max_pool2d(t.im, (3, 2))",
    "F.layer_norm": "F.layer_norm(t.x, (4,), True, t.row, t.g4)", "F.layer_norm plain": "F.layer_norm(t.x, (4,), False)",
    "F.batch_norm": "F.batch_norm(t.im, t.mean, t.var, F.ones((1, 4, 1, 1)), F.zeros((1, 4, 1, 1)))",
    "F.batch_norm training": "F.batch_norm(t.im, t.mean, t.var, F.ones((1, 4, 1, 1)), F.zeros((1, 4, 1, 1)), training=True, inplace=False)",
    "F.group_norm": "F.group_norm(t.im, 2, False)", "F.instance_norm": "F.instance_norm(t.im, False)",
    "F.local_response_norm": "F.local_response_norm(t.im, 3)", "F.pixel_shuffle": "F.pixel_shuffle(t.im, 2)",
    "F.sliding_window": "F.sliding_window(t.im, (2, 2))",
    "F.embedding": "F.embedding(t.words, t.x.T)", "F.dropout off": "F.dropout(t.x, 0.5, training=False)",
    "F.interpolate": "F.vision.interpolate(t.im, scale_factor=2)",
    "F.interpolate corners": "F.vision.interpolate(t.im, (9, 8), align_corners=True)",
    "F.interpolate nearest": "F.vision.interpolate(t.im, (9, 8), mode='nearest')",
    "F.interpolate linear": "F.vision.interpolate(t.seq, 11, mode='linear')",
    **{f"vision.interpolate {mode} {size}": f"F.vision.interpolate(t.im, {size}, mode='{mode}')" for mode in ("bilinear", "nearest", "bicubic")
       for size in ((3, 2), (11, 7), (6, 5))},
    "vision.interpolate half": "F.vision.interpolate(t.im, scale_factor=0.5)",
    "vision.interpolate factors": "F.vision.interpolate(t.im, scale_factor=[1.5, 2.0], align_corners=False)",
    **{f"vision.remap {b} {i}": f"F.vision.remap(t.im, t.grid, border_mode='{b}', interp_mode='{i}')"
       for b in ("replicate", "constant", "reflect", "reflect_101", "wrap") for i in ("linear", "nearest")},
    "vision.warp_affine": "F.vision.warp_affine(t.im, t.matrix[:, :2], (5, 4))",
    "vision.warp_affine constant": "F.vision.warp_affine(t.im, t.matrix[:, :2], (5, 4), border_mode='constant', border_val=0.5)",
    "vision.warp_perspective": "F.vision.warp_perspective(t.im, t.matrix, (5, 4))",
    "vision.warp_perspective constant": "F.vision.warp_perspective(t.im, t.matrix, (5, 4), border_mode='constant', border_val=0.5)",
    **{f"vision.roi_align {mode}": f"F.vision.roi_align(t.im, t.boxes, (2, 3), mode='{mode}', sample_points=2)" for mode in ("average", "max")},
    "vision.roi_align scaled": "F.vision.roi_align(t.im, t.boxes, 2, spatial_scale=0.5, aligned=False)",
    **{f"vision.roi_pooling {mode}": f"F.vision.roi_pooling(t.im, t.boxes, (2, 2), mode='{mode}')" for mode in ("max", "average")},
    "vision.correlation": "F.vision.correlation(t.im, t.im + 1, kernel_size=1, max_displacement=1, stride1=1, stride2=1, pad_size=1)",
    **{f"vision.cvt_color {mode}": f"F.vision.cvt_color(m.tensor(pixels(1, 4, 6, {c})), '{mode}')"
       for mode, c in (("RGB2GRAY", 3), ("RGB2BGR", 3), ("GRAY2RGB", 1), ("RGB2YUV", 3), ("YUV2RGB", 3), ("RGBA2BGR", 4))},
    "transform.Normalize": "T.Normalize(mean=[1.0, 2.0, 3.0], std=[2.0, 3.0, 4.0]).apply(picture)",
    "transform.ToMode": "T.ToMode('CHW').apply(picture)",
    **{f"transform.Resize {size} {how}": f"T.Resize({size}, interpolation={how}).apply(picture)"
       for size in ((5, 8), (11, 7), 4) for how in (0, 1)},
    "transform.CenterCrop": "T.CenterCrop((3, 4)).apply(picture)", "transform.CenterCrop one": "T.CenterCrop(3).apply(picture)",
    "transform.Pad": "T.Pad(2, 7).apply(picture)", "transform.Pad two": "T.Pad((1, 2)).apply(picture)",
    "transform.Pad four": "T.Pad((1, 2, 3, 0), 9).apply(picture)",
    "transform.ShortestEdgeResize": "T.ShortestEdgeResize(4, 100).apply(picture)",
    **{f"transform.{name} shape": f"np.array(T.{call}.apply(picture).shape)" for name, call in (
        ("Resize", "Resize(5)"), ("Resize high", "Resize(7)"), ("ShortestEdgeResize", "ShortestEdgeResize(5, 100)"),
        ("ShortestEdgeResize most", "ShortestEdgeResize(5, 7)"))},
    "transform.RandomHorizontalFlip": "T.RandomHorizontalFlip(1.0).apply(picture)",
    "transform.RandomVerticalFlip": "T.RandomVerticalFlip(1.0).apply(picture)",
    "transform.RandomHorizontalFlip never": "T.RandomHorizontalFlip(0.0).apply(picture)",
    "transform.Compose": "T.Compose([T.CenterCrop(4), T.Normalize(1.0, 2.0), T.ToMode()]).apply(picture)",
    **{f"transform of boxes {name}": f"T.Compose([{name}], order=('image', 'boxes')).apply((picture, boxes))[1]" for name in (
        "T.Resize((12, 7))", "T.Pad(2)", "T.RandomHorizontalFlip(1.0)", "T.RandomVerticalFlip(1.0)", "T.CenterCrop((4, 4))")},
    **{f"transform of points {name}": f"T.Compose([{name}], order=('image', 'coords')).apply((picture, boxes[:, :2]))[1]" for name in (
        "T.Resize((12, 7))", "T.Pad((1, 2))", "T.RandomHorizontalFlip(1.0)", "T.CenterCrop((4, 4))")},
    **{f"transform.{name} 0": f"T.{name}(0.0).apply(picture)" for name in ("BrightnessTransform", "ContrastTransform", "SaturationTransform")},
    **{f"quantization.fake_quant {mode} {bits}": f"Q.fake_quant_tensor(t.x, qparams('{mode}', '{bits}'))"
       for mode in ("SYMMERTIC", "ASYMMERTIC") for bits in ("qint8", "quint8", "qint4", "quint4")},
    "quantization grad": "grad(lambda x: (Q.fake_quant_tensor(x, qparams('SYMMERTIC', 'qint8')) * t.y).sum(), t.x * 3)",
    "quantization bias": "Q.fake_quant_bias(t.row, t.x, t.x * 2)",
    **{f"quantization.{name}": f"observed(Q.{name}(dtype='qint8'), t.x, t.y * 3)"
       for name in ("MinMaxObserver", "ExponentialMovingAverageObserver")},
    "quantization.TQT": "Q.TQT(dtype='qint8')(t.x)",
    "F.nms": "F.vision.nms(m.tensor([[0, 0, 2, 2], [0, 0, 2, 1.9], [3, 3, 4, 4]], dtype='float32'), t.row[:3], 0.5)",
    "F.loss.cross_entropy": "F.loss.cross_entropy(t.x, t.label)",
    "F.loss.cross_entropy smooth": "F.loss.cross_entropy(t.x, t.label, label_smooth=0.1)",
    "F.loss.cross_entropy each": "F.loss.cross_entropy(t.x, t.label, reduction='none')",
    "F.loss.cross_entropy of shares": "F.loss.cross_entropy(F.softmax(t.x), t.label, with_logits=False)",
    "F.loss.bce": "F.loss.binary_cross_entropy(t.x, t.target)",
    "F.loss.bce of shares": "F.loss.binary_cross_entropy(F.sigmoid(t.x), t.target, with_logits=False, reduction='sum')",
    "F.loss.l1": "F.loss.l1_loss(t.x, t.y)", "F.loss.square": "F.loss.square_loss(t.x, t.y, reduction='none')",
    "F.loss.hinge": "F.loss.hinge_loss(t.x, t.target * 2 - 1)",
    "F.loss.hinge 2": "F.loss.hinge_loss(t.x, t.target * 2 - 1, norm='L2')",
    "F.topk_accuracy": "F.metric.topk_accuracy(t.x, t.label, (1, 2))",
    "F.complex": "F.real(F.complex(t.x, t.y)) + F.imag(F.complex(t.x, t.y))", "x + 1": "t.x + 1", "1 - i": "1 - t.i",
    "i * 1.5": "t.i * 1.5", "i / 2": "t.i / 2", "i // 2": "t.i // 2",
    "i % 3": "t.i % 3", "x % 1": "t.x % 1", "x // 0.5": "t.x // 0.5", "i ** 2": "t.i ** 2", "x ** 2": "t.x ** 2",
    "2 ** j": "2 ** t.j", "-i": "-t.i", "~b": "~t.b", "b & c": "t.b & t.c", "i << 1": "t.i << 1",
    "u8 + 1": "t.u8 + 1", "u8 + u8": "t.u8 + t.u8", "i8 * i8": "t.i8 * t.i8", "x + h": "t.x + t.h", "h * 2": "t.h * 2",
    "h + i": "t.h + t.i", "u8 / 2": "t.u8 / 2", "b * x": "t.b * t.x", "x > 0": "t.x > 0", "i == 2": "t.i == 2",
    "odd max": "F.maximum(t.odd, 0.5)",
    "x[0]": "t.x[0]", "x[:, 1]": "t.x[:, 1]", "x[-1, ::-1]": "t.x[-1, ::-1]", "x[None]": "t.x[None]",
    "x[..., 2]": "t.cube[..., 2]", "x[b]": "t.x[t.b]", "x[idx]": "t.x[t.label[:2]]",
    "x[idx, idx]": "t.x[t.label[:2], t.label[1:]]", "x[1:0]": "t.x[1:0]",
    "astype": "t.x.astype('int32')", "astype of bool": "t.b.astype('float32')", "T": "t.x.T", "reshape": "t.x.reshape(-1)",
    "x.transpose": "t.cube.transpose(1, 0, 3, 2)", "x.flatten": "t.cube.flatten()", "round halves": "F.round(t.halves)",
    "shape": "m.tensor(list(t.cube.shape))",
    "empty sum": "F.sum(t.none, axis=0)", "empty concat": "F.concat([t.none, t.x])", "scalar": "t.one * 2",
    "scalar sum": "F.sum(t.one)", "tensor of floats": "m.tensor([1.5, 2])", "tensor of ints": "m.tensor([1, 2])",
    "tensor of a float": "m.tensor(1.5)", "tensor of bools": "m.tensor([True, False])",
    "M.Linear": "set_(M.Linear(4, 2), weight=t.x[:2], bias=t.row[:2])(t.x)",
    "M.Conv2d": "set_(M.Conv2d(4, 6, 3, padding=1), weight=t.w2, bias=t.b2)(t.im)", "M.BatchNorm2d": "M.BatchNorm2d(4)(t.im)",
    "M.BatchNorm2d eval": "evaluated(M.BatchNorm2d(4))(t.im)", "M.BatchNorm1d": "M.BatchNorm1d(4)(t.x)",
    "M.LayerNorm": "M.LayerNorm(4)(t.x)", "M.GroupNorm": "M.GroupNorm(2, 4)(t.im)", "M.InstanceNorm": "M.InstanceNorm(4)(t.im)",
    "M.Softmax": "M.Softmax(axis=0)(t.x)", "M.PReLU": "M.PReLU()(t.x)", "M.LeakyReLU": "M.LeakyReLU()(t.x)",
    "M.GELU": "M.GELU()(t.x)", "M.AvgPool2d": "M.AvgPool2d(2)(t.im)",
    "M.MaxPool2d": "M.MaxPool2d(3, 2)(t.im)", "M.Pad": "M.Pad(((0, 0), (1, 1)))(t.x)",
    "M.PixelShuffle": "M.PixelShuffle(2)(t.im)", "M.Identity": "M.Identity()(t.x)",
    "M.Dropout eval": "evaluated(M.Dropout(0.5))(t.x)", "M.Embedding": "set_(M.Embedding(4, 3), weight=t.x.T)(t.words)",
    "BatchNorm2d.running": "ran(M.BatchNorm2d(4), t.im).running_mean",
    "BatchNorm2d.running_var": "ran(M.BatchNorm2d(4), t.im).running_var",
    "BatchNorm1d.running_var": "ran(M.BatchNorm1d(4), t.x).running_var",
    "random.permutation": "F.sort(m.random.permutation(6))[0]",
    "grad of square": "grad(lambda x: (x * x).sum(), t.x)", "grad of max": "grad(lambda x: F.max(x, axis=1).sum(), t.x)",
    "grad of abs": "grad(lambda x: F.abs(x).sum(), t.odd[3:])", "grad of relu": "grad(lambda x: F.relu(x).sum(), t.odd[3:])",
    "grad of clip": "grad(lambda x: F.clip(x, -1.5, 1.5).sum(), t.odd[3:])",
    "grad of cross_entropy": "grad(lambda x: F.loss.cross_entropy(x, t.label), t.x)",
    "grad of batch_norm": "grad(lambda x: (M.BatchNorm2d(4)(x) * t.im * t.im).sum(), t.im)",
    "grad of conv2d": "grad(lambda w: (F.conv2d(t.im, w) ** 2).sum(), t.w2)",
    "grad of x[b]": "grad(lambda x: (x[t.b] ** 2).sum(), t.x)",
    "grad of topk": "grad(lambda x: F.topk(x, 2)[0].sum(), t.x)", "grad of norm": "grad(lambda x: F.norm(x), t.row)",
    "grad of maximum": "grad(lambda x: F.maximum(x, t.x).sum(), t.x)",
    "grad of hswish": "grad(lambda x: F.hswish(x).sum(), t.x * 3)",
    "SGD": "stepped(lambda p: m.optimizer.SGD(p, 0.1, momentum=0.9, weight_decay=0.01), t.x)",
    "SGD nesterov": "stepped(lambda p: m.optimizer.SGD(p, 0.1, momentum=0.9, nesterov=True), t.x)",
    "Adam": "stepped(lambda p: m.optimizer.Adam(p, 0.1, weight_decay=0.1), t.x)",
    "AdamW": "stepped(lambda p: m.optimizer.AdamW(p, 0.1), t.x)",
    "Adagrad": "stepped(lambda p: m.optimizer.Adagrad(p, 0.1), t.x)",
    "Adadelta": "stepped(lambda p: m.optimizer.Adadelta(p, 1.0), t.x)", "clip_grad_norm": "clipped(t.x)",
}  # fmt: skip


class _Tensors:
    def __init__(self, m):
        for name, a in OPERANDS.items():
            setattr(self, name, m.tensor(a.copy()))


def scope_of(m) -> dict:
    """What the texts of `CALLS` name."""

    def set_(layer, **values):
        for name, value in values.items():
            getattr(layer, name)[...] = value
        return layer

    def evaluated(layer):
        layer.eval()
        return layer

    def ran(layer, x):
        layer(x)
        return layer

    def grad(f, x):
        gm, x = m.autodiff.GradManager(), m.tensor(x.numpy())
        gm.attach([x])
        with gm:
            gm.backward(f(x))
        return x.grad

    def stepped(make, x):
        p = m.Parameter(x.numpy())
        gm, opt = m.autodiff.GradManager().attach([p]), make([p])
        for _ in range(3):
            with gm:
                gm.backward((p * p * p).sum())
            opt.step().clear_grad()
        return p

    def clipped(x):
        p = m.Parameter(x.numpy())
        gm = m.autodiff.GradManager().attach([p])
        with gm:
            gm.backward((p * p).sum())
        m.optimizer.clip_grad_norm([p], 0.5)
        return p.grad

    def pixels(*shape):
        return np.random.RandomState(0).randint(0, 255, shape).astype("u1")

    def qparams(mode, bits):
        utils = m.quantization.utils
        dtype = m.core.tensor.dtype._builtin_quant_dtypes[bits] if m.__name__ == "megengine" else bits  # a name here, a record there
        zero = None if mode == "SYMMERTIC" else m.tensor(np.float32(3))
        return utils.create_qparams(getattr(utils.QuantMode, mode), dtype, scale=m.tensor(np.float32(0.05)), zero_point=zero)

    def observed(observer, *values):
        for v in values:
            observer(v)
        found = observer.get_qparams()
        return [found.scale] + ([found.zero_point] if found.zero_point is not None else [])

    return {
        "T": m.data.transform, "Q": m.quantization, "qparams": qparams, "pixels": pixels, "observed": observed,
        "picture": np.random.RandomState(1).randint(0, 255, (6, 9, 3)).astype("u1"), "boxes": np.array([[1, 2, 5, 4], [0, 0, 8, 5]], "f4"),
        "m": m, "F": m.functional, "M": m.module, "t": _Tensors(m), "np": np, "set_": set_, "ran": ran, "evaluated": evaluated, "grad": grad,
        "stepped": stepped, "clipped": clipped,
    }  # fmt: skip


def results(m, name: str) -> "list[np.ndarray]":
    """The arrays that a call gives."""
    got = eval(CALLS[name], scope_of(m))
    return [x.numpy() if hasattr(x, "numpy") else np.asarray(x) for x in (got if isinstance(got, (tuple, list)) else [got])]


def main(m) -> None:
    """Writes every result; what MegEngine refuses is left out, and said."""
    found = []
    for name in CALLS:
        try:
            some = results(m, name)
        except Exception as e:
            print(name, type(e).__name__, str(e)[:150], file=sys.stderr)
            continue
        for a in some:
            found.append((name, a))
    kinds = [f"{name}|{a.dtype}|{','.join(map(str, a.shape))}" for name, a in found]
    values = np.concatenate([a.astype("f8").reshape(-1) for _, a in found])
    np.savez_compressed(SAVED, kinds=np.array(kinds), values=values, made_by=np.array(VERSION))


if __name__ == "__main__":
    import megengine
    import megengine.core.tensor.dtype
    import megengine.data.transform
    import megengine.optimizer
    import megengine.quantization

    main(megengine)
