"""The parts of a `Network` under MegEngine's names: variables, and the operators that make them.

A `VarNode` is a Tensor without a value that stands for a value of the network's graph; functions of tensors, called with one, add
nodes to that graph. An `OpNode` is what makes variables: a node of the graph, or an input or constant, which here are no nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tengen.base.errors import TraceError
from tengen.deploy.graphs import Node, Value
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.elsewhere import Elsewhere, refuse_writing
from tengen.utils.module_stats import register_flops, register_receptive_field, window_field

if TYPE_CHECKING:
    from tengen.utils.network import Network

__all__ = [
    "Broadcast", "Concat", "ConstOpBase", "ConvolutionBackwardData", "ConvolutionForward", "Dimshuffle", "Elemwise",
    "Host2DeviceCopy", "ImmutableTensor", "MatrixMul", "NetworkNode", "OpNode", "PoolingForward", "ReadOnlyOpNode", "Reduce", "Reshape",
    "SharedDeviceTensor", "Subtensor", "TypeCvt", "VarNode",
]  # fmt: skip


class NetworkNode:
    """A variable or an operator of a network.

    Attributes: name: unique among those of its kind; setting it renames. id: a number of its own.
    """

    name: Any

    @property
    def id(self) -> int:
        return id(self)


class VarNode(NetworkNode, Tensor):
    """A variable: a tensor without a value, of which functions of tensors make further variables of the network.

    Attributes: owner: the operator that makes it. users: operators that read it. shape, dtype: as of tensors; an open extent is arithmetic.
    """

    network: Network
    given: Any = None  # the value that an input has in runs of `comp_graph_tools.OutputNode`

    def __init__(self, network: Network, value: Value):
        self._node = None
        self._bind(network, value)

    def _bind(self, network: Network, value: Value) -> None:
        self.network, self._data, self._layout = network, value, Elsewhere(value.type, network)

    def __repr__(self) -> str:
        return f"VarNode:{self.name}"

    def __bool__(self) -> bool:
        raise TraceError(f"{self!r} has no value; help: GraphInference runs a network")

    def _reset(self, other: Any) -> None:
        refuse_writing()

    @property
    def name(self) -> str:
        return self.network.name_of(self._data)

    @name.setter
    def name(self, name: str) -> None:
        self.network.rename(self._data, name)

    @property
    def owner(self) -> OpNode:
        return self.network.owner_of(self._data)

    @property
    def users(self) -> list[OpNode]:
        return [o for o in self.network.all_oprs if any(v is self for v in o.inputs)]

    @property
    def partial_shape(self) -> tuple:
        """The shape."""
        return self.shape

    def numpy(self) -> np.ndarray:
        """The values of a constant. Errors: TraceError for what only a run knows."""
        return self.network.data_of(self._data)


class OpNode(NetworkNode):
    """An operator.

    Attributes: inputs, outputs: variables. params: attributes by name. type: MegEngine's name of its kind where it has one, else the op's
        name here. op: the op's name here.
    """

    ops: ClassVar[tuple[str, ...]] = ()

    def __init__(self, network: Network, of: Node | Value):
        self.network, self.of = network, of

    def __repr__(self) -> str:
        return f"{self.name}{{{self.type}}}"

    @property
    def node(self) -> Node:
        """The graph's node. Errors: TypeError for inputs and constants, which have none."""
        if not isinstance(self.of, Node):
            raise TypeError(f"{self!r} is no node of the graph; help: replace_vars replaces what it gives")
        return self.of

    @property
    def op(self) -> str:
        return self.of.op if isinstance(self.of, Node) else type(self).__name__

    @property
    def type(self) -> str:
        return self.op if type(self) is ReadOnlyOpNode else type(self).__name__

    @property
    def inputs(self) -> list[VarNode]:
        return [self.network.var_of(v) for v in self.of.inputs if v is not None] if isinstance(self.of, Node) else []

    @property
    def outputs(self) -> list[VarNode]:
        return [self.network.var_of(v) for v in (self.of.outputs if isinstance(self.of, Node) else [self.of])]

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.of.attrs) if isinstance(self.of, Node) else {}

    @property
    def name(self) -> str:
        return self.outputs[0].name

    @name.setter
    def name(self, name: str) -> None:
        self.outputs[0].name = name

    @property
    def priority(self) -> tuple[int, int]:
        """Its place in the order of all operators."""
        order = self.network.all_oprs
        return (next((i for i, o in enumerate(order) if o is self), len(order)), self.id)


class Host2DeviceCopy(OpNode):
    """An input. Attributes: shape: setting it derives all types again; a text as an extent is open. dtype. device: the processor."""

    device = "cpu0"

    @property
    def shape(self) -> tuple:
        return self.outputs[0].shape

    @shape.setter
    def shape(self, shape: Sequence[Any]) -> None:
        self.network.retype(self.outputs[0], shape)

    @property
    def dtype(self) -> Any:
        return self.outputs[0].dtype


class ConstOpBase(OpNode):
    """What provides a value that is known: see its subclasses."""

    device = "cpu0"

    @property
    def shape(self) -> tuple:
        return self.outputs[0].shape

    @property
    def dtype(self) -> Any:
        return self.outputs[0].dtype

    def numpy(self) -> np.ndarray:
        """The values, read-only."""
        return self.outputs[0].numpy()

    def set_value(self, data: Any, device: Any = None) -> None:
        """Other values, of any shape that fits those who read it; numbers take the dtype it has."""
        self.network.set_data(self.outputs[0], data)


class ImmutableTensor(ConstOpBase):
    """A constant."""


class SharedDeviceTensor(ConstOpBase):
    """A state: its value before the first run."""


class ReadOnlyOpNode(OpNode):
    """An operator that MegEngine has under no name of its own here."""


class Elemwise(OpNode):
    """Whatever is computed element by element."""


class ConvolutionForward(OpNode):
    ops = ("conv",)


class ConvolutionBackwardData(OpNode):
    ops = ("conv_transposed",)


class MatrixMul(OpNode):
    ops = ("matmul",)


class Reduce(OpNode):
    ops = ("sum", "mean", "max", "min", "prod", "all", "any")


class Reshape(OpNode):
    ops = ("reshape",)


class Dimshuffle(OpNode):
    ops = ("permute",)


class Broadcast(OpNode):
    ops = ("broadcast_to",)


class Subtensor(OpNode):
    ops = ("strided_slice",)


class Concat(OpNode):
    ops = ("concat",)


class TypeCvt(OpNode):
    ops = ("astype",)


class PoolingForward(OpNode):
    ops = ("max_pool", "avg_pool")


_KINDS = {name: kind for kind in OpNode.__subclasses__() for name in kind.ops}


@register_flops(ConvolutionForward)
def _flops_of_convolution(opr: Any, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> float:
    return outputs[0].size * math.prod(inputs[1].shape[1:])


@register_flops(MatrixMul)
def _flops_of_product(opr: Any, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> float:
    return outputs[0].size * inputs[0].shape[-2 if opr.params["transpose_a"] else -1]


@register_receptive_field(ConvolutionForward)
def _field_of_convolution(opr: Any, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> Any:
    return window_field(opr, inputs, outputs, inputs[1].shape[-2:], opr.params["stride"][-2:], opr.params["dilation"][-2:])


@register_receptive_field(PoolingForward)
def _field_of_pooling(opr: Any, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> Any:
    return window_field(opr, inputs, outputs, opr.params["kernel_size"], opr.params["stride"])


def kind_of(network: Network, of: Node | Value) -> type[OpNode]:
    """The class of the operator that a node of the graph, or what provides a value that no node makes, is."""
    if isinstance(of, Node):
        op = REGISTRY.get(of.op)
        return _KINDS.get(of.op) or (Elemwise if op is not None and op.kind == "elementwise" else ReadOnlyOpNode)
    if of in network.graph.inputs:
        return Host2DeviceCopy
    return ImmutableTensor if of.name in network.graph.constants else SharedDeviceTensor
