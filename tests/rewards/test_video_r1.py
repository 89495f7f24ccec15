"""The `video_r1` policy against a second implementation, written here from the published description alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jiwer
import pytest
from rouge_score import rouge_scorer

from ktr.rewards import score_reply

CASES = Path(__file__).parents[3] / "shared" / "cases" / "answers.jsonl"
EXPECTED = Path(__file__).with_name("video_r1_expected.jsonl")


def reference_accuracy(reply: str, gold: str, problem_type: str) -> float:
    blocks = re.findall("<answer>(.*?)</answer>", reply, flags=re.S)
    answer = blocks[0].strip() if blocks else ""
    if problem_type == "multiple choice":
        return float(answer == gold)
    if problem_type == "free-form":
        rouge = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True).score(gold, answer)
        return (rouge["rouge1"].fmeasure + rouge["rouge2"].fmeasure + rouge["rougeL"].fmeasure) / 3
    if problem_type == "OCR":
        return min(1.0, max(0.0, 1.0 - jiwer.wer(gold, answer)))
    if problem_type not in ("numerical", "regression"):
        return 0.0
    if problem_type == "numerical":
        answer_marked, gold_marked = (any(mark in text for mark in ".,") for text in (answer, gold))
        if answer_marked is not gold_marked:
            return 0.0
    try:
        value, target = (float("".join(text.split(","))) for text in (answer, gold))
    except ValueError:
        return 0.0
    if problem_type == "numerical":
        return float(round(value, 2) == round(target, 2))
    error = (abs(value - target) + 1e-9) / (abs(target) + 1e-9)
    return 1.0 if error != error else 1.0 - min(1.0, error)


def reference_format(reply: str) -> float:
    return float(re.match(r"\A<think>[\s\S]*?</think>\s*<answer>[\s\S]*?</answer>\Z", reply) is not None)


def expected() -> dict[int, dict]:
    rows = [json.loads(line) for line in EXPECTED.read_text(encoding="utf-8").splitlines()]
    return {row["id"]: row for row in rows}


@pytest.mark.skipif(not CASES.exists(), reason="the folder shared/cases is not beside the repository")
def test_shared_cases_score_as_the_release_scored_them():
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines() if line]
    wanted = expected()
    assert [case["id"] for case in cases] == sorted(wanted)
    for case in cases:
        values = wanted[case["id"]]
        verdict = score_reply(
            case["reply"], problem_type=case["type"], gold=case["gold"], options=case["options"], policy="video_r1"
        )
        assert reference_accuracy(case["reply"], case["gold"], case["type"]) == pytest.approx(
            values["accuracy"], abs=1e-12
        )
        assert reference_format(case["reply"]) == values["format"]
        assert verdict.accuracy == pytest.approx(values["accuracy"], abs=1e-12), case
        assert verdict.format == values["format"], case


def verdict_of(answer: str, gold: str, problem_type: str):
    return score_reply(
        f"<think>t</think><answer>{answer}</answer>", problem_type=problem_type, gold=gold, policy="video_r1"
    )


@pytest.mark.parametrize(
    ("problem_type", "gold", "answer"),
    [
        ("multiple choice", "B", " B "), ("multiple choice", "B", "b"), ("multiple choice", "B", ""),
        ("numerical", "5", "5.0"), ("numerical", "5.0", "5.00"), ("numerical", "1234", "1,234"),
        ("numerical", "1,234", "1234.0"),
        ("numerical", "0.001", "0.004"), ("numerical", "100", "1_00"), ("numerical", "5", "nan"),
        ("numerical", "5", "5 cars"),
        ("numerical", "1.5", "1,5"), ("numerical", "0.5", "1/2"), ("numerical", "-3", "−3"), ("numerical", "5", ""),
        ("regression", "5", "5"), ("regression", "0", "0"), ("regression", "5", "nan"), ("regression", "5", "inf"),
        ("regression", "10", "9"), ("regression", "10", "30"), ("regression", "2.5", "2.5 m"),
        ("regression", "1,000", "900"),
        ("OCR", "STOP AHEAD", "stop AHEAD"), ("OCR", "STOP", "a b c"), ("OCR", "红色的汽车", "红色汽车"),
        ("OCR", "a b", "a  b"),
        ("free-form", "a red car", "two red cars"), ("free-form", "红色的汽车", "红色的汽车"),
        ("free-form", "running", "run"),
        ("free-form", "a red car", ""),
    ],
)  # fmt: skip
def test_the_release_in_detail(problem_type, gold, answer):
    reply = f"<think>t</think><answer>{answer}</answer>"
    assert verdict_of(answer, gold, problem_type).accuracy == pytest.approx(
        reference_accuracy(reply, gold, problem_type), abs=1e-12
    )


def test_named_faults_are_kept():
    assert verdict_of("B.", "B", "multiple choice").accuracy == 0.0
    assert verdict_of("nan", "5", "regression").accuracy == 1.0
    assert verdict_of("0", "0", "regression").accuracy == 0.0
    assert verdict_of("0.004", "0.001", "numerical").accuracy == 1.0
    assert verdict_of("5", "5", "temporal grounding").accuracy == 0.0
    nested = "<think>maybe <answer>A</answer></think><answer>B</answer>"
    verdict = score_reply(nested, problem_type="multiple choice", gold="A", policy="video_r1")
    assert (verdict.accuracy, verdict.format, verdict.parsed) == (1.0, 1.0, "A")


@pytest.mark.parametrize(
    ("reply", "form"),
    [("<think></think><answer></answer>", 1), ("<think>a\nb</think>\n <answer>B</answer>", 1),
     ("<think>t</think><answer>B</answer>\n", 0),
     ("<Think>t</Think><answer>B</answer>", 0), ("<think>t</think>x<answer>B</answer>", 0)],
)  # fmt: skip
def test_format(reply, form):
    assert score_reply(reply, problem_type="OCR", gold="B", policy="video_r1").format == form
    assert reference_format(reply) == form


def test_gold_in_tags():
    verdict = score_reply(
        "<think>t</think><answer>B</answer>", problem_type="mcq", gold="<answer> B </answer>", policy="video_r1"
    )
    assert verdict.accuracy == 1.0
