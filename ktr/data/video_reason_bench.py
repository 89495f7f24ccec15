"""VideoReasonBench (arXiv 2505.23359): its question files, and the states that its operations are checked against.

A question file of the release maps ids to `video`, `question`, `answer`, `dim`, `visible_time`, `states`, and more.
Where operations are asked for (`answer` is null), the gold is the state they start from and the one the question wants,
as `ktr.rewards.operations` reads it. Rows that were passed on without their `states` cannot be checked by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ktr.data.fields import Fields
from ktr.data.rows import Media, Row, RowError

OPERATIONS = "operations"
_PUZZLES = {"hrd": "number", "grid": "circle", "cup": "cup", "file_sys": "file", "card": "card", "chip": "chip"}
_CONTAINER = re.compile(r"to ensure that\s*`([^`]+)` contains exactly")
_CONTENTS = re.compile(r"contains exactly the following [^`]*`([^`]+)`")
_DESIRED = re.compile(r"the desired [^`]*`([^`]+)`")
_CELL = re.compile(r"\(([a-e]),(\d)\):\s*(\w+)")
_CUP = re.compile(r"\b([a-e])(\d)\b")


def video_reason_bench(fields: Fields) -> Row:
    """A question of the release; without an `answer` it asks for operations."""
    video, question = fields.text("video"), fields.text("question")
    answer = fields.optional("answer")
    demo = _demo(video)
    return Row(
        id=f"{demo}_{fields.identity('id')}",
        question=question,
        media=Media("video", video.removeprefix("videos/")),
        problem_type=OPERATIONS if answer is None else "open-ended",
        options=(),
        answer=operations_gold(fields.data, video, question) if answer is None else answer.strip(),
        source="VideoReasonBench",
        category=fields.optional("dim") or "",
    )


def operations_gold(data: Mapping[str, Any], video: str, question: str) -> str:
    """The gold of a question for operations: puzzle, start and target, as JSON.

    Raises RowError where states are missing or not of the release's form, or the question names no target.
    """
    try:
        return _gold(data, _demo(video), video, question)
    except RowError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"states and coords are not those of a release's question ({type(error).__name__}: {error})"
        raise RowError(problem, field="states") from error


def _gold(data: Mapping[str, Any], demo: str, video: str, question: str) -> str:
    if demo not in _PUZZLES:
        raise RowError(f"{video!r} lies in none of the folders {', '.join(_PUZZLES)}", field="video")
    states = _decoded(data.get("states"))
    if not states:
        raise RowError("the question asks for operations, and the states it starts from are missing", field="states")
    # The state that the question starts from is the hidden one: the last where the video shows the first.
    number = 0 if data.get("visible_time") == "end" else -1
    gold: dict[str, Any] = {"puzzle": _PUZZLES[demo]}
    if demo in ("hrd", "grid", "cup"):
        board = [[int(cell) for cell in row] for row in states[number]]
        gold |= {"start": board, "target": _target_board(demo, question, len(board))}
        if demo == "grid":
            coords = _decoded(data.get("coords"))
            if not coords:
                raise RowError("the places of the circle are missing", field="coords")
            gold["at"] = [int(value) for value in coords[number]]
        return json.dumps(gold)
    container, contents = _CONTAINER.search(question), _CONTENTS.search(question)
    if container is None or contents is None:
        raise RowError("the question does not say what a path, pile or cup is to contain", field="question")
    target: list[Any] = contents[1].split(", ")
    start = {name: _held(history, number) for name, history in states.items()}
    if demo == "chip":
        target = [int(chip) for chip in target]
        start = {cup: [int(chip) for chip in chips] for cup, chips in start.items()}
    return json.dumps(gold | {"start": start, "target": target, "of": container[1]})


def _demo(video: str) -> str:
    return video.rstrip("/").rpartition("/")[0].rpartition("/")[2]


def _decoded(value: Any) -> Any:
    """A value that some copies of the files hold as JSON text."""
    return json.loads(value) if isinstance(value, str) else value


def _held(history: Any, number: int) -> list[Any]:
    return list((list(history.values()) if isinstance(history, Mapping) else history)[number])


def _target_board(demo: str, question: str, size: int) -> list[list[int]]:
    """The board that the question wants; rows are lettered from the top, where a number board's rows count upwards."""
    desired = _DESIRED.search(question)
    board = [[0] * size for _ in range(size)]
    cells = (_CUP if demo == "cup" else _CELL).findall(desired[1]) if desired is not None else []
    if not cells:
        raise RowError("the question does not say which state is to be reached", field="question")
    for letter, digit, *content in cells:
        row, column = ord(letter) - ord("a"), int(digit)
        if demo == "hrd":
            board[size - 1 - row][column - 1] = int(content[0])
        elif demo == "grid":
            board[row][column] = int(content[0] == "black")
        else:
            board[row][column - 1] = 1
    return board
