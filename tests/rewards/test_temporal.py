from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktr.rewards.temporal import TemporalReward, temporal_bonus


@pytest.mark.parametrize(
    ("ordered", "shuffled", "bonuses", "paid"),
    [
        ([1, 0, 1, 0], [0, 0], (0.3, 0, 0.3, 0), True),
        ([1, 0], [1, 0], (0.3, 0), True),
        ([1, 0, 0, 0, 0], [1, 0, 0, 0], (0.3, 0, 0, 0, 0), True),  # 0.2 >= 0.8 * 0.25
        ([1, 0, 0, 0], [1, 1], (0, 0, 0, 0), False),
        ([0, 0], [0, 0], (0, 0), False),  # nothing right: nothing is paid although 0 >= 0.8 * 0
        ([0.1, 0.11], [0, 0], (0, 0.3), True),
        ([1, 1], [], (0, 0), None),
        ([None, None], [0], (0, 0), None),
        ([1, None], [0], (0.3, 0), True),
        ([1, 0], [None], (0, 0), None),
    ],
)
def test_bonus(ordered, shuffled, bonuses, paid):
    result = temporal_bonus(ordered, shuffled)
    assert result.bonuses == pytest.approx(bonuses)
    assert result.paid is paid


def test_keys():
    assert temporal_bonus([1, 0], [1, 0], mu=1.1).paid is False
    assert temporal_bonus([1, 0], [0], alpha=0.5).bonuses == (0.5, 0.0)
    assert temporal_bonus([0.4, 0], [0], threshold=0.5).paid is False
    with pytest.raises(ValueError, match="mu"):
        TemporalReward(mu=-1)


scores = st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), min_size=1, max_size=8)


@given(scores, scores)
def test_only_right_ordered_completions_are_ever_paid(ordered, shuffled):
    result = temporal_bonus(ordered, shuffled)
    assert len(result.bonuses) == len(ordered)
    assert all(bonus == 0.0 or (score or 0.0) > 0.1 for bonus, score in zip(result.bonuses, ordered, strict=True))


def test_groups_are_compared_apart():
    reward = TemporalReward()
    rewards = reward(
        ["a", "a", "b", "b"],
        ["x"] * 4,
        shuffled_accuracy=[[0.0], [0.0], [1.0], [1.0]],
        problem_type=["numerical"] * 4,
        answer=["5"] * 4,
        accuracy_reward=[1.0, 0.0, 1.0, 0.0],
        group=[0, 0, 1, 1],
    )
    assert rewards == [0.3, 0.0, 0.0, 0.0]


def test_images_have_nothing_to_compare():
    columns = {"problem_type": ["numerical"], "answer": ["5"]}
    assert TemporalReward()(["a"], ["<answer>5</answer>"], shuffled_accuracy=[None], **columns) == [0.0]
    assert TemporalReward()(["a"], ["<answer>5</answer>"], shuffled_accuracy=[[0.0]], **columns) == [0.3]
