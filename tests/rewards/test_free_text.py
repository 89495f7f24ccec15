from __future__ import annotations

import jiwer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score import rouge_scorer

from ktr.rewards import score_reply
from ktr.rewards.free_text import edit_distance


def accuracy(answer: str, gold: str, problem_type: str) -> float | None:
    return score_reply(f"<think>t</think><answer>{answer}</answer>", problem_type=problem_type, gold=gold).accuracy


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("STOP", "STOP", 1), ("STOP", "stop", 0), ("STOP", "STOP.", 0), ("STOP", "ＳＴＯＰ", 1),
        ("café", "cafe\u0301", 1),
        (" STOP ", "\nSTOP\n", 1),
        ("STOP AHEAD", "STOP HEAD", 0.5), ("STOP AHEAD", "STOP  AHEAD", 1), ("STOP\nAHEAD", "STOP AHEAD", 1),
        ("ab", "xyz uvw rst", 0), ("a b c", "a x c d", 1 / 3), ("红色的汽车", "红色汽车", 0.8),
        ("红色的汽车", "红 色 的 汽 车", 1),
        ("日本語テスト", "日本テスト", 5 / 6), ("한국어 문장", "한국어", 0.5), ("STOP 停车", "STOP 停", 2 / 3),
        ("ไทย", "ไท", 2 / 3),
    ],
)  # fmt: skip
def test_transcription(gold, answer, expected):
    assert accuracy(answer, gold, "OCR") == pytest.approx(expected)


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), st.lists(st.sampled_from("abcd"), max_size=12))
@settings(max_examples=200)
def test_edit_distance_is_word_errors(reference, hypothesis):
    counted = jiwer.process_words(" ".join(reference), " ".join(hypothesis)) if hypothesis else None
    errors = counted.substitutions + counted.insertions + counted.deletions if counted else len(reference)
    assert edit_distance(reference, hypothesis) == errors


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("a red car", "A red car."), ("a red car", " a  red\ncar "), ("a red car", "“A red car”"),
        ("a red car", "**a red car**"),
        ("a red car", "Answer: a red car"), ("a red car", "The answer is a red car."), ("Straße", "STRASSE"),
        ("ﬁne", "fine"),
        ("红色的汽车", "红色的汽车"), ("红色的汽车", "红色的汽车。"), ("ＡＢＣ", "abc"), ("кот", "Кот."),
        ("ไทย", "ไทย"), ("...", "..."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("problem_type", ["free-form", "open-ended"])
def test_equal_texts(problem_type, gold, answer):
    assert accuracy(answer, gold, problem_type) == 1.0


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        ("a red car", "a red truck", (2 / 3 + 1 / 2 + 2 / 3) / 3),
        ("red", "It is red", 0.5),  # one word: no ROUGE-2
        ("the cat sat", "sat cat the", (1 + 0 + 1 / 3) / 3),
        ("红色的汽车", "红色汽车", (8 / 9 + 4 / 7 + 8 / 9) / 3),
        ("a", "b", 0.0),
        ("a red car", "!!!", 0.0),
        ("кошка спит", "кошка ест", (0.5 + 0 + 0.5) / 3),
    ],
)
def test_partial_texts(gold, answer, expected):
    assert accuracy(answer, gold, "free-form") == pytest.approx(expected)


@given(
    st.lists(st.sampled_from(["running", "cars", "quickly", "the", "a", "blue", "boxes"]), min_size=2, max_size=10),
    st.lists(st.sampled_from(["run", "car", "quick", "the", "a", "blue", "box"]), min_size=1, max_size=10),
)
@settings(max_examples=100)
def test_english_scores_are_those_of_rouge_score(gold, answer):
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    scores = scorer.score(" ".join(gold), " ".join(answer))
    expected = sum(score.fmeasure for score in scores.values()) / 3
    if gold != answer:
        assert accuracy(" ".join(answer), " ".join(gold), "free-form") == pytest.approx(expected)


def test_open_ended_waits_for_a_judge():
    verdict = score_reply(
        "<think>t</think><answer>magnetic fluid</answer>", problem_type="open-ended", gold="ferrofluid"
    )
    assert (verdict.accuracy, verdict.format, verdict.status, verdict.parsed) == (
        None,
        1.0,
        "abstained",
        "magnetic fluid",
    )
