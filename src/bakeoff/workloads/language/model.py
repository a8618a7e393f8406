"""A small GPT, its optimizer, and sampling from language models in batches with cached keys and values.

`extend` is the only forward pass: it reads tokens after what a cache holds. Sampling calls it token by token, and
training calls it once for the prompts and once for all answers, so a group's prompt is computed once for all its
answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bakeoff.workloads.training.flat import Adam, FlatModule

if TYPE_CHECKING:
    import numpy.typing as npt

Cache = Any
"""What a model remembers of the tokens it has read. `GPT`: for each layer the keys and the values so far, [rows, heads,
positions, width of a head]."""


class Policy(FlatModule):
    """A causal language model that can be sampled from and trained."""

    ending: Tensor
    """For each token whether it ends an answer."""
    rows_at_once: int | None = None
    """How many answers fit into memory in an update (None: any number)."""

    def extend(self, tokens: Tensor, cache: Cache | None = None) -> tuple[Tensor, Cache]:
        """Read `tokens` [rows, length] after the cache: hidden states [rows, length, width] and the longer cache."""
        raise NotImplementedError

    def logits(self, hidden: Tensor) -> Tensor:
        raise NotImplementedError

    def repeated(self, cache: Cache, times: int) -> Cache:
        """Every row of the cache `times` times."""
        raise NotImplementedError

    def answer_logits(self, prompts: Tensor, answers: Tensor) -> Tensor:
        """Logits of every token of the answers, [rows, length, vocabulary].

        `prompts` [groups, length] and `answers` [groups * group size, length]: rows of a group stand together.
        """
        hidden, cache = self.extend(prompts)
        group = answers.shape[0] // prompts.shape[0]
        first = hidden[:, -1:].repeat_interleave(group, 0)
        rest, _ = self.extend(answers[:, :-1], self.repeated(cache, group))
        return self.logits(torch.cat((first, rest), 1))


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a model."""

    vocabulary: int
    positions: int
    """Longest prompt and answer together."""
    width: int = 64
    layers: int = 2
    heads: int = 4


class Block(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_attention = nn.LayerNorm(shape.width)
        self.attention = nn.Linear(shape.width, 3 * shape.width)
        self.mixed = nn.Linear(shape.width, shape.width)
        self.before_mlp = nn.LayerNorm(shape.width)
        self.wide = nn.Linear(shape.width, 4 * shape.width)
        self.narrow = nn.Linear(4 * shape.width, shape.width)

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor] | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, length, width = x.shape
        qkv = self.attention(self.before_attention(x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        if past is not None:
            key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
        scores = (query * (width // self.heads) ** -0.5) @ key.transpose(2, 3)
        if mask is not None:
            scores = scores + mask
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(rows, length, width)
        x = x + self.mixed(mixed)
        return x + self.narrow(functional.gelu(self.wide(self.before_mlp(x)))), key, value


class GPT(Policy):
    """A small model; the output layer is the embedding of tokens."""

    mask: Tensor

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.positions, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.last = nn.LayerNorm(shape.width)
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if weight.dim() == 2:
                    depth = (2 * shape.layers) ** -0.5 if "mixed" in name or "narrow" in name else 1.0
                    scale = 0.1 if "tokens" in name or "places" in name else shape.width**-0.5
                    weight.normal_(0.0, scale * depth, generator=generator)
                elif "bias" in name:
                    weight.zero_()
        mask = torch.full((shape.positions, shape.positions), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)
        self.register_buffer("ending", torch.arange(shape.vocabulary) == 0, persistent=False)
        self.flatten()

    def extend(self, tokens: Tensor, cache: Cache | None = None) -> tuple[Tensor, Cache]:
        start = cache[0][0].shape[2] if cache else 0
        end = start + tokens.shape[1]
        x = self.tokens(tokens) + self.places.weight[start:end]
        mask = self.mask[start:end, :end] if tokens.shape[1] > 1 else None
        longer = []
        for number, block in enumerate(self.blocks):
            x, key, value = block(x, cache[number] if cache else None, mask)
            longer.append((key, value))
        return self.last(x), longer

    def logits(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.tokens.weight)

    def repeated(self, cache: Cache, times: int) -> Cache:
        return [(key.repeat_interleave(times, 0), value.repeat_interleave(times, 0)) for key, value in cache]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Answers [rows, length] of a batch. What follows the token that ends an answer is 0 everywhere."""

    ids: Tensor
    logprobs: Tensor
    """Of the sampled tokens, at the temperature that they were sampled with."""
    mask: Tensor
    """1.0 for tokens that the model wrote, the one that ends an answer included."""
    entropy: Tensor
    """Shannon entropy of the distribution that each token was drawn from, in nats."""


@torch.no_grad()
def sample(
    model: Policy,
    prompts: Tensor,
    group: int,
    longest: int,
    draws: npt.NDArray[np.float32] | None,
    temperature: float = 1.0,
) -> Sampled:
    """`group` answers to each prompt, in the order of the prompts. `draws` are uniform numbers [length, rows], one for each
    token, so a row depends on its own numbers only; None takes the most likely token."""
    hidden, cache = model.extend(prompts)
    rows = prompts.shape[0] * group
    logits = model.logits(hidden[:, -1]).repeat_interleave(group, 0)
    cache = model.repeated(cache, group)
    alive = torch.ones(rows, dtype=torch.bool)
    ids, logprobs, masks, entropies = [], [], [], []
    for position in range(longest):
        scores = (logits / temperature).log_softmax(-1)
        chances = scores.exp()
        if draws is None:
            chosen = scores.argmax(-1)
        else:  # inverse of the cumulative distribution: seven times as quick as torch.multinomial
            totals = chances.cumsum(-1)
            points = torch.from_numpy(draws[position])[:, None] * totals[:, -1:]
            chosen = torch.searchsorted(totals, points, right=True)[:, 0].clamp_max_(scores.shape[1] - 1)
        chosen = chosen * alive
        masks.append(alive.float())
        ids.append(chosen)
        logprobs.append(scores.gather(1, chosen[:, None])[:, 0] * masks[-1])
        entropies.append(-(chances * scores).sum(-1) * masks[-1])
        alive = alive & ~model.ending[chosen]
        if position + 1 == longest or not alive.any():
            break
        hidden, cache = model.extend(chosen[:, None], cache)
        logits = model.logits(hidden[:, -1])
    return Sampled(torch.stack(ids, 1), torch.stack(logprobs, 1), torch.stack(masks, 1), torch.stack(entropies, 1))


def adam(model: Policy, weight_decay: float = 0.0) -> Adam:
    """Return AdamW as retrain configures it: betas 0.9 and 0.95, eps 1e-8. Its learning rate is constant."""
    return Adam(model, forgetting=0.05, epsilon=1e-8, weight_decay=weight_decay)
