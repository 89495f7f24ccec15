"""Replies of 100 kB built to slow a parser down, or to break one: each gets its verdict in bounded time."""

from __future__ import annotations

import time

import pytest

from ktr.rewards import score_reply

SIZE = 100_000
TUBE = '{"time": [1, 3], "boxes": {"1": [0, 0, 10, 10]}}'
GOLDS = {
    "multiple choice": "B", "yes/no": "yes", "numerical": "5", "regression": "5", "OCR": "STOP 停",
    "free-form": "a red car", "open-ended": "a", "math": "x^2", "REC": "3", "temporal grounding": "[1, 2]",
    "spatial grounding": "[0, 0, 1, 1]", "spatial-temporal grounding": TUBE,
}  # fmt: skip
RUNS = [
    "(", "<answer>", "</think><answer>", "<think></think><answer>", "[", "{", "1,", "B, ", "A or ", "not ",
    "the answer is ", "\\boxed{", "\\frac{", " ", "1 and ", "00:10 ", '{"time": [1, 2]} ', "<|a|>", "e\u0301",
]  # fmt: skip
NESTS = {
    "wrappers": "\\text{" * 14_000 + "B" + "}" * 14_000,
    "fractions": "\\frac{" * 9_000 + "1" + "}{2}" * 9_000,
    "arrays": "[" * 50_000 + "]" * 50_000,
    "tag of spaces": "<" + " " * SIZE,
    "one number": "9" * SIZE,
    "surrogates": "\ud800" * 1000,
}
HOSTILE = {**{run: run * (SIZE // len(run)) for run in RUNS}, **NESTS}


QUICK = ("<answer>", "</think><answer>", "tag of spaces", "arrays")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in HOSTILE]
)
def test_any_reply_is_scored_in_bounded_time(name):
    text = HOSTILE[name]
    slowest = 0.0
    for problem_type, gold in GOLDS.items():
        options = ("A. red", "B. blue") if problem_type == "multiple choice" else ()
        for reply in (text, f"<think>t</think><answer>{text}</answer>"):
            for policy in ("default", "video_r1"):
                start = time.process_time()
                verdict = score_reply(
                    reply, problem_type=problem_type, gold=gold, options=options, policy=policy, require_tags=False
                )
                slowest = max(slowest, time.process_time() - start)
                assert verdict.accuracy is None or 0.0 <= verdict.accuracy <= 1.0
    assert slowest < 3.0
