from __future__ import annotations

import math

import pytest

from ktr.rewards.lengths import CosineLengthReward, LengthWindowReward, RepetitionPenalty, SoftOverlongReward


def tagged(answer: str) -> str:
    return f"<think>t</think><answer>{answer}</answer>"


def tokens(*lengths: int) -> list[list[int]]:
    return [[1] * length for length in lengths]


def window(reward, answers, lengths, **columns):
    count = len(answers)
    return reward(
        ["q"] * count, [tagged(answer) for answer in answers], tokens(*lengths),
        problem_type=["numerical"] * count, answer=["5"] * count, **columns,
    )  # fmt: skip


def test_the_window_pays_right_replies_of_its_lengths():
    reward = LengthWindowReward()
    assert window(reward, ["5"] * 5 + ["6"], [319, 320, 400, 512, 513, 400]) == [0.0, 0.2, 0.2, 0.2, 0.0, 0.0]


def test_the_window_needs_two_right_replies_in_the_group():
    reward = LengthWindowReward()
    assert window(reward, ["5", "6"], [400, 400]) == [0.0, 0.0]
    answers, lengths = ["5", "6", "5", "5"], [400] * 4
    assert window(reward, answers, lengths, group=[0, 0, 1, 1]) == [0.0, 0.0, 0.2, 0.2]
    assert window(reward, answers, lengths, id=["a", "b", "a", "b"]) == [0.2, 0.0, 0.2, 0.0]
    assert window(LengthWindowReward(min_right=1), ["5", "6"], [400, 400]) == [0.2, 0.0]


def test_neighbours_with_one_prompt_are_a_group_without_ids():
    reward = LengthWindowReward()
    columns = {"problem_type": ["numerical"] * 4, "answer": ["5"] * 4}
    replies = [tagged("5"), tagged("6"), tagged("5"), tagged("5")]
    assert reward(["p", "p", "q", "q"], replies, tokens(400, 400, 400, 400), **columns) == [0.0, 0.0, 0.2, 0.2]


def test_known_accuracies_are_not_computed_again():
    reward = LengthWindowReward(threshold=0.5)
    assert window(reward, ["6", "6", "6"], [400] * 3, accuracy_reward=[1.0, 0.6, 0.5]) == [0.2, 0.2, 0.0]
    assert window(reward, ["6", "6", "6"], [400] * 3, accuracy_reward=[1.0, None, 1.0]) == [0.2, 0.0, 0.2]


@pytest.mark.parametrize(("length", "score"), [(0, 0), (80, 0), (85, -0.25), (90, -0.5), (100, -1), (500, -1)])
def test_soft_overlong(length, score):
    assert SoftOverlongReward(max_length=100, buffer=20)(["q"], ["x"], tokens(length)) == [pytest.approx(score)]


def test_cosine_length_moves_between_its_end_values():
    reward = CosineLengthReward(max_length=100)
    for right, ends in ((1.0, (1.0, 0.5)), (0.0, (-1.0, -0.5))):
        scores = window(reward, ["x"] * 4, [0, 50, 100, 200], accuracy_reward=[right] * 4)
        middle = (ends[0] + ends[1]) / 2
        assert scores == [pytest.approx(value) for value in (ends[0], middle, ends[1], ends[1])]
    quarter = window(reward, ["x"], [25], accuracy_reward=[1.0])[0]
    assert quarter == pytest.approx(0.5 + 0.5 * 0.5 * (1 + math.cos(math.pi / 4)))
    assert window(reward, ["x"], [25], accuracy_reward=[None]) == [None]
    assert window(reward, ["5", "6"], [0, 0]) == [1.0, -1.0]


@pytest.mark.parametrize(
    ("text", "penalty"),
    [
        ("a b a b", -1 / 3),
        ("a b c d", 0.0),
        ("a a a a a", -0.75),
        ("", 0.0),
        ("a", 0.0),
        ("A. b, a! B", -1 / 3),
        ("红色红色", -1 / 3),
    ],
)
def test_repetition(text, penalty):
    assert RepetitionPenalty(ngram=2)(["q"], [text]) == [pytest.approx(penalty)]
    assert RepetitionPenalty(ngram=2, weight=2.0)(["q"], [text]) == [pytest.approx(2 * penalty)]


@pytest.mark.parametrize(
    "build",
    [lambda: LengthWindowReward(low=10, high=5), lambda: SoftOverlongReward(10, 20), lambda: SoftOverlongReward(10, 0),
     lambda: CosineLengthReward(0), lambda: RepetitionPenalty(ngram=0), lambda: RepetitionPenalty(weight=-1.0)],
)  # fmt: skip
def test_impossible_settings_are_refused(build):
    with pytest.raises(ValueError, match=r"(needs|must)"):
        build()
