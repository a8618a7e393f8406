"""Networks whose weights are one vector, and the optimizer that steps along it."""

from __future__ import annotations

import itertools

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
        """The number of parameters, those that are not trained included."""
        return sum(weight.numel() for weight in self.parameters())

    def flatten(self) -> None:
        """Move the parameters into `flat`, and their gradients into `flat_gradient`. Those with `requires_grad` False
        stay where they are, and nothing trains them. Raises ValueError for parameters of several types."""
        weights = [weight for weight in self.parameters() if weight.requires_grad]
        types = {weight.dtype for weight in weights}
        if len(types) > 1:
            raise ValueError(f"parameters must be of one type, not of {', '.join(sorted(map(str, types)))}")
        self.flat = torch.cat([weight.detach().reshape(-1) for weight in weights])
        self.flat_gradient = torch.zeros_like(self.flat)
        start = 0
        for weight in weights:
            end = start + weight.numel()
            weight.data = self.flat[start:end].view(weight.shape)
            weight.grad = self.flat_gradient[start:end].view(weight.shape)
            start = end

    @property
    def is_flat(self) -> bool:
        """Whether every parameter that is trained still is a part of `flat`, and its gradient one of `flat_gradient`."""
        if not hasattr(self, "flat"):
            return False
        weights = [weight for weight in self.parameters() if weight.requires_grad]
        starts = [0, *itertools.accumulate(weight.numel() for weight in weights)]
        size = self.flat.element_size()
        return starts[-1] == self.flat.numel() and all(
            weight.data_ptr() == self.flat.data_ptr() + start * size
            and weight.grad is not None
            and weight.grad.data_ptr() == self.flat_gradient.data_ptr() + start * size
            for weight, start in zip(weights, starts, strict=False)
        )


class Adam:
    """AdamW on the weights of a flat network. `forgetting` and `epsilon` are 1 - beta2 and eps of the paper; beta1 is 0.9."""

    def __init__(self, network: FlatModule, *, forgetting: float, epsilon: float, weight_decay: float = 0.0) -> None:
        self.network = network
        self.forgetting, self.epsilon, self.weight_decay = forgetting, epsilon, weight_decay
        self.mean = torch.zeros_like(network.flat)
        self.square = torch.zeros_like(network.flat)
        self.steps = 0

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Go one step along the gradient, which is set to zero afterwards."""
        weights, gradient, kept = self.network.flat, self.network.flat_gradient, 1 - self.forgetting
        self.steps += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(kept).addcmul_(gradient, gradient, value=self.forgetting)
        if self.weight_decay:
            weights.mul_(1 - rate * self.weight_decay)
        scale = (self.square / (1 - kept**self.steps)).sqrt_().add_(self.epsilon)
        weights.addcdiv_(self.mean, scale, value=-rate / (1 - 0.9**self.steps))
        gradient.zero_()

    def restore(self, mean: Tensor, square: Tensor, steps: int) -> None:
        """Go on from the moments and the number of steps of a checkpoint."""
        self.mean.copy_(mean)
        self.square.copy_(square)
        self.steps = steps


class Diverged(Exception):
    """The training cannot go on: the loss or the gradient is no longer finite, or the network no longer gets it."""
