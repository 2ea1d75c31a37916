"""`torch.backends.mps`, which does not compute here. Its switches may be set; Tengen's results have the same bits anyway."""

enabled, benchmark, deterministic, allow_tf32 = False, False, True, False


def is_available() -> bool:
    """False."""
    return False


def is_built() -> bool:
    """False."""
    return False


def version() -> None:
    """None: it is not here."""
    return None
