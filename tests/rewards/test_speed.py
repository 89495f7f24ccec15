"""Scoring must not hold up training: 10,000 replies, and 1,000 mathematical ones, in under 5 s of one core."""

from __future__ import annotations

import random
import time

import pytest

from ktr.rewards import score_reply

WORDS = [
    "the",
    "a",
    "man",
    "woman",
    "red",
    "blue",
    "car",
    "dog",
    "runs",
    "walks",
    "slowly",
    "over",
    "green",
    "street",
    "and",
    "then",
    "picks",
    "up",
    "small",
    "ball",
    "near",
]
# Shares of the problem types in Video-R1's 263,071 training rows.
MIX = {"multiple choice": 168769, "free-form": 38722, "numerical": 34354, "OCR": 15886, "regression": 5340}


def sentence(rng: random.Random, length: int) -> str:
    return " ".join(rng.choices(WORDS, k=length))


def row(rng: random.Random) -> dict:
    problem_type = rng.choices(list(MIX), list(MIX.values()))[0]
    options: tuple[str, ...] = ()
    if problem_type == "multiple choice":
        options = tuple(f"{letter}. {sentence(rng, 5)}" for letter in "ABCD")
        gold, answer = (
            rng.choice("ABCD"),
            rng.choice(["A", "B.", "(C)", "It is D. Option A only looks alike.", options[1]]),
        )
    elif problem_type in ("free-form", "OCR"):
        gold, answer = sentence(rng, 15), sentence(rng, 18)
    else:
        gold = str(rng.randint(0, 1000) / 10)
        answer = rng.choice(
            [gold, f"{rng.random() * 100:.2f} m", f"\\boxed{{{rng.randint(0, 99)}}}", "about five cars"]
        )
    reply = f"<think>{sentence(rng, 300)}</think><answer>{answer}</answer>"
    return {"reply": reply, "problem_type": problem_type, "gold": gold, "options": options}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["default", "video_r1"])
def test_ten_thousand_replies(policy):
    rng = random.Random(0)
    rows = [row(rng) for _ in range(10_000)]
    start = time.process_time()
    scores = [score_reply(**each, policy=policy).accuracy for each in rows]
    seconds = time.process_time() - start
    assert 0.1 < sum(scores) / len(scores) < 0.9
    assert seconds < 5.0


@pytest.mark.slow
def test_a_thousand_math_replies():
    rng = random.Random(0)
    forms = [("\\frac{%d}{3}", "%d/3"), ("x^2+%d", "%d+x^2"), ("2\\sqrt{%d}", "\\sqrt{4\\cdot %d}"),
    ("(%d,2)", "(%d, 2)"),
             ("%d\\pi", "\\pi \\cdot %d"), ("x=%d", "%d"), ("%d", "%d cm")]  # fmt: skip
    pairs = [tuple(form % rng.randint(2, 500) for form in rng.choice(forms)) for _ in range(500)]
    pairs += [tuple(form % number for form in rng.choice(forms)) for number in range(2, 502)]
    start = time.process_time()
    scores = [
        score_reply(f"<think>t</think><answer>{answer}</answer>", problem_type="math", gold=gold).accuracy
        for gold, answer in pairs
    ]
    seconds = time.process_time() - start
    assert scores[500:] == [1.0] * 500
    assert seconds < 5.0
