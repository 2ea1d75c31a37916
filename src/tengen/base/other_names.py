"""What PyTorch and NumPy call things that have another name or another place here: a table for messages about names that are not
there. A name that comes to exist leaves it (`tests/names/test_other_names.py`)."""

from __future__ import annotations

_MODULE = "tengen.module"
_F = "tengen.functional"

# owner -> {name: what to write here}
NAMES: dict[str, dict[str, str]] = {
    "tengen": {
        "nn": _MODULE, "optim": "tengen.optimizer", "cuda": "tengen.device", "compile": "tengen.trace",
        "no_grad": "tengen.autodiff.no_grad", "inference_mode": "tengen.autodiff.no_grad",
        "enable_grad": "tengen.autodiff.enable_grad", "set_grad_enabled": "tengen.autodiff.no_grad",
        "Generator": "tengen.random.RNG", "manual_seed": "tengen.random.seed", "get_rng_state": "tengen.random.get_state",
        "set_rng_state": "tengen.random.set_state", "dtype": "a text, as 'float32'", "Size": "a tuple",
        "set_num_threads": "tengen.set_threads", "grad": "tengen.autodiff.grad", "vjp": "tengen.autodiff.vjp",
        "set_default_dtype": "dtype='float32' where a tensor is made",
        **{d: f"the text {d!r}" for d in ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64",
        "uint8", "bool")},
        **{d: f"the text {t!r}" for d, t in {"half": "float16", "double": "float64", "long": "int64", "bool_": "bool"}.items()},
        **{f: f"{_F}.{f}" for f in (
            "abs", "add", "arange", "argmax", "argmin", "argsort", "clip", "concat", "cos", "cross", "cumsum", "div", "dot",
            "einsum", "exp",
            "eye", "flatten", "flip", "floor", "full", "full_like", "gather", "linspace", "log", "matmul", "max", "maximum",
            "mean",
            "meshgrid", "min", "minimum", "mul", "norm", "ones", "ones_like", "outer", "pow", "prod", "relu", "repeat",
            "reshape", "roll",
            "round", "scatter", "sigmoid", "sin", "softmax", "sort", "split", "sqrt", "square", "squeeze", "stack", "std",
            "sub", "sum",
            "tanh", "tile", "topk", "transpose", "tril", "triu", "var", "where", "zeros", "zeros_like", "bmm",
        )},
        **{f: f"tengen.random.{f}" for f in ("rand", "randn", "randperm", "randint", "bernoulli", "multinomial", "normal")},
        "autograd": "tengen.autodiff", "func": "tengen.autodiff", "is_grad_enabled": "nothing: no_grad holds for its block",
        "numel": "x.size", "ndarray": "tengen.Tensor", "array": "tengen.Tensor", "concatenate": f"{_F}.concat",
        "rand_like": "tengen.random.uniform(size=x.shape)", "randn_like": "tengen.random.normal(size=x.shape)",
        "is_floating_point": "x.dtype.is_float", "set_printoptions": "numpy.set_printoptions", "onnx": "tengen.interop.onnx",
        "stft": "tengen.fft.stft", "istft": "tengen.fft.istft",
        "multiprocessing": "the module multiprocessing of Python's", "export": "tengen.trace(net).dump(file)",
        "cat": f"{_F}.concat", "from_numpy": "tengen.Tensor", "as_tensor": "tengen.Tensor", "Adam": "tengen.optimizer.Adam",
        "Module": f"{_MODULE}.Module", "Sequential": f"{_MODULE}.Sequential", "Linear": f"{_MODULE}.Linear",
        "GradManager": "tengen.autodiff.GradManager", "DataLoader": "tengen.data.DataLoader",
    },
    "tengen.pytorch.jit": {
        "fork": "the call itself: all threads work on one", "wait": "the result itself", "trace_module": "trace, of a function for each method",
    },
    "tengen.pytorch.fx": {
        "experimental": "nn.utils.fuse_conv_bn_eval and a pass of one's own", "PH": "concrete_args of symbolic_trace",
    },
    "tengen.pytorch.utils": {
        "tensorboard": "the package tensorboard, or tensorboardX: a SummaryWriter takes numbers, x.item(), and arrays, x.numpy()",
        "model_zoo": "hub, of local folders", "flop_counter": "tengen.utils.module_stats", "cpp_extension": "tengen.custom_ops (also of C)",
        "mobile_optimizer": "torch.export.save and the command `tengen compile`", "bottleneck": "what torch.profiler shows",
    },
    "tengen.pytorch.nn": {
        **dict.fromkeys(("quantized", "qat", "intrinsic", "quantizable"), "tengen.quantization"), "grad": "a call of autograd.grad",
    },
    "tengen.pytorch.distributed": {
        "checkpoint": "tengen.save_checkpoint", "nn": "tengen.functional.distributed (its functions have gradients)",
        "device_mesh": "tengen.distributed.Mesh", "init_device_mesh": "tengen.distributed.Mesh", "fsdp": "tengen.distributed.shard(stage=3)",
        "tensor": "tengen.distributed.Mesh", "pipelining": "tengen.distributed.Pipeline",
        "rpc": "messages: send, recv and broadcast_object_list",
        "elastic": "`tengen run`", "run": "`tengen run`", "launch": "`tengen run`", "optim": "tengen.distributed.shard(stage=1)",
        "algorithms": "tengen.distributed",
    },
    "tengen.pytorch": {
        **dict.fromkeys(
            ("ao", "quantization"),
            "tengen.quantization (quantize_weights(net, activations='int8') in the place of quantize_dynamic; of networks that import "
            "tengen.module, quantize_qat and quantize, and calibration)",
        ),
        "library": "tengen.custom_ops or an autograd.Function", "ops": "the functions of torch and torch.nn.functional, or tengen.custom_ops",
        "_inductor": "nothing to set: torch.compile", "functional": "torch itself, which has its functions", "futures": "multiprocessing",
        "serialization": "torch.save and torch.load, whose files have no code", "storage": "the tensor: x.numpy() has its memory",
        "package": "export.save", "quasirandom": "SciPy's stats.qmc.Sobol", "torch_version": "version",
        "_C": "torch and its packages",
        "nested": "tensors of one length and a mask: nn.utils.rnn.pad_sequence, or packed sequences",
        "masked": "a tensor and a mask of bools: where, masked_fill, masked_select",
        **dict.fromkeys(("UntypedStorage", "Storage", "TypedStorage", "FloatStorage", "is_storage"), "the tensor: x.numpy() has its memory"),
        "overrides": "a custom autograd.Function, or a module",
        **{n: "a dense tensor: none is sparse here, and optim.SparseAdam takes dense gradients" for n in (
            "sparse", "sparse_coo", "sparse_coo_tensor", "sparse_csr", "sparse_csr_tensor")},
    },
    "tengen.functional": {
        "cat": "concat", "concatenate": "concat", "clamp": "clip", "unsqueeze": "expand_dims", "mm": "matmul",
        "view": "reshape", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg",
        "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
        "arctanh": "atanh", "power": "pow", "remainder": "mod", "dropout2d": "tengen.module.Dropout2d", "absolute": "abs",
        "square_": "square", "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
        "gt": "greater", "ge": "greater_equal", "hardsigmoid": "hsigmoid", "hardswish": "hswish", "swish": "silu",
        "repeat_interleave": "repeat", "take_along_dim": "take_along_axis",
        "expand": "broadcast_to", "masked_select": "x[mask]",
        "upsample": "vision.interpolate", "percentile": "quantile",
        "stft": "tengen.fft.stft", "istft": "tengen.fft.istft", "conv_transpose": "conv_transpose2d", "log_sigmoid": "logsigmoid",
        "array": "tengen.Tensor", "pad_sequence": "tengen.module.utils.rnn.pad_sequence",
    },
    "tengen.optimizer": {
        "zero_grad": "the method clear_grad",
    },
    "tengen.data": {
        "DistributedSampler": "world_size and rank of a sampler",
        "transforms": "transform", "datasets": "dataset",
        **{d: f"dataset.{d}" for d in ("MNIST", "CIFAR10", "CIFAR100", "COCO", "ImageFolder", "ImageNet", "PascalVOC",
        "Cityscapes")},
    },
    "tengen.autodiff": {
        "inference_mode": "no_grad", "set_grad_enabled": "no_grad", "backward": "the method of a GradManager",
        "jacrev": "jacobian", "jacfwd": "jacobian", "grad_and_value": "value_and_grad", "gradcheck": "jacobian, beside differences",
        "functional_call": "net.load_state_dict, or a function of tensors", "detect_anomaly": "tengen.debug.check_finite",
    },
    "tengen.module": {
        "functional": _F, "LeakyRelu": "LeakyReLU", "MultiheadAttention": "MultiHeadAttention",
        "DataParallel": "nothing: all threads work on a batch",
    },
}  # fmt: skip
