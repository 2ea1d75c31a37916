"""The command ``tengen``: look at a model file, profile it, tune it, compile it for another machine, check the result, tidy the
cache, and see whether all that works here.

An error is one line on stderr and exit code 1 (2 for a wrong command line). Without a terminal the output is plain text.
"""

from __future__ import annotations

import click

from tengen.base.version import VERSION
from tengen.cli.common import HELP
from tengen.cli.later import add


@click.group(context_settings=HELP)
@click.version_option(VERSION, "--version", prog_name="tengen", message="%(prog)s %(version)s")
def main() -> None:
    """Tengen: the kernels that trained a model are the ones you ship."""


add(main, [
    ("cache", "cache:cache", "The compiled kernels that are kept on disk: this user's, and those that come with Tengen."),
    ("compile", "artifacts:compile_", "Compiles the file MODEL to an object file, a C header, a weights blob and an example in C."),
    ("completion", "completion:completion", "Prints what SHELL needs to complete this command's words."),
    ("config", "config:config", "Shows versions, processor, threads, cache and every knob: what a bug report needs."),
    ("doctor", "doctor:doctor", "Looks at this installation: Python, processor, whether kernels compile and are right, threads, cache, what "
     "verifying and the extras need."),
    ("export", "formats:export", "Writes the file MODEL as an ONNX file, which onnxruntime and others run; or, where OUT ends in .tflite, as a "
     "TFLite file."),
    ("generate", "generate:generate", "Continues a text with the network in FOLDER, which is in Hugging Face's layout: config.json, "
     "safetensors, tokenizer.json."),
    ("import", "formats:import_", "Makes a model file of the ONNX or TFLite file SOURCE."),
    ("info", "info:info", "Shows what the file MODEL holds: inputs, outputs, ops, weights."),
    ("plan", "plan:plan", "Shows the best mesh for training NETWORK with 1, 2, 4 ... processes: the time of a step, of what it consists, and "
     "memory."),
    ("profile", "profile:profile", "Runs the file MODEL on random inputs and shows the time of every kernel, its arithmetic and its memory "
     "traffic."),
    ("run", "run:run", "Runs a Python program in several processes of this machine, which `tengen.distributed` joins to one job."),
    ("serve", "serve:serve", "Answers requests over HTTP with the files MODEL, by the Open Inference Protocol that KServe, Triton and their "
     "clients speak."),
    ("summary", "summary:summary", "Shows the modules of NETWORK: what each returns, holds and computes."),
    ("targets", "targets:targets", "Lists what `tengen compile --target` compiles for: what is promised of results, how that was tested, and "
     "what runs it here."),
    ("tune", "tune:tune", "Makes the kernels of the file MODEL faster on this machine by measuring, and keeps every bit."),
    ("verify", "artifacts:verify", "Runs the artifact in FOLDER and compares its outputs with those of the file MODEL, bit by bit."),
])  # fmt: skip


if __name__ == "__main__":
    main()
