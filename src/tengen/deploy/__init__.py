"""Ways out: a traced program as one file, that file as a model again, and the model as an object file for another machine."""

from tengen.deploy.checkpoint import load, save
from tengen.deploy.load import load_graph
from tengen.deploy.model import Model, Port

__all__ = ["Model", "Port", "load", "load_graph", "save"]
