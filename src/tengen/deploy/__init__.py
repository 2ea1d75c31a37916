"""Ways out: a traced program as one file, that file as a model again, and the model as an object file for another machine."""

from tengen.deploy.checkpoint import load, save
from tengen.deploy.compile import Artifact, compile_model
from tengen.deploy.load import load_graph
from tengen.deploy.model import Model, Port
from tengen.deploy.run import CannotRun, run_artifact
from tengen.deploy.verify import Verified
from tengen.deploy.verify import verify as verify_artifact

__all__ = ["Artifact", "CannotRun", "Model", "Port", "Verified", "compile_model", "load", "load_graph", "run_artifact", "save", "verify_artifact"]
