"""`torch.backends.cuda`, which does not compute here. Its switches may be set; Tengen's results have the same bits anyway."""

from types import SimpleNamespace

matmul = SimpleNamespace(allow_tf32=False, allow_fp16_reduced_precision_reduction=False, allow_bf16_reduced_precision_reduction=False)


def is_built() -> bool:
    """False."""
    return False
