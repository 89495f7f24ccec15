"""`score_reply` against the shared cases, and what holds for every problem type."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktr.rewards import POLICIES, PROBLEM_TYPES, canonical_type, check_problem_types, score_reply

CASES = Path(__file__).parents[3] / "shared" / "cases" / "answers.jsonl"
BENCHMARKS = Path(__file__).parents[3] / "shared" / "fixtures" / "benchmarks"
COLOURS = ("A. red", "B. blue", "C. green", "D. a red car")


def tagged(answer: str) -> str:
    return f"<think>t</think><answer>{answer}</answer>"


def cases() -> list[dict]:
    if not CASES.exists():
        return []
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines() if line]


@pytest.mark.skipif(not CASES.exists(), reason="the folder shared/cases is not beside the repository")
@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case['id']}-{case['type']}")
def test_shared_cases(case):
    verdict = score_reply(case["reply"], problem_type=case["type"], gold=case["gold"], options=case["options"])
    assert verdict.accuracy == pytest.approx(case["accuracy"], abs=1e-9), case["why"]
    assert verdict.format == case["format"], case["why"]


def benchmark_rows() -> list[dict]:
    rows = []
    for path in sorted(BENCHMARKS.glob("*.json*")):
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
        rows += [{**row, "file": path.stem} for row in found]
    return rows


@pytest.mark.skipif(not BENCHMARKS.exists(), reason="the folder shared/fixtures is not beside the repository")
@pytest.mark.parametrize("row", benchmark_rows(), ids=lambda row: f"{row['file']}-{row['problem_id']}")
def test_every_published_gold_scores_itself(row):
    answer = row["solution"].removeprefix("<answer>").removesuffix("</answer>")
    if answer.startswith("<think>"):
        answer = answer[len("<think>") : answer.index("</think>")]
    verdict = score_reply(
        tagged(answer), problem_type=row["problem_type"], gold=row["solution"], options=row["options"] or ()
    )
    assert (verdict.accuracy, verdict.format, verdict.status) == (1.0, 1.0, "ok")


def test_unknown_problem_type_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown problem_type 'riddle'.*multiple choice.*yes/no.*REC"):
        score_reply(tagged("B"), problem_type="riddle", gold="B")
    with pytest.raises(ValueError, match="'puzzle', 'riddle'"):
        check_problem_types(["OCR", "riddle", "puzzle"])
    with pytest.raises(ValueError, match="unknown problem_type 'riddle' of row 'r7'; known"):
        check_problem_types({"OCR": "r1", "riddle": "r7"})
    check_problem_types(PROBLEM_TYPES)


def test_unknown_policy_and_metric_list_the_known_ones():
    with pytest.raises(ValueError, match="policy 'strict'; known: default, video_r1"):
        score_reply(tagged("B"), problem_type="OCR", gold="B", policy="strict")
    with pytest.raises(ValueError, match="metric 'mse'; known: relative_error, mra, mra_vsibench"):
        score_reply(tagged("5"), problem_type="regression", gold="5", metric="mse")


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("multiple_choice", "multiple choice"),
        ("Multiple-Choice", "multiple choice"),
        ("mcq", "multiple choice"),
        ("ocr", "OCR"),
        ("freeform", "free-form"),
        ("open_ended", "open-ended"),
        ("spatio-temporal grounding", "spatial-temporal grounding"),
        ("boolean", "yes/no"),
        ("crr", "CRR"),
    ],
)
def test_aliases(spelling, name):
    assert canonical_type(spelling) == name


def test_types_with_one_metric_ignore_the_choice_of_another():
    assert (
        score_reply(tagged("B"), problem_type="multiple choice", gold="B", options=COLOURS, metric="mra").accuracy == 1
    )


@pytest.mark.parametrize("gold", ["", "  ", "<answer> </answer>"])
def test_an_empty_gold_is_an_error(gold):
    with pytest.raises(ValueError, match="empty"):
        score_reply(tagged("B"), problem_type="OCR", gold=gold)


@pytest.mark.parametrize("problem_type", PROBLEM_TYPES)
@pytest.mark.parametrize("reply", ["", "   ", "<think>t</think><answer></answer>", "<think></think><answer></answer>"])
def test_an_empty_reply_is_no_answer(problem_type, reply):
    gold = {"multiple choice": "A", "temporal grounding": "[0, 1]"}.get(problem_type, "5")
    verdict = score_reply(reply, problem_type=problem_type, gold=gold, options=COLOURS)
    assert (verdict.accuracy, verdict.format, verdict.status, verdict.parsed) == (0.0, 0.0, "no_answer", None)


@pytest.mark.parametrize(
    ("reply", "problem_type", "gold", "parsed"),
    [
        ("B", "multiple choice", "B", "B"),
        ("The answer is (B).", "multiple choice", "B", "B"),
        ("Options: A, B\nAnswer: B", "multiple choice", "B", "B"),
        ("<think>red?</think>B", "multiple choice", "B", "B"),
        ("There are 3 cars and 2 trucks, so the answer is 5.", "numerical", "5", "5"),
        ("3 + 2 = \\boxed{5}", "numerical", "5", "5"),
        ("I see 5 cars", "numerical", "5", "5"),
        ("yes, it does", "yes/no", "Yes", "yes"),
        ("from 00:10 to 00:20", "temporal grounding", "[10, 20]", "[10, 20]"),
        ("A red car.", "free-form", "a red car", "a red car"),
    ],
)
def test_replies_without_tags_are_read_only_on_request(reply, problem_type, gold, parsed):
    options = COLOURS if problem_type == "multiple choice" else ()
    strict = score_reply(reply, problem_type=problem_type, gold=gold, options=options)
    assert (strict.accuracy, strict.status) == (0.0, "no_answer")
    loose = score_reply(reply, problem_type=problem_type, gold=gold, options=options, require_tags=False)
    assert (loose.accuracy, loose.format, loose.parsed) == (1.0, 0.0, parsed)


def test_tagged_replies_score_alike_whether_or_not_tags_are_required():
    for answer in ["B", "3 or 5", "A, B", ""]:
        for problem_type in ["multiple choice", "numerical"]:
            verdicts = {
                score_reply(
                    tagged(answer),
                    problem_type=problem_type,
                    gold="B" if problem_type != "numerical" else "5",
                    options=COLOURS,
                    require_tags=required,
                )
                for required in (True, False)
            }
            assert len(verdicts) == 1


GOLDS = {
    "multiple choice": "B", "yes/no": "yes", "numerical": "5", "regression": "5", "OCR": "STOP 停",
    "free-form": "a red car",
    "open-ended": "a red car", "REC": "3", "CRR": "no", "SSR": "yes", "temporal grounding": "[1, 2]",
    "spatial grounding": "[0, 0, 1, 1]",
    "spatial-temporal grounding": '{"time": [1, 2], "boxes": {"1": [0, 0, 1, 1]}}',
}  # fmt: skip
FRAGMENTS = st.sampled_from(
    ["A", "B", "b", "red", " ", "\n", ".", ",", "(", ")", "[", "]", "{", "}", "5", "1/2", "½", "0:10", "%", "-", "−",
     "e9", "10^",
     "not ", "or ", "is ", "answer", ": ", "\\boxed{", "\\frac{", "$", "yes", "no", "<answer>", "</answer>",
     "<think>", "\"time\": ",
     "红", "Ｂ", "\ue000", "\x00", "'", '"', "_", "*", "three ", "half", "million", "nan", "I ", "option "]
)  # fmt: skip


@given(
    st.lists(FRAGMENTS, max_size=12).map("".join) | st.text(max_size=30), st.booleans(), st.sampled_from(list(GOLDS))
)
@settings(max_examples=600)
def test_any_text_gets_a_verdict(text, require_tags, problem_type):
    options = COLOURS if problem_type == "multiple choice" else ()
    for reply in (text, tagged(text)):
        for policy in POLICIES:
            verdict = score_reply(
                reply,
                problem_type=problem_type,
                gold=GOLDS[problem_type],
                options=options,
                policy=policy,
                require_tags=require_tags,
            )
            assert verdict.format in (0.0, 1.0)
            assert (verdict.status == "abstained") == (verdict.accuracy is None)
            assert verdict.accuracy is None or 0.0 <= verdict.accuracy <= 1.0
            assert verdict.status == "ok" or not verdict.accuracy


def test_importing_rewards_loads_no_heavy_library():
    heavy = "torch transformers trl numpy nltk rouge_score jiwer sympy math_verify httpx asyncio"
    code = (
        "import sys, ktr.rewards, ktr.rewards.components, ktr.rewards.runner;"
        "import ktr.rewards.lengths, ktr.rewards.temporal, ktr.rewards.rewatch;"
        f"print([name for name in '{heavy}'.split() if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
