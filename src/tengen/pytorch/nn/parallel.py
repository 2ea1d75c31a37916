"""`torch.nn.parallel`: a network on the one processor, and one that several processes train together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tengen import distributed as D
from tengen.base.errors import DeviceError
from tengen.pytorch.nn.module import Module
from tengen.tensor import Parameter


class DataParallel(Module):
    """The network itself, under the name `module`, as PyTorch's on a machine without GPUs.

    Args: device_ids, output_device: None, or empty. dim: accepted.
    Errors: DeviceError for devices that are not here
    """

    def __init__(self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0):
        super().__init__()
        if device_ids or output_device is not None:
            raise DeviceError(f"DataParallel(device_ids={device_ids}): there are no GPUs here; help: leave device_ids out")
        self.module = module

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


class DistributedDataParallel(Module):
    """A network whose gradients are the means of those of all processes, and whose first weights and buffers are rank 0's.

    Each gradient is combined when `backward` has it. Every process has to compute the gradients of the same parameters.

    Args: module: the network. process_group: a group of `torch.distributed`. device_ids, output_device: None. The others are accepted.
    Errors: DeviceError for devices that are not here
    """

    def __init__(
        self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0, broadcast_buffers: bool = True,
        process_group: Any = None, bucket_cap_mb: Any = None, find_unused_parameters: bool = False, check_reduction: bool = False,
        gradient_as_bucket_view: bool = False, static_graph: bool = False,
    ):  # fmt: skip
        super().__init__()
        if device_ids or output_device is not None:
            raise DeviceError(f"DistributedDataParallel(device_ids={device_ids}): there are no GPUs here; help: leave device_ids out")
        self.module = module
        self.require_backward_grad_sync = True
        self._group = D.WORLD if process_group is None else process_group
        if self._group.size > 1:
            D.bcast_list_([*module.parameters(), *module.buffers()], self._group)
            for p in module.parameters():
                p.register_post_accumulate_grad_hook(self._combine)

    def _combine(self, p: Parameter) -> None:
        if self.require_backward_grad_sync and p.grad is not None:
            p.grad = D.functional.all_reduce_sum(p.grad.detach(), self._group) / self._group.size

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose `backward` combines nothing: gradients add up, and are combined by the first one behind it."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before


__all__ = ["DataParallel", "DistributedDataParallel"]
