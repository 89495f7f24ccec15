from __future__ import annotations

import pytest

from ktr.rewards import score_reply


def parsed(answer: str, gold: str = "Yes", problem_type: str = "yes/no", options: tuple[str, ...] = ()):
    verdict = score_reply(
        f"<think>t</think><answer>{answer}</answer>", problem_type=problem_type, gold=gold, options=options
    )
    return verdict.parsed or verdict.status


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Yes", "yes"), ("yes.", "yes"), ("YES!", "yes"), ("No", "no"), ("no", "no"), ("**Yes**", "yes"),
        ("\\boxed{No}", "no"),
        ("Y", "yes"), ("N", "no"), ("True", "yes"), ("false", "no"), ("是", "yes"), ("否", "no"), ("(Yes)", "yes"),
        ("Yes, it does", "yes"), ("No, it is not", "no"), ("Yes, there is no red car", "yes"),
        ("Yes - the man left", "yes"),
        ("The answer is yes", "yes"), ("The answer is no.", "no"), ("Answer: Yes", "yes"), ("I think yes", "yes"),
        ("There is no car, so no", "no"), ("Yes. There is no doubt.", "yes"),
        ("Yes and no", "ambiguous"), ("yes or no", "ambiguous"), ("yes/no", "ambiguous"), ("Yes, no", "ambiguous"),
        ("No. Yes.", "ambiguous"), ("Maybe", "no_answer"), ("It is not possible to tell", "no_answer"),
        ("Norway", "no_answer"),
        ("That is not true.", "no"), ("not false", "yes"), ("It is true", "yes"), ("1", "yes"), ("0", "no"),
    ],
)  # fmt: skip
def test_yes_and_no(answer, expected):
    assert parsed(answer) == expected


@pytest.mark.parametrize("problem_type", ["yes/no", "CRR", "SSR"])
def test_the_gold_decides(problem_type):
    for gold in ("Yes", "No", "<answer>yes</answer>", "no."):
        for answer in ("Yes", "No"):
            verdict = score_reply(f"<think>t</think><answer>{answer}</answer>", problem_type=problem_type, gold=gold)
            assert verdict.accuracy == float(answer.lower() in gold.lower())


def test_with_options_labels_count_too():
    options = ("A. Yes", "B. No")
    assert parsed("B", "No", options=options) == "B"
    assert parsed("No", "B", options=options) == "B"


def test_a_gold_that_says_neither_is_an_error():
    with pytest.raises(ValueError, match="must be yes or no, not 'perhaps'"):
        parsed("yes", "perhaps")
