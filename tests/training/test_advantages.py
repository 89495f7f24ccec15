from __future__ import annotations

import ast
import inspect
import math
import textwrap
import types

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ktr.training.advantages import group_advantages

NAN = math.nan


def test_golden_with_the_sample_standard_deviation():
    result = group_advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0]]))
    std = math.sqrt(4 * 0.25 / 3)
    assert result.std_N.tolist() == pytest.approx([std])
    assert result.advantages_NG[0].tolist() == pytest.approx([x / (std + 1e-4) for x in (0.5, -0.5, -0.5, 0.5)])


def test_groups_do_not_mix():
    both = group_advantages(torch.tensor([[1.0, 0.0], [10.0, 30.0]]))
    for row, rewards in enumerate([[1.0, 0.0], [10.0, 30.0]]):
        alone = group_advantages(torch.tensor([rewards]))
        assert torch.equal(both.advantages_NG[row], alone.advantages_NG[0])


def test_an_abstained_completion_leaves_the_baseline_and_has_no_advantage():
    result = group_advantages(torch.tensor([[1.0, NAN, 0.0, NAN]]))
    alone = group_advantages(torch.tensor([[1.0, 0.0]]))
    assert result.advantages_NG[0, [0, 2]].tolist() == alone.advantages_NG[0].tolist()
    assert result.advantages_NG[0, [1, 3]].tolist() == [0.0, 0.0]
    assert result.mean_N.tolist() == [0.5] and not result.zero_variance_N.any()


@pytest.mark.parametrize("scale", ["group", "none"])
@pytest.mark.parametrize("row", [[0.7, 0.7, 0.7], [0.1, 0.1, NAN], [5.0, NAN, NAN], [NAN, NAN, NAN]])
def test_a_group_without_preference_is_flagged_and_exactly_silent(scale, row):
    result = group_advantages(torch.tensor([row, [0.0, 1.0, 0.5]]), scale=scale)
    assert result.zero_variance_N.tolist() == [True, False]
    assert result.advantages_NG[0].tolist() == [0.0, 0.0, 0.0]
    assert bool(torch.isfinite(result.advantages_NG).all()) and bool(result.advantages_NG[1].any())


def test_scales():
    rewards = torch.tensor([[0.0, 2.0], [1.0, 1.5]])
    assert group_advantages(rewards, scale="none").advantages_NG.tolist() == [[-1.0, 1.0], [-0.25, 0.25]]
    with pytest.raises(ValueError, match="group, none"):
        group_advantages(rewards, scale="std")


def test_an_infinite_reward_is_refused():
    with pytest.raises(ValueError, match="infinite"):
        group_advantages(torch.tensor([[1.0, math.inf]]))


@given(st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=8), st.floats(-3, 3, width=32))
def test_advantages_sum_to_zero_and_do_not_see_a_shift(rewards, shift):
    group = torch.tensor([rewards], dtype=torch.float64)
    result = group_advantages(group)
    assert float(result.advantages_NG.sum()) == pytest.approx(0.0, abs=1e-4)
    if not result.zero_variance_N and float(result.std_N) > 1e-3:
        assert torch.allclose(group_advantages(group + shift).advantages_NG, result.advantages_NG, atol=1e-4)


def trl_advantages(rewards_NG: torch.Tensor, scale: str) -> torch.Tensor:
    """Runs the statements of TRL's trainer that turn rewards into advantages, on a stand-in for the trainer."""
    module = pytest.importorskip("trl.trainer.grpo_trainer")
    source = textwrap.dedent(inspect.getsource(module.GRPOTrainer._generate_and_score_completions))
    branch = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("== 'sum_then_normalize'")
    )
    trainer = types.SimpleNamespace(
        multi_objective_aggregation="sum_then_normalize", reward_weights=torch.ones(1), scale_rewards=scale
    )
    names = vars(module) | {
        "self": trainer,
        "device": "cpu",
        "rewards_per_func": rewards_NG.reshape(-1, 1),
        "unscorable_mask": torch.isnan(rewards_NG).reshape(-1),
        "num_generations": rewards_NG.shape[1],
    }
    exec(compile(ast.Module([branch], []), "trl", "exec"), names)
    return torch.nan_to_num(names["advantages"], nan=0.0).view_as(rewards_NG)


@pytest.mark.parametrize("scale", ["group", "none"])
def test_equals_trl(scale):
    rewards = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    rewards[1, 3] = rewards[1, 4] = NAN
    rewards[2] = 1.0
    expected = trl_advantages(rewards, scale)
    assert torch.allclose(group_advantages(rewards, scale=scale).advantages_NG, expected, atol=2e-6)
