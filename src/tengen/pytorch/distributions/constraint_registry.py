"""`torch.distributions.constraint_registry`: transforms from all real numbers to a constraint."""

from tengen.distributions.constraint_registry import ConstraintRegistry, biject_to, transform_to

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]
