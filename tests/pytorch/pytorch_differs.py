"""Where `tengen.pytorch` is meant to differ from PyTorch's samples, with the reason of each; for `pytorch_samples.py`."""

from __future__ import annotations

from typing import Any

# numbers are drawn or left unset: structure, dtypes and shapes are compared
DRAWN = set(
    "bernoulli multinomial normal rand randn randint randperm rand_like randn_like randint_like nn.functional.dropout nn.functional.dropout2d "
    "nn.functional.dropout3d nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.rrelu "
    "empty empty_like empty_permuted empty_strided new_empty new_empty_strided uniform cauchy exponential geometric log_normal "
    "pca_lowrank svd_lowrank "
    "nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.scaled_dot_product_attention_dropout"
    .split()
)
# results whose signs (or complex phases) are open
PHASE = set("svd linalg.svd linalg.eigh linalg.eig linalg.qr qr geqrf symeig".split())

MODULES_SKIPPED: set[str] = set()


def SKIPPED(name: str) -> bool:
    """Operators that are outside of the dialect: sparse, quantised, private, and Python's references of others."""
    last = name.rpartition(".")[2]
    if name.startswith("__"):
        return name in ("__rmatmul__mkl",)
    return last.startswith("_") or name.startswith((
        "sparse.", "torch.ops", "ops.", "_refs", "jiterator", "to_sparse", "masked.", "nested", "torch._", "_",
    ))


# (names, or None for all; class; part of the text or of the call) -> why
EXPECTED: list[tuple[set[str] | None, str, str, str]] = []


def reason_of(name: str, found: Any) -> str | None:
    """Why a difference is meant, or None where it is a defect."""
    for names, kind, part, reason in EXPECTED:
        if (names is None or name in names) and kind in (found.kind, "*") and (part in found.text or part in found.call):
            return reason
    return None
