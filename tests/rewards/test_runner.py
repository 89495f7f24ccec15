from __future__ import annotations

import sys
import types

import pytest

from ktr.rewards.alarms import ConstantRewardAlarm
from ktr.rewards.components import AccuracyReward, FormatReward
from ktr.rewards.groups import group_members
from ktr.rewards.lengths import SoftOverlongReward
from ktr.rewards.runner import RewardFailure, RewardRunner
from ktr.rewards.signatures import FunctionReward, check_columns, load_reward
from ktr.rewards.temporal import TemporalReward


def tagged(answer: str) -> str:
    return f"<think>t</think><answer>{answer}</answer>"


def constant(*scores):
    return lambda completions, **columns: list(scores)


def test_totals_are_weighted_and_components_kept_apart():
    runner = RewardRunner({"accuracy": (AccuracyReward(), 1.0), "format": (FormatReward(), 0.5)})
    table = runner.score(
        ["q"] * 3, [tagged("5"), tagged("6"), "5"], problem_type=["numerical"] * 3, answer=["5"] * 3, id=["a", "b", "c"]
    )
    assert table.total == [1.5, 0.5, 0.0]
    assert table.by_component == {"accuracy": [1.0, 0.0, 0.0], "format": [1.0, 1.0, 0.0]}
    assert table.means_by(["video", "video", "image"]) == {
        "accuracy": {"video": 0.5, "image": 0.0}, "format": {"video": 1.0, "image": 0.0}
    }  # fmt: skip


def test_abstaining_components_drop_out_and_all_abstaining_is_none():
    runner = RewardRunner({"a": (constant(1.0, None, None), 1.0), "b": (constant(1.0, 1.0, None), 0.5)})
    table = runner.score(["q"] * 3, ["x"] * 3)
    assert table.total == [1.5, 0.5, None]
    assert (table.abstained, table.dropped) == ({"a": 2, "b": 1}, 1)
    assert runner.counts["dropped"] == 1 and runner.counts["abstained/a"] == 2
    assert table.means_by(["k", "k", "k"]) == {"a": {"k": 1.0}, "b": {"k": 1.0}}


def test_a_row_that_raises_abstains_and_is_recorded_alone():
    runner = RewardRunner({"accuracy": (AccuracyReward(), 1.0), "format": (FormatReward(), 1.0)})
    table = runner.score(
        ["q"] * 3,
        [tagged("5")] * 3,
        problem_type=["numerical", "riddle", "numerical"],
        answer=["5"] * 3,
        id=["a", "b", "c"],
    )
    assert table.by_component["accuracy"] == [1.0, None, 1.0]
    assert table.total == [2.0, 1.0, 2.0]
    (error,) = table.errors
    assert (error.component, error.position, error.row_id) == ("accuracy", 1, "b")
    assert "unknown problem_type 'riddle'" in error.message
    assert runner.errors == [error] and runner.counts["errors"] == 1


def test_a_group_reward_that_raises_loses_only_its_group():
    def fragile(prompts, completions, **columns):
        if "bad" in completions:
            raise KeyError("bad")
        return [1.0] * len(completions)

    table = RewardRunner({"fragile": (fragile, 1.0)}, max_error_share=1.0).score(
        ["p", "p", "q", "q"], ["x", "bad", "x", "x"], group=[0, 0, 1, 1], id=["a", "a", "b", "b"]
    )
    assert table.total == [None, None, 1.0, 1.0]
    assert [(error.position, error.row_id) for error in table.errors] == [(0, "a"), (1, "a")]


def test_the_run_stops_above_the_error_share():
    def broken(completions, **columns):
        raise RuntimeError("no server")

    with pytest.raises(
        RewardFailure, match=r"4 of 4 rewards raised \(100%, at most 5% allowed\).*broken on row 0.*no server"
    ):
        RewardRunner({"broken": (broken, 1.0)}).score(["q"] * 4, ["x"] * 4)


def test_a_few_errors_are_borne_until_enough_scores_are_known():
    def sometimes(completions, **columns):
        if any(text == "bad" for text in completions):
            raise ValueError("bad")
        return [1.0] * len(completions)

    sometimes.rowwise = True
    runner = RewardRunner({"sometimes": (sometimes, 1.0)}, min_scores=40)
    assert runner.score(["q"] * 20, ["bad"] + ["x"] * 19).total.count(None) == 1
    with pytest.raises(RewardFailure, match="4 of 40"):
        runner.score(["q"] * 20, ["bad"] * 3 + ["x"] * 17)


@pytest.mark.parametrize("scores", [[float("nan")], [float("inf")], [1.0, 1.0], ["high"]])
def test_scores_must_be_one_finite_number_per_completion(scores):
    with pytest.raises(RewardFailure):
        RewardRunner({"odd": (constant(*scores), 1.0)}).score(["q"], ["x"])


def test_earlier_scores_reach_later_components():
    seen = []

    def later(completions, accuracy_reward, **columns):
        seen.append(accuracy_reward)
        return [0.0] * len(completions)

    RewardRunner({"accuracy": (constant(1.0, None), 1.0), "later": (later, 1.0)}).score(["q"] * 2, ["x"] * 2)
    assert seen == [[1.0, None]]


def test_functions_without_catch_all_get_only_what_they_name():
    def strict(completions, answer):
        return [float(text == gold) for text, gold in zip(completions, answer, strict=True)]

    table = RewardRunner({"strict": (strict, 1.0)}).score(["q"], ["x"], answer=["x"], problem_type=["OCR"], other=[1])
    assert table.total == [1.0]


def test_columns_are_checked_before_anything_runs():
    def wants(prompts, completions, solution, level=1, **columns):
        return [0.0]

    with pytest.raises(
        ValueError, match="reward 'wants' needs solution, which the data lacks; known: answer, completion"
    ):
        check_columns(wants, ["answer", "id"])
    check_columns(wants, ["solution"])
    runner = RewardRunner({"accuracy": (AccuracyReward(), 1.0), "temporal": (TemporalReward(), 1.0)})
    with pytest.raises(ValueError, match="'temporal' needs shuffled_accuracy"):
        runner.check_columns(["answer", "problem_type"])
    runner.check_columns(["answer", "problem_type", "shuffled_accuracy"])


def test_rewards_are_found_by_name():
    module = types.ModuleType("a_reward_module")
    module.by_length = lambda completions, target, **columns: [float(len(text) == target[0]) for text in completions]
    sys.modules["a_reward_module"] = module
    try:
        reward = FunctionReward("a_reward_module:by_length")
        assert RewardRunner({"length": (reward, 2.0)}).score(["q"], ["four"], target=[4]).total == [2.0]
        with pytest.raises(ValueError, match="needs target"):
            check_columns(reward, ["answer"])
        with pytest.raises(ValueError, match="no function 'missing'"):
            load_reward("a_reward_module:missing")
    finally:
        del sys.modules["a_reward_module"]
    with pytest.raises(ValueError, match="cannot be imported"):
        load_reward("no_such_module:f")
    with pytest.raises(ValueError, match="module:function"):
        load_reward("no_colon")


def test_rewards_of_trl_work_here_and_ours_agree_with_them():
    from trl.rewards import get_soft_overlong_punishment, think_format_reward

    replies = [[{"role": "assistant", "content": text}] for text in ("<think>t</think>5", "5")]
    ids = [[1] * 85, [1] * 200]
    theirs = get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=20)
    components = {
        "think": (think_format_reward, 1.0),
        "long": (theirs, 1.0),
        "ours": (SoftOverlongReward(100, 20), 1.0),
    }
    runner = RewardRunner(components)
    runner.check_columns(["answer"])
    table = runner.score(["q"] * 2, replies, completion_ids=ids, answer=["5"] * 2)
    assert table.by_component["think"] == [1.0, 0.0]
    assert table.by_component["long"] == table.by_component["ours"] == [-0.25, -1.0]


def test_impossible_runners_are_refused():
    for build in (
        lambda: RewardRunner({}),
        lambda: RewardRunner({"a": ("text", 1.0)}),
        lambda: RewardRunner({"a": (constant(1.0), 1.0)}, max_error_share=2.0),
    ):
        with pytest.raises(ValueError, match="(component|max_error_share)"):
            build()


def test_group_members():
    assert group_members("aabb") == [[0, 1], [2, 3]]
    assert group_members("abab") == [[0], [1], [2], [3]]
    assert group_members("aaaa", id=["x", "y", "x", "y"]) == [[0, 2], [1, 3]]
    assert group_members("aaaa", group=[0, 0, 1, 1], id=["x"] * 4) == [[0, 1], [2, 3]]
    assert group_members([]) == []


def test_alarm_after_n_constant_steps_once_per_streak():
    alarm = ConstantRewardAlarm(steps=3)
    updates = [[0.0, 0.0], [0.0, None], [0.0], [0.0], [1.0], [1.0, 1.0], [None], [1.0]]
    raised = [alarm.update("accuracy", scores) for scores in updates]
    assert [text is not None for text in raised] == [False, False, True, False, False, False, False, True]
    assert raised[2] == "reward accuracy was 0 on every completion for 3 steps"
    assert raised[7] == "reward accuracy was 1 on every completion for 3 steps"


def test_alarm_resets_on_any_variation_and_keeps_components_apart():
    alarm = ConstantRewardAlarm(steps=2)
    assert alarm.update("a", [0.0]) is None
    assert alarm.update("b", [0.0]) is None
    assert alarm.update("a", [0.0, 1.0]) is None
    assert alarm.update("a", [0.0]) is None
    assert alarm.update("a", [0.5]) is None
    assert alarm.update("b", [0.0]) is not None
    with pytest.raises(ValueError, match="steps"):
        ConstantRewardAlarm(steps=0)
