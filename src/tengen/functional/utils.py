"""MegEngine's namespace of what has moved to `functional.metric`."""

from tengen.functional.metric import topk_accuracy

__all__ = ["topk_accuracy"]
