"""The policies. All read the same numbers and differ in what they remember of an episode:

- `vit_reset`: a gated recurrent unit, whose state is reset at the start of an episode
- `trxl`: one pre-norm transformer layer over the last 64 steps of the episode, with relative positions
- `memoryless`: a feed-forward layer, which remembers nothing

A policy of your own is a subclass of `Policy` with `initial` and `unroll`, named as `module:Class`. It keeps the weights
that it was made with, from torch's generator, which the run seeds. Memory never crosses an episode: `unroll` learns from
`Inputs.starts` where episodes begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bakeoff.workloads.gridworld import kernels
from bakeoff.workloads.gridworld.capacity import (
    ACTIONS,
    CELL_CODES,
    CELLS,
    COLUMNS,
    DEPTH,
    EXTRA_CODES,
    HEADS,
    WINDOW,
    capacity,
)
from bakeoff.workloads.gridworld.levels import RESOURCES
from bakeoff.workloads.training.flat import FlatModule

Past = Any
"""What a policy remembers of the steps so far: tensors [envs, ...] in tuples, lists or dicts; those of the built-in
policies are tuples."""
Output = tuple[Tensor, Tensor, Past]
"""Logits [steps, envs, ACTIONS], values [steps, envs], and the past after the last step."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a policy is told: some steps of some environments."""

    codes: Tensor
    """uint8 [steps, envs, COLUMNS]: the 49 cells of the view (2 * what is there + 1 if it cools down), the resources
    carried (0 or 1), the last action plus one, and whether it gave a heart. The last two are 0 when an episode starts."""
    starts: Tensor
    """bool [steps, envs]: whether a step is the first of its episode."""

    def of(self, envs: Tensor) -> Inputs:
        """The same steps of some environments."""
        return Inputs(self.codes[:, envs], self.starts[:, envs])

    @property
    def cells(self) -> Tensor:
        return self.codes[..., :CELLS]

    @property
    def carried(self) -> Tensor:
        return self.codes[..., CELLS : CELLS + RESOURCES]

    @property
    def last_action(self) -> Tensor:
        return self.codes[..., CELLS + RESOURCES]

    @property
    def last_heart(self) -> Tensor:
        return self.codes[..., CELLS + RESOURCES + 1]


def past_of(past: Past, envs: Tensor) -> Past:
    """The past of some environments."""
    if isinstance(past, Tensor):
        return past[envs]
    if isinstance(past, dict):
        return {key: past_of(value, envs) for key, value in past.items()}
    return tuple(past_of(value, envs) for value in past)


class Actor(Protocol):
    """A policy that acts step by step."""

    def act(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Logits [envs, ACTIONS] and values [envs] of one step; `inputs` has one."""
        ...

    @property
    def past(self) -> Past: ...


class Policy(FlatModule):
    """A policy network. Call `flatten` at the end of `__init__`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def initial(self, envs: int) -> Past:
        """The past before the first step."""
        raise NotImplementedError

    def unroll(self, inputs: Inputs, past: Past) -> Output:
        """Read some steps after `past`, which must not be changed."""
        raise NotImplementedError

    def actor(self, past: Past) -> Actor:
        """Act after `past`, with the weights of now. By default every step is an unroll of one step."""
        return Stepwise(self, past)

    @property
    def flops(self) -> int | None:
        """Floating-point operations of one step while acting, if known."""
        return None

    def initialise(self, rng: Callable[[str], np.random.Generator]) -> None:
        """Draw weights before the training. By default they stay as `__init__` made them."""


class Stepwise:
    """Acts by unrolling one step at a time."""

    def __init__(self, policy: Policy, past: Past) -> None:
        self._policy, self.past = policy, past

    @torch.no_grad()
    def act(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        logits, values, self.past = self._policy.unroll(inputs, self.past)
        return logits[0], values[0]


class BuiltIn(Policy):
    """What the built-in policies share: the encoder before the memory, and the heads after it."""

    name: str
    _own: tuple[Tensor, ...] = ()
    """The parameters that the built-in class made; those of a subclass are not drawn here."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        kernels.compile_kernels()
        self.capacity = capacity(self.name, width)
        self.glyphs = nn.Parameter(torch.empty(CELL_CODES, DEPTH))
        self.view = nn.Parameter(torch.empty(DEPTH, CELLS * width))
        self.extra = nn.Parameter(torch.empty(sum(EXTRA_CODES), width))
        self.offset = nn.Parameter(torch.empty(width))
        self.head = nn.Linear(width, ACTIONS + 1)
        begins = np.cumsum((CELL_CODES * CELLS, *EXTRA_CODES))[:-1]
        self._rows = (
            np.concatenate((np.arange(CELLS), begins)).astype(np.int64),
            np.concatenate((np.full(CELLS, CELLS), np.ones(len(EXTRA_CODES)))).astype(np.int64),
        )

    def flatten(self) -> None:
        self._own = self._own or tuple(self.parameters())
        super().flatten()

    @torch.no_grad()
    def initialise(self, rng: Callable[[str], np.random.Generator]) -> None:
        """Draw the weights. Each parameter has its own random numbers, by its name and shape, so that two policies of one
        seed start with the same numbers wherever they have the same parameter."""
        for name, weight in self.named_parameters():
            if not any(weight is own for own in self._own):
                continue
            if weight.dim() < 2:
                weight.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
                continue
            drawn = rng(f"weights {name} {list(weight.shape)}").standard_normal(tuple(weight.shape), dtype=np.float32)
            weight.copy_(torch.from_numpy(drawn) * self.scale(name, weight))

    def scale(self, name: str, weight: Tensor) -> Tensor | float:
        """The standard deviation of a weight's initial numbers: by default that each output of a layer has variance 1."""
        if name == "glyphs":
            return 1.0
        if name == "view":
            return 1 / math.sqrt(DEPTH * CELLS)
        if name == "extra":
            return 0.3
        if name == "head.weight":  # CleanRL's: nearly uniform actions, values of the usual size
            return torch.tensor([0.01] * ACTIONS + [1.0])[:, None] / math.sqrt(weight.shape[1])
        return 1 / math.sqrt(weight.shape[1])

    def encode(self, codes: Tensor) -> Tensor:
        """[steps, envs, COLUMNS] -> [steps, envs, width].

        A linear layer over the embeddings of all cells. What a cell contributes depends only on its place and on what it
        shows, so all contributions are computed once and then looked up: a sixteenth of the operations, the same numbers.
        """
        table = torch.cat(((self.glyphs @ self.view).view(CELL_CODES * CELLS, self.width), self.extra))
        sums: Tensor = Lookup.apply(table, codes.reshape(-1, COLUMNS), *self._rows)  # type: ignore[no-untyped-call]
        return functional.relu(sums + self.offset).view(*codes.shape[:-1], self.width)

    def heads(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        output = self.head(hidden)
        return output[..., :ACTIONS], output[..., ACTIONS]

    @property
    def flops(self) -> int | None:
        return self.capacity.flops


class Lookup(torch.autograd.Function):
    """Sums of rows of a table; see `kernels.add_rows`."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, codes: Tensor, first: Any, stride: Any) -> Tensor:
        sums = torch.empty(len(codes), table.shape[1])
        kernels.add_rows(table.detach().numpy(), codes.numpy(), first, stride, sums.numpy())
        ctx.arrays, ctx.shape = (codes, first, stride), table.shape
        return sums

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        codes, first, stride = ctx.arrays
        table = torch.zeros(ctx.shape)
        kernels.spread_rows(gradient.contiguous().numpy(), codes.numpy(), first, stride, table.numpy())
        return table, None, None, None


class VitReset(BuiltIn):
    """Encoder and gated recurrent unit. The state is reset at the start of an episode, also inside an unroll."""

    name = "vit_reset"

    def __init__(self, width: int = 64) -> None:
        super().__init__(width)
        self.gates = nn.Linear(width, 3 * width)
        self.state = nn.Parameter(torch.empty(width, 3 * width))
        self.state_bias = nn.Parameter(torch.empty(3 * width))
        self.flatten()

    def scale(self, name: str, weight: Tensor) -> Tensor | float:
        return 1 / math.sqrt(self.width) if name == "state" else super().scale(name, weight)

    def initial(self, envs: int) -> Past:
        return (torch.zeros(envs, self.width),)

    def unroll(self, inputs: Inputs, past: Past) -> Output:
        gates = self.gates(self.encode(inputs.codes))
        keep = (~inputs.starts).float()
        hidden: Tensor = Recurrence.apply(gates, self.state, self.state_bias, past[0], keep)  # type: ignore[no-untyped-call]
        return *self.heads(hidden), (hidden[-1].detach(),)


class Recurrence(torch.autograd.Function):
    """A gated recurrent unit over [steps, envs]; formulas as in torch.nn.GRU."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, bias: Tensor, past: Tensor, keep: Tensor) -> Tensor:
        steps, envs, width = *gates.shape[:2], past.shape[1]
        gates = gates.detach().clone()
        before, after, inner = (torch.empty(steps, envs, width) for _ in range(3))
        product = torch.empty(envs, 3 * width)
        torch.mul(past, keep[0][:, None], out=before[0])
        arrays = [tensor.numpy() for tensor in (gates, product, before, after, inner, keep)]
        for step in range(steps):
            torch.addmm(bias, before[step], weight, out=product)
            kernels.gru_step(step, *arrays)
        ctx.save_for_backward(weight, gates, before, inner, keep)
        return after

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        weight, gates, before, inner, keep = ctx.saved_tensors
        steps, envs, width = before.shape
        gate_grad, part_grad = torch.empty(2, *gates.shape)
        carry, transposed = torch.zeros(envs, width), weight.t().contiguous()
        arrays = [
            tensor.numpy() for tensor in (gates, before, inner, gradient.contiguous(), carry, gate_grad, part_grad)
        ]
        for step in reversed(range(steps)):
            kernels.gru_step_back(step, *arrays)
            torch.addmm(carry, part_grad[step], transposed, out=carry).mul_(keep[step][:, None])
        parts = part_grad.view(steps * envs, 3 * width)
        return gate_grad, before.view(steps * envs, width).t() @ parts, parts.sum(0), carry, None


class FeedForward(nn.Module):
    """Two linear layers with a ReLU between them."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        narrowed: Tensor = self.narrow(functional.relu(self.wide(x)))
        return narrowed


class Memoryless(BuiltIn):
    """Encoder and a feed-forward layer: what an agent reaches that cannot remember what it found out."""

    name = "memoryless"

    def __init__(self, width: int = 64) -> None:
        super().__init__(width)
        self.layer = FeedForward(width, self.capacity.feed_forward)
        self.flatten()

    def initial(self, envs: int) -> Past:
        return ()

    def unroll(self, inputs: Inputs, past: Past) -> Output:
        encoded = self.encode(inputs.codes)
        return *self.heads(functional.relu(self.layer(encoded))), ()


class Trxl(BuiltIn):
    """Encoder and one pre-norm transformer layer. A step attends to itself and the 63 steps before it in its episode.

    The past is the layer's inputs, not its keys and values, as in Transformer-XL: those are computed with the weights of
    now, and an unroll before the first update gives exactly what was given while acting.
    """

    name = "trxl"

    def __init__(self, width: int = 64) -> None:
        super().__init__(width)
        self.norm_before = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.place = nn.Parameter(torch.empty(width, WINDOW))
        self.place_bias = nn.Parameter(torch.empty(HEADS, WINDOW))
        self.mixed = nn.Linear(width, width)
        self.norm_between = nn.LayerNorm(width)
        self.layer = FeedForward(width, self.capacity.feed_forward)
        self.norm_after = nn.LayerNorm(width)
        self.flatten()

    def scale(self, name: str, weight: Tensor) -> Tensor | float:
        if name in ("place", "place_bias"):
            return 0.1
        return super().scale(name, weight)

    def initial(self, envs: int) -> Past:
        return torch.zeros(envs, WINDOW - 1, self.width), torch.full((envs,), -1)

    def unroll(self, inputs: Inputs, past: Past) -> Output:
        earlier, age = past
        steps, envs = inputs.starts.shape
        encoded = self.encode(inputs.codes).transpose(0, 1)
        ages = torch.empty(envs, steps, dtype=torch.int64)
        kernels.count_ages(inputs.starts.numpy(), age.numpy(), ages.numpy())
        layer_inputs = torch.cat((earlier, encoded), 1)
        normed = self.norm_before(layer_inputs)
        key_value = self.key_value(normed)
        last = torch.full((envs,), WINDOW - 1)
        query = self.asked(normed[:, WINDOW - 1 :])
        mixed: Tensor = Attention.apply(query, key_value, self.place, self.place_bias, ages, last)  # type: ignore[no-untyped-call]
        logits, values = self.finish(encoded, mixed)
        after = (layer_inputs[:, -(WINDOW - 1) :].detach(), ages[:, -1])
        return logits.transpose(0, 1), values.transpose(0, 1), after

    def asked(self, normed: Tensor) -> Tensor:
        scaled: Tensor = self.query(normed) * math.sqrt(HEADS / self.width)
        return scaled

    def finish(self, encoded: Tensor, mixed: Tensor) -> tuple[Tensor, Tensor]:
        """Everything behind the attention."""
        x = encoded + self.mixed(mixed)
        return self.heads(self.norm_after(x + self.layer(self.norm_between(x))))

    def actor(self, past: Past) -> Actor:
        return CachedActor(self, past)


class Attention(torch.autograd.Function):
    """Attention over a window of steps; see `kernels.attend`. `query` is [envs, steps, width], `key_value` [envs, earlier
    and present steps, 2 * width], `last` the position of the first query in it."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key_value: Tensor, place: Tensor, bias: Tensor, ages: Tensor, last: Tensor
    ) -> Tensor:
        envs, steps, width = query.shape
        query = query.detach().contiguous().view(envs, steps, HEADS, -1)
        keys, values = by_head(key_value)
        places = place.detach().view(HEADS, -1, WINDOW)
        weights, mixed = torch.empty(envs, steps, HEADS, WINDOW), torch.empty_like(query)
        arrays = (query, keys, values, places, bias.detach(), ages, last, weights, mixed)
        kernels.attend(*(tensor.numpy() for tensor in arrays))
        ctx.save_for_backward(query, keys, values, places, last, weights)
        return mixed.view(envs, steps, width)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        saved = ctx.saved_tensors
        query, keys, _, places, *_ = saved
        envs, heads, depth, positions = keys.shape
        both, query_grad = torch.zeros(2, *keys.shape), torch.empty_like(query)
        place_grad, bias_grad = torch.zeros_like(places), torch.zeros(heads, WINDOW)
        arrays = (*saved, gradient.contiguous().view(query.shape), query_grad, *both, place_grad, bias_grad)
        kernels.attend_back(*(tensor.numpy() for tensor in arrays))
        key_value = both.permute(1, 4, 0, 2, 3).reshape(envs, positions, 2 * heads * depth)
        return query_grad.flatten(2), key_value, place_grad.view(-1, WINDOW), bias_grad, None, None


def by_head(key_value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values [envs, heads, depth, positions] of [envs, positions, 2 * width]."""
    envs, positions, _ = key_value.shape
    both = key_value.detach().view(envs, positions, 2, HEADS, -1).permute(2, 0, 3, 4, 1).contiguous()
    return both[0], both[1]


class CachedActor:
    """Acts with `trxl` and keeps the keys and values of earlier steps, in arrays twice as long as the window. When they
    are full, the last window moves to their beginning."""

    @torch.no_grad()
    def __init__(self, policy: Trxl, past: Past) -> None:
        self._policy = policy
        earlier, self._age = past
        envs, depth = len(earlier), policy.width // HEADS
        self._inputs = torch.zeros(envs, 2 * WINDOW, policy.width)
        self._keys, self._values = torch.zeros(2, envs, HEADS, depth, 2 * WINDOW)
        self._weights, self._mixed = torch.empty(envs, 1, HEADS, WINDOW), torch.empty(envs, 1, HEADS, depth)
        self._place, self._bias = policy.place.detach().view(HEADS, -1, WINDOW), policy.place_bias.detach()
        keys, values = by_head(policy.key_value(policy.norm_before(earlier)))
        self._next = WINDOW - 1
        self._inputs[:, : self._next], self._keys[..., : self._next] = earlier, keys
        self._values[..., : self._next] = values

    @torch.no_grad()
    def act(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        policy, at = self._policy, self._next
        if at == 2 * WINDOW:
            at, kept = WINDOW - 1, slice(WINDOW + 1, None)
            self._inputs[:, :at] = self._inputs[:, kept].clone()
            for cache in (self._keys, self._values):
                cache[..., :at] = cache[..., kept].clone()
        self._next = at + 1
        encoded = policy.encode(inputs.codes)[0]
        envs = len(encoded)
        self._age = torch.where(inputs.starts[0], 0, self._age + 1)
        normed = policy.norm_before(encoded)
        keys, values = by_head(policy.key_value(normed)[:, None])
        self._inputs[:, at], self._keys[..., at], self._values[..., at] = encoded, keys[..., 0], values[..., 0]
        query, last = policy.asked(normed).view(envs, 1, HEADS, -1), torch.full((envs,), at)
        arrays = (
            query, self._keys, self._values, self._place, self._bias, self._age[:, None], last, self._weights, self._mixed,
        )  # fmt: skip
        kernels.attend(*(tensor.numpy() for tensor in arrays))
        return policy.finish(encoded, self._mixed.view(envs, policy.width))

    @property
    def past(self) -> Past:
        return self._inputs[:, self._next - WINDOW + 1 : self._next].clone(), self._age


POLICIES: dict[str, type[BuiltIn]] = {policy.name: policy for policy in (VitReset, Trxl, Memoryless)}
