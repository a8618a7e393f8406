"""Policies: capacity, memory that stays in its episode, and derivatives that are written by hand."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from bakeoff.workloads.gridworld import kernels
from bakeoff.workloads.gridworld.capacity import CELL_CODES, CELLS, EXTRA_CODES, HEADS, TRAINED, WINDOW, capacity
from bakeoff.workloads.gridworld.policies import POLICIES, Inputs, Policy, Stepwise, Trxl, VitReset

Unroll = Callable[[Policy, Inputs], tuple[Tensor, Tensor]]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    torch.set_num_threads(1)


def rng(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def made(name: str, width: int = 40) -> Policy:
    policy = POLICIES[name](width)
    policy.initialise(rng)
    return policy


def inputs(steps: int, envs: int, start: float = 0.02) -> Inputs:
    draws = rng("inputs")
    columns = [draws.integers(0, CELL_CODES, (steps, envs, CELLS))]
    columns += [draws.integers(0, codes, (steps, envs, 1)) for codes in EXTRA_CODES]
    starts = draws.random((steps, envs)) < start
    starts[0] = True
    return Inputs(torch.from_numpy(np.concatenate(columns, -1).astype(np.uint8)), torch.from_numpy(starts))


def part(given: Inputs, steps: slice) -> Inputs:
    return Inputs(given.codes[steps], given.starts[steps])


@pytest.mark.parametrize("width", [40, 64, 128])
def test_policies_have_the_same_number_of_parameters(width: int) -> None:
    sizes = {name: POLICIES[name](width).size for name in TRAINED}
    assert sizes == {name: capacity(name, width).parameters for name in TRAINED}
    assert max(sizes.values()) <= 1.02 * min(sizes.values())
    assert all(capacity(name, width).flops > 2 * 4 * width * width for name in TRAINED)


def test_the_default_policies_have_about_fifty_thousand_parameters() -> None:
    assert 47_500 < capacity("vit_reset", 64).parameters < 52_500


@pytest.mark.parametrize("name", TRAINED)
def test_acting_step_by_step_is_the_unroll_also_across_the_end_of_an_episode(name: str) -> None:
    policy, given = made(name), inputs(3 * WINDOW, 5)  # longer than the memory, and than its cache
    assert given.starts[1:].any()
    with torch.no_grad():
        logits, values, past = policy.unroll(given, policy.initial(5))
        half = policy.unroll(part(given, slice(0, 70)), policy.initial(5))
        rest = policy.unroll(part(given, slice(70, None)), half[2])
    assert torch.allclose(torch.cat((half[1], rest[1])), values, atol=1e-6)
    for actor in (policy.actor(policy.initial(5)), Stepwise(policy, policy.initial(5))):
        for step in range(len(given.codes)):
            acted, value = actor.act(part(given, slice(step, step + 1)))
            assert torch.allclose(acted, logits[step], atol=1e-6) and torch.allclose(value, values[step], atol=1e-6)
        assert all(torch.allclose(a.float(), b.float(), atol=1e-6) for a, b in zip(actor.past, past, strict=True))


@pytest.mark.parametrize("name", TRAINED)
def test_memory_never_crosses_an_episode(name: str) -> None:
    policy, given = made(name), inputs(40, 2, start=0.0)
    given.starts[20] = True
    other = Inputs(given.codes.clone(), given.starts)
    other.codes[:20] = 0
    with torch.no_grad():
        one, two = (policy.unroll(each, policy.initial(2))[0] for each in (given, other))
    assert torch.equal(one[20:], two[20:])
    given.starts[20] = other.starts[20] = False
    with torch.no_grad():
        one, two = (policy.unroll(each, policy.initial(2))[0] for each in (given, other))
    assert torch.equal(one[20:], two[20:]) == (name == "memoryless"), "without the end, only this one forgets"


def plain_vit_reset(policy: VitReset, given: Inputs) -> Tensor:
    """The same network with automatic derivatives: embeddings of all cells, a linear layer, torch.nn.GRU's formulas."""
    x, width = encoded(policy, given), policy.width
    state, outputs = torch.zeros(x.shape[1], width), []
    for step in range(len(x)):
        state = state * ~given.starts[step][:, None]
        gates, part = policy.gates(x[step]), state @ policy.state + policy.state_bias
        r, z = (gates + part)[:, : 2 * width].sigmoid().chunk(2, 1)
        n = (gates[:, 2 * width :] + r * part[:, 2 * width :]).tanh()
        state = (1 - z) * n + z * state
        outputs.append(state)
    return policy.head(torch.stack(outputs))


def plain_trxl(policy: Trxl, given: Inputs) -> Tensor:
    x, width = encoded(policy, given), policy.width
    steps, envs = given.starts.shape
    split = (steps, envs, HEADS, width // HEADS)
    normed = policy.norm_before(x)
    query = (policy.query(normed) * (HEADS / width) ** 0.5).view(split)
    keys, values = (each.reshape(split) for each in policy.key_value(normed).chunk(2, 2))
    place = policy.place.view(HEADS, width // HEADS, WINDOW)
    episode = given.starts.long().cumsum(0)
    mixed = torch.zeros(split)
    for step in range(steps):
        before = range(max(0, step - WINDOW + 1), step + 1)
        scores = []
        for other in before:
            m = WINDOW - 1 - (step - other)
            score = (query[step] * (keys[other] + place[:, :, m])).sum(-1) + policy.place_bias[:, m]
            scores.append(score.masked_fill((episode[other] != episode[step])[:, None], -1e9))
        weights = torch.stack(scores).softmax(0)
        mixed[step] = (weights[..., None] * values[before.start : before.stop]).sum(0)
    x = x + policy.mixed(mixed.view(steps, envs, width))
    return policy.head(policy.norm_after(x + policy.layer(policy.norm_between(x))))


def encoded(policy: VitReset | Trxl, given: Inputs) -> Tensor:
    embedded = policy.glyphs[given.cells.long()]
    weights = policy.view.view(policy.glyphs.shape[1], CELLS, policy.width)
    x = torch.einsum("tbcd,dcw->tbw", embedded, weights) + policy.offset
    begin = 0
    for column, codes in enumerate(EXTRA_CODES, CELLS):
        x = x + policy.extra[begin + given.codes[..., column].long()]
        begin += codes
    return x.relu()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "plain"), [("vit_reset", plain_vit_reset), ("trxl", plain_trxl)])
def test_compiled_loops_and_their_derivatives_are_those_of_the_plain_network(name: str, plain: Unroll) -> None:
    policy, given = made(name), inputs(WINDOW + 9, 3, start=0.05)
    for weight in policy.parameters():
        weight.data += 0.1 * torch.from_numpy(rng(str(weight.shape)).standard_normal(weight.shape).astype(np.float32))
    weights = torch.from_numpy(rng("loss").standard_normal((WINDOW + 9, 3, 6)).astype(np.float32))
    expected = plain(policy, given)  # type: ignore[arg-type]
    logits, values, _ = policy.unroll(given, policy.initial(3))
    output = torch.cat((logits, values[..., None]), -1)
    assert torch.allclose(output, expected, atol=1e-5)
    gradients = [torch.autograd.grad((o * weights).sum(), list(policy.parameters())) for o in (output, expected)]  # type: ignore[operator]
    for (parameter, _), ours, theirs in zip(policy.named_parameters(), *gradients, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4 * float(theirs.abs().max()) + 1e-6), parameter


def test_policies_of_a_seed_start_with_equal_numbers_where_shapes_allow() -> None:
    one, two = (dict(made(name).named_parameters()) for name in ("vit_reset", "trxl"))
    shared = [name for name in one if name in two and one[name].shape == two[name].shape]
    assert {"glyphs", "view", "extra", "head.weight"} <= set(shared)
    assert all(torch.equal(one[name], two[name]) for name in shared)


def test_actions_are_drawn_with_the_probabilities_of_the_policy() -> None:
    kernels.compile_kernels()
    logits = np.log(np.array([[0.1, 0.2, 0.3, 0.25, 0.15]], np.float32)).repeat(20_000, 0)
    actions, logprobs = np.empty(20_000, np.int64), np.empty(20_000, np.float32)
    kernels.choose(logits, rng("draws").random(20_000, dtype=np.float32), actions, logprobs)
    assert np.allclose(np.bincount(actions) / 20_000, [0.1, 0.2, 0.3, 0.25, 0.15], atol=0.012)
    assert np.allclose(logprobs, logits[0][actions], atol=1e-6)
    kernels.choose(logits, np.full(20_000, np.nextafter(np.float32(1), np.float32(0))), actions, logprobs)
    assert set(actions) == {4}
