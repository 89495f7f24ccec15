"""One reply, one verdict: the same function for training, evaluation and re-scoring."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from ktr.rewards.choice import score_choice
from ktr.rewards.free_text import score_free_form, score_open_ended, score_transcription
from ktr.rewards.grounding import (
    score_spatial_grounding,
    score_spatial_temporal_grounding,
    score_temporal_grounding,
)
from ktr.rewards.math_verifier import score_math
from ktr.rewards.numbers import read_numbers
from ktr.rewards.numerical import REGRESSION_METRICS, score_count, score_numerical, score_regression
from ktr.rewards.operations import score_operations
from ktr.rewards.problem_types import canonical_type
from ktr.rewards.reply import format_score, read_reply, strip_end_tokens
from ktr.rewards.text import after_last_cue, boxed_contents
from ktr.rewards.verdict import Outcome, Verdict
from ktr.rewards.video_r1 import score_video_r1, video_r1_format
from ktr.rewards.yes_no import score_yes_no

POLICIES = ("default", "video_r1")
METRICS = REGRESSION_METRICS

_GOLD_TAGS = re.compile(r"<\s*answer\s*>(.*?)<\s*/\s*answer\s*>", re.IGNORECASE | re.DOTALL)

_FENCED = re.compile(r"\s*```(?:json)?\s*(\{.*\})\s*```\s*", re.DOTALL | re.IGNORECASE)
_ANSWER_KEYS = ("final_answer", "answer", "choice", "option", "prediction")
_MARKED = re.compile(r"^\s*#{4}\s*(\S.*)$", re.MULTILINE)
_REASON = re.compile(r"\s*(?:,\s*)?\b(?:because|since|as)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")

_WITHOUT_OPTIONS: dict[str, Callable[[str, str], Outcome]] = {
    "numerical": score_numerical,
    "OCR": score_transcription,
    "free-form": score_free_form,
    "math": score_math,
    "temporal grounding": score_temporal_grounding,
    "spatial grounding": score_spatial_grounding,
    "spatial-temporal grounding": score_spatial_temporal_grounding,
    "open-ended": score_open_ended,
    "REC": score_count,
    "operations": score_operations,
}
_WITH_OPTIONS: dict[str, Callable[..., Outcome]] = {
    "multiple choice": score_choice,
    "yes/no": score_yes_no,
    "CRR": score_yes_no,
    "SSR": score_yes_no,
}
_NUMBER_TYPES = ("numerical", "regression", "REC")


def score_reply(
    reply: str,
    *,
    problem_type: str,
    gold: str,
    options: Sequence[str] = (),
    policy: str = "default",
    metric: str | None = None,
    require_tags: bool = True,
) -> Verdict:
    """Score one reply against its gold answer.

    Args:
        reply: the model's text; end tokens and outer whitespace do not matter.
        problem_type: any spelling of a known type.
        gold: a bare value, an option's label, a whole option line, or any of them inside `<answer>` tags.
        options: the row's options, with or without labels.
        policy: "default", or "video_r1" for the numbers of the Video-R1 release.
        metric: "relative_error" (the default), "mra" or "mra_vsibench" for regression; other types have one metric
            and ignore it.
        require_tags: False reads a reply without answer tags as a whole.

    Raises:
        ValueError: unknown problem type, policy or metric, or a gold that its type cannot read.

    >>> score_reply("<think>t</think><answer>(B)</answer>", problem_type="multiple choice", gold="B",
    ...             options=("A. red", "B. blue")).accuracy
    1.0
    """
    if policy not in POLICIES:
        raise ValueError(f"unknown reward policy {policy!r}; known: {', '.join(POLICIES)}")
    if metric is not None and metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}; known: {', '.join(METRICS)}")
    kind = canonical_type(problem_type)
    if policy == "video_r1":
        outcome = score_video_r1(reply, gold, kind)
        return Verdict(outcome.accuracy, video_r1_format(reply), outcome.status, outcome.parsed)
    wanted = bare_gold(gold)
    form = format_score(reply)
    read = read_reply(reply, require_tags)
    if read.answer is None:
        return Verdict(0.0, form, read.status, None)
    answer = read.answer if require_tags else _json_answer(read.answer) or read.answer
    if not read.tagged and kind in _NUMBER_TYPES:
        answer = _conclusion(answer)
    outcome = _score(kind, answer, wanted, tuple(options), metric, whole=not read.tagged)
    return Verdict(outcome.accuracy, form, outcome.status, outcome.parsed, outcome.detail)


def bare_gold(gold: str) -> str:
    """The gold answer without tags, end tokens and outer whitespace. Raises ValueError when nothing is left."""
    tagged = _GOLD_TAGS.search(gold)
    bare = (tagged[1] if tagged else strip_end_tokens(gold)).strip()
    if not bare:
        raise ValueError(f"the gold answer is empty: {gold!r}")
    return bare


def _json_answer(text: str) -> str | None:
    """The answer that a reply in JSON gives beside its reasoning; None for a reply in other form."""
    fenced = _FENCED.fullmatch(text)
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return None
    found = [value[key] for key in _ANSWER_KEYS if key in value] if isinstance(value, dict) else []
    return str(found[0]) if found and isinstance(found[0], str | int | float) else None


def _conclusion(text: str) -> str:
    """What a tag-less reply with a number comes to.

    Its boxed part; else what follows `####`; else the line of its last answer cue, up to a "because"; else all of it,
    or, where that holds several numbers or a clock time, its last sentence, after the last equals sign.
    """
    boxed = set(boxed_contents(text))
    if len(boxed) == 1:
        return boxed.pop()
    if marked := _MARKED.findall(text):
        return marked[-1]
    stated = after_last_cue(text)
    if stated is not text:
        return _REASON.split(stated)[0]
    numbers = read_numbers(text)
    if len(numbers.found) < 2 and not numbers.refused:
        return text
    sentence = _SENTENCE_END.split(text.strip())[-1]
    return sentence.rpartition("=")[2] if "=" in sentence else sentence


def _score(kind: str, answer: str, gold: str, options: tuple[str, ...], metric: str | None, *, whole: bool) -> Outcome:
    if kind == "regression":
        return score_regression(answer, gold, metric or "relative_error")
    if kind in _WITH_OPTIONS:
        return _WITH_OPTIONS[kind](answer, gold, options, whole=whole)
    return _WITHOUT_OPTIONS[kind](answer, gold)
