"""The accuracy and format of the Video-R1 release (2503.21776), number for number, for comparison.

Its faults are kept: `B.` is wrong for `B`, `nan` earns the full regression reward, a right zero earns none, small
numbers are equal after rounding, a sentence in a script without spaces is one word.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ktr.rewards.free_text import word_accuracy
from ktr.rewards.verdict import Outcome

_OPENING, _CLOSING, _THINK = "<answer>", "</answer>", "<think>"
_BETWEEN_BLOCKS = re.compile(r"</think>\s*<answer>")


def score_video_r1(reply: str, gold: str, problem_type: str) -> Outcome:
    """Accuracy of a whole reply for a canonical problem type; types the release does not know earn 0."""
    answer = _first_block(reply) or ""
    tagged_gold = _first_block(gold)
    wanted = gold.strip() if tagged_gold is None else tagged_gold
    scorer = _SCORERS.get(problem_type)
    try:
        accuracy = scorer(answer, wanted) if scorer is not None else 0.0
    except (ValueError, OverflowError):
        accuracy = 0.0
    return Outcome(accuracy, "ok" if answer else "no_answer", answer or None)


def video_r1_format(reply: str) -> float:
    """1.0 when the whole reply, unstripped, is a think block and then an answer block; empty blocks count.

    That is `<think>.*?</think>\\s*<answer>.*?</answer>` on the whole reply, dots matching new lines, in linear time.
    """
    if not (reply.startswith(_THINK) and reply.endswith(_CLOSING)):
        return 0.0
    return 1.0 if _BETWEEN_BLOCKS.search(reply, len(_THINK), len(reply) - len(_CLOSING)) else 0.0


def _first_block(text: str) -> str | None:
    """What stands in the first `<answer>` block, stripped; None without a whole block."""
    _, opening, rest = text.partition(_OPENING)
    block, closing, _ = rest.partition(_CLOSING)
    return block.strip() if opening and closing else None


def _choice(answer: str, gold: str) -> float:
    return 1.0 if answer == gold else 0.0


def _numerical(answer: str, gold: str) -> float:
    if _has_mark(answer) != _has_mark(gold):
        return 0.0
    return 1.0 if round(_number(answer), 2) == round(_number(gold), 2) else 0.0


def _has_mark(text: str) -> bool:
    return "." in text or "," in text


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _transcription(answer: str, gold: str) -> float:
    return word_accuracy(gold.split(), answer.split())


def _free_form(answer: str, gold: str) -> float:
    scores = _rouge_scorer().score(gold, answer)
    return _clipped(sum(score.fmeasure for score in scores.values()) / len(scores))


def _regression(answer: str, gold: str) -> float:
    value, wanted = _number(answer), _number(gold)
    error = (abs(value - wanted) + 1e-9) / (abs(wanted) + 1e-9)
    # In this order of arguments a nan error becomes 0, as in the release.
    return 1.0 - min(1.0, max(0.0, error))


def _clipped(score: float) -> float:
    return max(0.0, min(1.0, score))


@cache
def _rouge_scorer() -> Any:
    from rouge_score import rouge_scorer

    return rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)


_SCORERS = {
    "multiple choice": _choice,
    "numerical": _numerical,
    "OCR": _transcription,
    "free-form": _free_form,
    "regression": _regression,
}
