"""Options of MegEngine's `dump` that its programs give: in, what a caller gave beside Tengen's own; out, nothing or an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tengen.base.errors import ConfigError

_LAYOUTS = ("nchw4", "nchw32", "nchw44", "nchw44_dot", "nchw64", "nchw88", "chwn4", "hwcd4", "nhwcd4")
_FUSIONS = ("fuse_conv_bias_nonlinearity", "fuse_conv_bias_with_z", "fuse_preprocess", "fuse_grain")
_NO_EFFECT = {  # names are always kept, and layouts and fusions are chosen when a file is compiled
    "keep_var_name", "keep_opr_name", "keep_param_name", "keep_opr_priority", "no_change_graph", "optimize_for_inference", "enable_metadata",
    "dump_format", "model_version", "compat_older_version", "strip_info_file", "append_json", "repeat", "silent", "no_assert", "maxerr",
    "resize_input", *(f"enable_{name}" for name in (*_LAYOUTS, *_FUSIONS)),
}  # fmt: skip
_NOT_THERE = {
    "append": "a file holds one model; help: a file of its own",
    "user_info": "a model file keeps none; help: a file beside it",
    "input_data": "a file holds no cases to test it with; help: `tengen verify` compares an artifact with its file",
    "input_transform": "help: preprocess=, whose function becomes part of the program",
    "enable_io16xc32": "help: tengen.amp, or cast weights and inputs before the trace",
    "enable_ioc16": "help: tengen.amp, or cast weights and inputs before the trace",
}


def check_dump_options(where: str, options: Mapping[str, Any]) -> None:
    """Takes MegEngine's options of a dump that change nothing here, and those of another meaning where they are off.

    Args: where: the name of the function; options: names and values.
    Errors: ConfigError for what a file would have to keep or compute otherwise; TypeError for a name that there is not.
    """
    for name, value in options.items():
        if name not in _NO_EFFECT and name not in _NOT_THERE:
            raise TypeError(f"{where} has no option {name!r}")
        if name in _NOT_THERE and value is not None and value is not False:
            raise ConfigError(f"{where[:-1]}{name}=...): {_NOT_THERE[name]}")
