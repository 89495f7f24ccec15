"""VideoReasonBench's question files, as its release writes them."""

from __future__ import annotations

import json

import pytest

from ktr.data.importers import load_rows
from ktr.data.rows import RowError
from ktr.evaluation.benchmark_rows import detect_format

BOARDS = [[[6, 5, 8], [4, 3, 0], [2, 1, 7]], [[6, 5, 8], [4, 3, 7], [2, 1, 0]]]
SLIDING = {
    "video": "videos/hrd/state3_op1_start.mp4",
    "question": "A sliding puzzle on a 3x3 board. What achieves the desired number arrangement: `(a,1): 2, (a,2): 0, "
    "(a,3): 1, (b,1): 4, (b,2): 3, (b,3): 7, (c,1): 6, (c,2): 5, (c,3): 8`?",
    "answer": None,
    "dim": "prediction_operation",
    "visible_time": "start",
    "num_state": 3,
    "states": BOARDS,
}
CARDS = {
    "video": "videos/card/state1_op1_end.mp4",
    "question": "To ensure that `pile0` contains exactly the following cards from top to bottom: `7 of Spades, "
    "8 of Clubs`, what actions? To ensure that `pile0` contains exactly".replace("To ensure", "to ensure"),
    "answer": None,
    "dim": "prediction_operation",
    "visible_time": "end",
    "states": {"pile0": [["8 of Clubs"], ["8 of Clubs", "Ace of Hearts"]]},
}


def rows_of(tmp_path, **questions):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(questions, indent=4))
    assert detect_format(path) == "videoreasonbench"
    return load_rows("videoreasonbench", path)


def test_golds_are_the_hidden_state_and_the_one_that_is_asked_for(tmp_path):
    answered = SLIDING | {"answer": "2nd: left\n", "dim": "order_operation"}
    sliding, recalled, cards = rows_of(tmp_path, first=SLIDING, second=answered, third=CARDS)
    assert (sliding.id, sliding.media.path, sliding.category) == (
        "hrd_first", "hrd/state3_op1_start.mp4", "prediction_operation",
    )  # fmt: skip
    assert json.loads(sliding.answer) == {
        "puzzle": "number", "start": BOARDS[1], "target": [[6, 5, 8], [4, 3, 7], [2, 0, 1]],
    }  # fmt: skip
    assert (recalled.problem_type, recalled.answer) == ("open-ended", "2nd: left")
    assert json.loads(cards.answer) == {
        "puzzle": "card", "start": {"pile0": ["8 of Clubs"]}, "target": ["7 of Spades", "8 of Clubs"], "of": "pile0",
    }  # fmt: skip


def test_the_target_of_a_circle_and_of_cups(tmp_path):
    circle = SLIDING | {
        "video": "videos/grid/x.mp4", "visible_time": "end", "coords": [[2, 0], [1, 0]],
        "states": [[[0, 1], [1, 0]]] * 2,
        "question": "the desired arrangement of black and white pieces: `(a,0): black, (a,1): white, (b,1): black`?",
    }  # fmt: skip
    cups = SLIDING | {
        "video": "videos/cup/x.mp4", "states": [[[0, 1], [1, 0]]] * 2,
        "question": "achieve the desired distribution of coins: `a1, b2`?",
    }  # fmt: skip
    circle, cups = (json.loads(row.answer) for row in rows_of(tmp_path, a=circle, b=cups))
    assert (circle["at"], circle["target"]) == ([2, 0], [[1, 0], [0, 1]])
    assert cups["target"] == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"states": None}, "states"),
        ({"states": "[[1,"}, "states"),
        ({"states": [[["x"]]]}, "states"),
        ({"question": "What?"}, "question"),
        ({"video": "x.mp4"}, "video"),
    ],
)
def test_what_lacks_the_states_or_the_target_is_named(tmp_path, change, field):
    with pytest.raises(RowError, match=f"field '{field}'"):
        rows_of(tmp_path, a=SLIDING | change)


def test_rows_in_benchmark_form_that_kept_their_states(tmp_path):
    path = tmp_path / "rows.json"
    row = {
        "data_type": "video", "problem_type": "open-ended", "path": "hrd/x.mp4", "problem": SLIDING["question"],
        "problem_id": 1, "options": [], "solution": "<answer>None</answer>", "states": BOARDS, "visible_time": "start",
    }  # fmt: skip
    path.write_text(json.dumps([row, {key: value for key, value in row.items() if key != "states"}]))
    with_states, without = load_rows("benchmark", path)
    assert (with_states.problem_type, json.loads(with_states.answer)["start"]) == ("operations", BOARDS[1])
    assert (without.problem_type, without.answer) == ("open-ended", "None")
