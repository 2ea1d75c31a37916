"""What this installation is: versions, processor, threads, cache, knobs. For bug reports, and for a first look."""

from __future__ import annotations

import importlib.metadata
import platform
import sys

from tengen.base.config import KNOBS, config
from tengen.base.version import VERSION
from tengen.codegen.targets import Target
from tengen.runtime import cache, pack, tiers
from tengen.runtime.provenance import provenance

WHEELS = ("numpy", "llvmlite", "ml_dtypes", "click", "ziglang")


def config_table() -> list[tuple[str, str]]:
    """(what, value) of everything that `show_config` shows."""
    rows = [("tengen", VERSION), ("python", f"{platform.python_version()} {sys.implementation.name}")]
    for name in WHEELS:
        try:
            rows.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            rows.append((name, "not installed"))
    host, kept = Target.host(), cache.info()
    rows += [
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("processor", f"{host.cpu}, vectors of {host.vector_bytes} bytes"),
        ("features", " ".join(f for f in host.architecture.notable if host.has(f)) or "none of note"),
        ("threads", str(config.threads)),
        ("processes", _processes()),
        ("programs", _programs()),
        ("cache", f"{kept.path}: {kept.entries} kernels, {kept.bytes / 1e6:.1f} of {kept.limit / 1e6:.0f} MB"),
        *pack_rows(),
        ("machine code", provenance.summary()),
    ]
    return rows + [(f"{variable}", repr(getattr(config, name))) for name, (variable, *_) in KNOBS.items()]


def pack_rows() -> list[tuple[str, str]]:
    """(what, value) of the packs that come with Tengen."""
    found = [("pack", f"{name}: {state}") for name, state in pack.states(Target.host())]
    return found or [("pack", "none came with this installation; help: tengen cache warm compiles what is called first")]


def _processes() -> str:
    group = sys.modules.get("tengen.transport.group")  # a process that has not loaded it is one
    return "one" if group is None else group.about()


def _programs() -> str:
    s = tiers.statistics
    return (
        f"{s.good} loaded with good code, {s.postponed} with good code from the background, {s.quick} with quick code, which was "
        f"replaced in {s.replaced}; {tiers.background.pending} modules in the background"
    )


def show_config() -> None:
    """Prints versions, processor, threads, the cache, the packs that come with Tengen, where the machine code of this process came from,
    and every knob with its value."""
    rows = config_table()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
