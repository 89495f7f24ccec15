"""VideoReasonBench's operations, carried out from one state to another."""

from __future__ import annotations

import json

import pytest

from ktr.rewards import score_reply

CUP = {"puzzle": "cup", "start": [[0, 1, 0], [1, 0, 0], [1, 0, 1]], "target": [[0, 0, 0], [0, 1, 1], [1, 0, 1]]}
NUMBER = {"puzzle": "number", "start": [[6, 8, 0], [4, 5, 7], [2, 3, 1]], "target": [[6, 8, 7], [4, 0, 5], [2, 3, 1]]}
# A circle at column 0, row 0 that steps right flips (0, 1), its neighbours (0, 0) and (0, 2), and (1, 1).
CIRCLE = {
    "puzzle": "circle", "start": [[0, 0, 0]] * 3, "at": [0, 0], "target": [[1, 1, 1], [0, 1, 0], [0, 0, 0]],
}  # fmt: skip
FILE = {
    "puzzle": "file", "start": {"path0": ["a.txt", "b.py"], "path1": ["c.py"]}, "target": ["b.py", "d.csv"],
    "of": "path0",
}  # fmt: skip
CARD = {
    "puzzle": "card", "start": {"pile0": ["8 of Clubs", "King of Diamonds", "Ace of Hearts"]},
    "target": ["7 of Diamonds", "Ace of Hearts", "King of Diamonds"], "of": "pile0",
}  # fmt: skip
CHIP = {"puzzle": "chip", "start": {"cup0": [20, 100, 10, 5]}, "target": [5, 100, 10, 50], "of": "cup0"}


def accuracy(reply: str, gold: dict) -> float | None:
    verdict = score_reply(reply, problem_type="operations", gold=json.dumps(gold), require_tags=False)
    return verdict.accuracy


@pytest.mark.parametrize(
    ("gold", "right"),
    [
        (CUP, "Final Answer: (a2, b3), (b1, b2)"),
        (CUP, "I saw (a1, a2) first.\n\n**Final Answer:** (A2, B3), (B1, B2)"),
        (NUMBER, "Final Answer: up? no.\n\nFinal Answer: down, right"),
        (NUMBER, "Final Answer: ['downward', 'rightward']"),
        (NUMBER, "Final Answer: left, up, down, right"),
        (CIRCLE, "Final Answer: right"),
        (CIRCLE, "Final Answer: up, left, right"),
        (CIRCLE, "<think>t</think><answer>right</answer>"),
        (FILE, "Final Answer: `rm -rf path0/{a.txt} & touch path0/{d.csv}`"),
        (FILE, "Final Answer:\n```bash\ntouch path0/{d.csv}\nrm -rf path0/{a.txt}\n```"),
        (CARD, "Final Answer: remove 8 of Clubs from pile0, add 7 of Diamonds to pile0"),
        (CARD, "Final Answer:\n1. Remove the 8 of clubs from `pile0`\n2. Add the 7 of diamonds to `pile0`"),
        (CHIP, "Final Answer: remove 20 from cup0, add 50 to cup0"),
        (CHIP, "Final Answer: add 50 to cup0, remove 20 cup0"),
    ],
)
def test_operations_that_lead_to_the_target(gold, right):
    assert accuracy(right, gold) == 1.0


@pytest.mark.parametrize(
    ("gold", "wrong"),
    [
        (CUP, "Final Answer: (a2, b3)"),
        (CUP, "(a2, b3), (b1, b2)\nFinal Answer: none"),
        (NUMBER, "Final Answer: right, down"),
        (CIRCLE, "Final Answer: down"),
        (FILE, "Final Answer: touch path0/{d.csv}"),
        (FILE, "Final Answer: mv path0/{a.txt} path1 & touch path0/{d.csv}"),
        (FILE, "Final Answer: rm -rf path0/{a.txt} & touch path0/{d.csv} & touch path1/{e.py}"),
        (FILE, "Final Answer: rm -rf path0/{a.txt,d.csv} & touch path0/{d.csv}"),
        (FILE, "Final Answer: rm path0/a.txt & touch path0/d.csv"),
        (CARD, "Final Answer: remove King of Diamonds from pile0, add 7 of Diamonds to pile0"),
        (CARD, "Final Answer: remove 8 of Clubs from pile0, add 7 of Diamonds to pile1"),
        (CARD, "Final Answer: remove 8 of Clubs from pile0, add Joker to pile0, add 7 of Diamonds to pile0"),
        (CHIP, "Final Answer: remove 50 from cup0, remove 20 from cup0, add 50 to cup0"),
        (CHIP, "Final Answer: add 50 to cup0"),
        (CUP, ""),
    ],
)
def test_operations_that_do_not(gold, wrong):
    assert accuracy(wrong, gold) == 0.0


@pytest.mark.parametrize(
    ("gold", "told"),
    [
        ({"puzzle": "number"}, "must be JSON with puzzle"),
        (CARD | {"of": "pile7"}, "no container 'of' 'pile7'"),
        ({key: value for key, value in FILE.items() if key != "of"}, "no container 'of' None"),
        (NUMBER | {"start": [[1, 2], [3, 4]]}, "not one empty square"),
        ({key: value for key, value in CIRCLE.items() if key != "at"}, "where the circle is"),
    ],
)
def test_a_gold_that_nothing_can_be_carried_out_from_is_refused(gold, told):
    with pytest.raises(ValueError, match=told):
        accuracy("up", gold)
