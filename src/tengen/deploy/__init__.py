"""Ways out: a traced program as one file, that file as a model again, and the model as an object file for another machine.

`trace.dump` writes the file (`dump_model` that of a loaded model again). `load` (the same as `tengen.load_graph`) makes it a
`Model`, `compile_model` an `Artifact`; `run_artifact` runs that, and `verify_artifact` compares the two.
"""

from typing import TYPE_CHECKING

from tengen.base.lazy import names_of

if TYPE_CHECKING:
    from tengen.deploy.compile import Artifact, compile_model
    from tengen.deploy.dump import dump_model
    from tengen.deploy.emulators import CannotRun
    from tengen.deploy.loader import load_graph
    from tengen.deploy.loader import load_graph as load
    from tengen.deploy.model import Model, Port
    from tengen.deploy.packages import FORMS, package
    from tengen.deploy.processing import with_processing
    from tengen.deploy.run import run_artifact
    from tengen.deploy.verify import Verified
    from tengen.deploy.verify import verify as verify_artifact

__getattr__ = names_of(__name__, {  # a program that is only traced needs none of them
    "tengen.deploy.compile": "Artifact compile_model",
    "tengen.deploy.dump": "dump_model",
    "tengen.deploy.emulators": "CannotRun",
    "tengen.deploy.loader": "load_graph load=load_graph",
    "tengen.deploy.model": "Model Port",
    "tengen.deploy.packages": "FORMS package",
    "tengen.deploy.processing": "with_processing",
    "tengen.deploy.run": "run_artifact",
    "tengen.deploy.verify": "Verified verify_artifact=verify",
})  # fmt: skip

__all__ = [
    "FORMS", "Artifact", "CannotRun", "Model", "Port", "Verified", "compile_model", "dump_model", "load", "load_graph", "package",
    "run_artifact", "verify_artifact", "with_processing",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
