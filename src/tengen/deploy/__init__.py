"""Ways out: a traced program as one file, that file as a model again, and the model as an object file for another machine.

`trace.dump` writes the file (`dump_model` that of a loaded model again). `load` (the same as `tengen.load_graph`) makes it a
`Model`, `compile_model` an `Artifact`; `run_artifact` runs that, and `verify_artifact` compares the two.
"""

from tengen.deploy.compile import Artifact, compile_model
from tengen.deploy.dump import dump_model
from tengen.deploy.emulators import CannotRun
from tengen.deploy.loader import load_graph
from tengen.deploy.model import Model, Port
from tengen.deploy.packages import FORMS, package
from tengen.deploy.run import run_artifact
from tengen.deploy.verify import Verified
from tengen.deploy.verify import verify as verify_artifact

load = load_graph

__all__ = [
    "FORMS", "Artifact", "CannotRun", "Model", "Port", "Verified", "compile_model", "dump_model", "load", "load_graph", "package",
    "run_artifact", "verify_artifact",
]  # fmt: skip
