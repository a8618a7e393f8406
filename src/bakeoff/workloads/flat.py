"""Networks whose weights are one vector, and files of tensors, for the workloads that train."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

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


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """`torch.save` so that after a crash the file is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
