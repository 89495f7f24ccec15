"""Reading a reply's tags: which part is the answer, and does the reply keep the form.

The form is one non-empty `<think>` block, then one non-empty `<answer>` block, and nothing else. Reading is more
forgiving than rewarding: tags in any case are read, text around the blocks is ignored, but two answers are never
reduced to one, and a block that was not closed is a cut-off reply.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from ktr.rewards.verdict import Status

# Bounded and possessive repeats keep hostile replies linear.
_TAG = re.compile(r"<\s{0,9}+(/?)\s{0,9}+(think|answer)\s{0,9}+>", re.IGNORECASE)
_ENDS_WITH_ANSWER = re.compile(r"<\s{0,9}+/\s{0,9}+answer\s{0,9}+>\Z", re.IGNORECASE)
_FORM = ["<think>", "</think>", "<answer>", "</answer>"]
_END_TOKEN = re.compile(r"(?:<\|[A-Za-z0-9_]{1,40}\|>|</s>|<eos>|<pad>|<end_of_turn>)\Z")


class ReadReply(NamedTuple):
    """`answer` is the stripped answer text (None where there is none); `tagged` says that it stood in a block."""

    answer: str | None
    status: Status
    tagged: bool


def strip_end_tokens(text: str) -> str:
    """The text without outer whitespace and without end-of-turn or padding tokens at its end."""
    text = text.strip()
    while text.endswith(">") and (token := _END_TOKEN.search(text, len(text) - 50 if len(text) > 50 else 0)):
        text = text[: token.start()].rstrip()
    return text


def format_score(reply: str) -> float:
    """1.0 for `<think>...</think><answer>...</answer>`: lower-case tags, neither block empty, no nested tag."""
    text = strip_end_tokens(reply)
    tags = list(itertools.islice(_TAG.finditer(text), len(_FORM) + 1))
    if [tag[0] for tag in tags] != _FORM or tags[0].start() != 0 or tags[-1].end() != len(text):
        return 0.0
    thought, gap, answer = (text[left.end() : right.start()].strip() for left, right in itertools.pairwise(tags))
    return 1.0 if thought and answer and not gap else 0.0


def read_reply(reply: str, require_tags: bool = True) -> ReadReply:
    """Find the one answer that follows the reasoning.

    With `require_tags=False` a reply without any answer tag is read as a whole (what direct prompts ask for), and
    several answer blocks count as one where all say the same.
    """
    rest, reasoning_open = _after_reasoning(strip_end_tokens(reply))
    tags = [tag for tag in _TAG.finditer(rest) if tag[2].lower() == "answer"]
    opening = [tag for tag in tags if not tag[1]]
    if len(opening) > 1:
        said = None if require_tags else _said_again(rest, tags)
        return ReadReply(said, "ambiguous" if said is None else "ok", True)
    if opening:
        closing = next((tag for tag in tags if tag[1] and tag.start() >= opening[0].end()), None)
        if closing is None:
            return ReadReply(None, "truncated", True)
        answer = rest[opening[0].end() : closing.start()].strip()
        return ReadReply(answer or None, "ok" if answer else "no_answer", True)
    if reasoning_open:
        return ReadReply(None, "truncated", False)
    answer = "" if require_tags else _TAG.sub("", rest).strip()
    return ReadReply(answer or None, "ok" if answer else "no_answer", False)


def _said_again(text: str, tags: list[re.Match[str]]) -> str | None:
    """What all answer blocks say, where an opening tag may stand for a closing one; None when they differ."""
    pieces = {text[left.end() : right.start()].strip() for left, right in itertools.pairwise(tags) if not left[1]}
    if not tags[-1][1]:
        pieces.add(text[tags[-1].end() :].strip())
    pieces.discard("")
    return pieces.pop() if len(pieces) == 1 else None


def _after_reasoning(text: str) -> tuple[str, bool]:
    """The text outside think blocks, and whether the reasoning was left open.

    A closing tag before any opening one ends a reasoning that the prompt opened. A reasoning that is never closed
    hides what stands in it, unless the reply ends with an answer block.
    """
    kept: list[str] = []
    start, open_at, seen = 0, -1, False
    for tag in _TAG.finditer(text):
        if tag[2].lower() != "think":
            continue
        if not tag[1]:
            if open_at < 0:
                kept.append(text[start : tag.start()])
                open_at = tag.end()
        elif open_at >= 0:
            start, open_at = tag.end(), -1
        else:
            kept = [*kept, text[start : tag.start()]] if seen else []
            start = tag.end()
        seen = True
    if open_at < 0:
        return " ".join([*kept, text[start:]]), False
    tail = text[open_at:]
    if _ENDS_WITH_ANSWER.search(tail):
        return " ".join([*kept, tail]), False
    return " ".join(kept), True
