"""Scorer of operations: does carrying them out lead from one state to another? (VideoReasonBench, 2505.23359, 3.3)

No list of operations is the right one, so the gold answer holds the states instead, as JSON: `puzzle`, `start` and
`target`; for `circle` also where the circle is (`at`: column, row), and for files, cards and chips `of`, the container
whose content counts. The rules are those of the benchmark's eval_utils.py, but for two faults of its release: cards are
compared from top to bottom and chips in any order, as its questions ask.

Operations are read from what follows "Final Answer:", or from the whole answer without it. A move that the rules of a
board do not allow changes nothing; an operation on files, cards or chips that cannot be carried out is a wrong answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from ktr.rewards.verdict import Outcome, right_or_wrong

Board = list[list[int]]
Contents = dict[str, list[Any]]

_FINAL = re.compile(r"final\s+answer\W*(?=\w|\()", re.IGNORECASE)
_DIRECTION = re.compile(r"\b(left|right|up|down)(?:wards?)?\b", re.IGNORECASE)
_SWAP = re.compile(r"\b([a-e])([1-5])\s*,\s*([a-e])([1-5])\b", re.IGNORECASE)
_COMMAND = re.compile(r"\b(?:rm|touch|cp|mv)\b[^&;|\n`]*")
_ALLOWED_COMMAND = re.compile(r"(rm\s+-rf|touch)\s+(path\d+)/\{([^{}]+)\}\s*\.?\s*")
_ACTION = re.compile(r"\b(?:add|remove)\b", re.IGNORECASE)
_CARD = re.compile(
    r"\b(add|remove)\s+(?:the\s+)?((?:ace|king|queen|jack|10|[2-9])\s+of\s+(?:hearts|clubs|diamonds|spades))"
    r"\s+(?:to|from)\s+`?(pile\d)\b",
    re.IGNORECASE,
)
_CHIP = re.compile(
    r"\b(add|remove)\s+(?:an?\s+)?(100|50|20|10|5)\s+(?:chip\s+)?(?:(?:to|from)\s+)?`?(cup\d)\b", re.IGNORECASE
)
_STEPS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}  # column, row
# The empty square of a number board moves against the square that is pushed; its rows count from the bottom.
_EMPTY_STEPS = {"left": (1, 0), "right": (-1, 0), "up": (0, -1), "down": (0, 1)}
CONTAINERS = ("file", "card", "chip")  # Puzzles of things in containers; the others are boards.
PUZZLES = ("number", "circle", "cup", *CONTAINERS)


def score_operations(answer: str, gold: str) -> Outcome:
    """1 when the operations that the answer lists lead from the gold's start to its target.

    Raises ValueError when the gold holds no such states.
    """
    wanted = _states(gold)
    final = list(_FINAL.finditer(answer))
    text = answer[final[-1].end() :] if final else answer
    shown, reached = _CARRY_OUT[wanted["puzzle"]](text, wanted)
    if not shown:
        return Outcome(0.0, "no_answer")
    return right_or_wrong(reached, ", ".join(shown))


def _states(gold: str) -> dict[str, Any]:
    try:
        wanted = json.loads(gold)
    except ValueError:
        wanted = None
    needed = {"puzzle", "start", "target"}
    if not isinstance(wanted, dict) or not needed <= wanted.keys() or wanted["puzzle"] not in PUZZLES:
        raise ValueError(
            f"the gold of operations must be JSON with puzzle ({', '.join(PUZZLES)}), start and target, not {gold!r}"
        )
    puzzle, start = wanted["puzzle"], wanted["start"]
    if puzzle in CONTAINERS and wanted.get("of") not in start:
        raise ValueError(f"the gold of operations has no container 'of' {wanted.get('of')!r} in its start: {gold!r}")
    if puzzle == "number" and sum(cell == 0 for row in start for cell in row) != 1:
        raise ValueError(f"the board of a gold of operations has not one empty square: {gold!r}")
    if puzzle == "circle" and len(wanted.get("at", ())) != 2:
        raise ValueError(f"the gold of operations does not say where the circle is ('at': column, row): {gold!r}")
    return wanted


Carried = tuple[list[str], bool]  # the operations that were read, and whether they lead to the target


def _slide(text: str, wanted: dict[str, Any]) -> Carried:
    moves = [move.lower() for move in _DIRECTION.findall(text)]
    board: Board = [list(row) for row in wanted["start"]]
    for move in moves:
        ((row, column),) = [(r, c) for r, cells in enumerate(board) for c, cell in enumerate(cells) if cell == 0]
        right, down = _EMPTY_STEPS[move]
        if _inside(board, row + down, column + right):
            board[row][column], board[row + down][column + right] = board[row + down][column + right], 0
    return moves, board == wanted["target"]


def _flip(text: str, wanted: dict[str, Any]) -> Carried:
    moves = [move.lower() for move in _DIRECTION.findall(text)]
    board: Board = [list(row) for row in wanted["start"]]
    column, row = wanted["at"]
    for move in moves:
        right, down = _STEPS[move]
        if not _inside(board, row + down, column + right):
            continue
        column, row = column + right, row + down
        for across, along in ((0, 0), *_STEPS.values()):
            if _inside(board, row + along, column + across):
                board[row + along][column + across] ^= 1
    return moves, board == wanted["target"]


def _swap(text: str, wanted: dict[str, Any]) -> Carried:
    board: Board = [list(row) for row in wanted["start"]]
    swaps = _SWAP.findall(text)
    for one, two, three, four in swaps:
        first, second = (_place(one, two), _place(three, four))
        if _inside(board, *first) and _inside(board, *second):
            (a, b), (c, d) = first, second
            board[a][b], board[c][d] = board[c][d], board[a][b]
    return [f"({a}{b}, {c}{d})" for a, b, c, d in swaps], board == wanted["target"]


def _files(text: str, wanted: dict[str, Any]) -> Carried:
    commands = [command.strip() for command in _COMMAND.findall(text)]
    parsed = [_ALLOWED_COMMAND.fullmatch(command) for command in commands]
    contents = {path: set(files) for path, files in wanted["start"].items()}
    named: dict[str, set[str]] = {"rm": set(), "touch": set()}
    for command in parsed:
        if command is None or len(commands) > 2 or command[2] not in contents:
            return commands, False
        files = {file.strip() for file in command[3].split(",")}
        named[command[1].split()[0]] = files
        contents[command[2]] = (contents[command[2]] - files) if command[1][0] == "r" else contents[command[2]] | files
    return commands, not named["rm"] & named["touch"] and contents[wanted["of"]] == set(wanted["target"])


def _cards(text: str, wanted: dict[str, Any]) -> Carried:
    """Piles are lists from bottom to top: cards are added at the end and removed from the beginning."""

    def remove(pile: list[Any], card: str) -> bool:
        return bool(pile) and pile.pop(0) == card

    actions = [
        (action, " ".join(card.title().replace("Of", "of").split()), pile) for action, card, pile in _CARD.findall(text)
    ]
    shown, contents = _added_and_removed(text, actions, wanted, remove)
    return shown, contents is not None and contents[wanted["of"]][::-1] == wanted["target"]


def _chips(text: str, wanted: dict[str, Any]) -> Carried:
    def remove(cup: list[Any], chip: int) -> bool:
        if chip not in cup:
            return False
        cup.remove(chip)
        return True

    actions = [(action, int(chip), cup) for action, chip, cup in _CHIP.findall(text)]
    shown, contents = _added_and_removed(text, actions, wanted, remove)
    return shown, contents is not None and sorted(contents[wanted["of"]]) == sorted(wanted["target"])


def _added_and_removed(
    text: str, actions: list[tuple[str, Any, str]], wanted: dict[str, Any], remove: Callable[[list[Any], Any], bool]
) -> tuple[list[str], Contents | None]:
    """The actions as text, and what all containers then hold: None where one of them could not be read or done."""
    shown = [f"{action.lower()} {thing}: {place.lower()}" for action, thing, place in actions]
    if len(actions) < len(_ACTION.findall(text)):
        return shown or ["an action that is none"], None
    contents: Contents = {place: list(things) for place, things in wanted["start"].items()}
    for action, thing, place in actions:
        held = contents.get(place.lower())
        if held is None or (action.lower() == "remove" and not remove(held, thing)):
            return shown, None
        if action.lower() == "add":
            held.append(thing)
    return shown, contents


def _place(letter: str, digit: str) -> tuple[int, int]:
    return ord(letter.lower()) - ord("a"), int(digit) - 1


def _inside(board: Board, row: int, column: int) -> bool:
    return 0 <= row < len(board) and 0 <= column < len(board[row])


_CARRY_OUT: dict[str, Callable[[str, dict[str, Any]], Carried]] = {
    "number": _slide,
    "circle": _flip,
    "cup": _swap,
    "file": _files,
    "card": _cards,
    "chip": _chips,
}
