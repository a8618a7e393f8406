"""Networks whose weights are one vector, for the workloads that train."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FlatModule(nn.Module):
    """A network with all weights in one vector, whose parameters are views of it, and all gradients in another.

    The norm of a gradient and a step of Adam are then a few operations on vectors, which is most of the time that small
    networks would lose. Call `flatten` at the end of `__init__`.
    """

    flat: Tensor
    """All weights."""
    flat_gradient: Tensor

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.flat.numel()

    def flatten(self) -> None:
        """Move the parameters into `flat`, and their gradients into `flat_gradient`."""
        weights = list(self.parameters())
        self.flat = torch.cat([weight.detach().reshape(-1) for weight in weights])
        self.flat_gradient = torch.zeros_like(self.flat)
        start = 0
        for weight in weights:
            end = start + weight.numel()
            weight.data = self.flat[start:end].view_as(weight)
            weight.grad = self.flat_gradient[start:end].view_as(weight)
            start = end
