from __future__ import annotations

import pytest

from ktr.rewards.components import AccuracyReward, FormatReward, completion_text


def tagged(answer: str) -> str:
    return f"<think>t</think><answer>{answer}</answer>"


class FixedJudge:
    def __init__(self, opinions):
        self.opinions, self.asked = opinions, []

    def same_answer(self, cases):
        self.asked += cases
        return self.opinions[: len(cases)]


def test_each_row_is_scored_by_its_own_type():
    rewards = AccuracyReward()(
        ["", "", ""],
        [tagged("B."), [{"role": "assistant", "content": tagged("5.0")}], tagged("STOP HEAD")],
        problem_type=["multiple choice", "numerical", "OCR"],
        answer=["B", "5", "STOP AHEAD"],
        options=[["A. red", "B. blue"], [], None],
        id=["1", "2", "3"],
        category=["x", "y", "z"],
    )
    assert rewards == [1.0, 1.0, 0.5]


def test_policy_metric_and_tags_reach_the_scorer():
    row = {"problem_type": ["multiple choice"], "answer": ["B"], "options": [["A. red", "B. blue"]]}
    assert AccuracyReward(policy="video_r1")([""], [tagged("B.")], **row) == [0.0]
    assert AccuracyReward(require_tags=False)([""], ["B"], **row) == [1.0]
    regression = {"problem_type": ["regression"], "answer": ["10"]}
    assert AccuracyReward()([""], [tagged("9")], **regression) == [pytest.approx(0.9)]
    assert AccuracyReward(metric="mra")([""], [tagged("9")], **regression) == [pytest.approx(0.8)]


def test_unknown_settings_are_refused_when_built():
    with pytest.raises(ValueError, match="known: default, video_r1"):
        AccuracyReward(policy="lenient")
    with pytest.raises(ValueError, match="known: relative_error, mra, mra_vsibench"):
        AccuracyReward(metric="mse")
    with pytest.raises(ValueError, match="known: default, video_r1"):
        FormatReward(policy="lenient")


def test_format_by_policy():
    replies = [tagged("B"), tagged("B") + "\n", "<think></think><answer></answer>", "B"]
    assert FormatReward()(["q"] * 4, replies, id=list("abcd")) == [1.0, 1.0, 0.0, 0.0]
    assert FormatReward(policy="video_r1")(["q"] * 4, replies) == [1.0, 0.0, 1.0, 0.0]


def test_open_answers_abstain_without_a_judge():
    columns = {"problem_type": ["open-ended"] * 2, "answer": ["ferrofluid"] * 2, "question": ["What is it?"] * 2}
    assert AccuracyReward()(["", ""], [tagged("Ferrofluid."), tagged("magnetic fluid")], **columns) == [1.0, None]


def test_the_judge_is_asked_only_where_no_rule_decides():
    judge = FixedJudge([True, False, None])
    reward = AccuracyReward(judge=judge)
    columns = {
        "problem_type": ["open-ended"] * 5,
        "answer": ["ferrofluid"] * 5,
        "question": ["What is it?"] * 5,
    }
    replies = [tagged("Ferrofluid"), tagged("magnetic fluid"), "no tags", tagged("water"), tagged("oil")]
    verdicts = reward.verdicts(replies, columns["problem_type"], columns["answer"], None, columns["question"])
    assert [verdict.accuracy for verdict in verdicts] == [1.0, 1.0, 0.0, 0.0, None]
    assert [verdict.detail for verdict in verdicts] == ["", "judge", "", "judge", ""]
    assert judge.asked == [("What is it?", "ferrofluid", given) for given in ("magnetic fluid", "water", "oil")]


def test_completion_text_of_every_form():
    assert completion_text("a") == "a"
    assert completion_text([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]) == "a"
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert completion_text([{"role": "assistant", "content": parts}]) == "ab"
