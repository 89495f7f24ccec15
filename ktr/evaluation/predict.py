"""One question to one checkpoint: build the row, generate, split the reply into reasoning and answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from ktr.data.rows import MULTIPLE_CHOICE, Media, Row, UnusableRowError, label_options, option_labels
from ktr.evaluation.views import Encoder, encode_view

if TYPE_CHECKING:
    from ktr.models.encoded_prompt import EncodedPrompt
    from ktr.rollout.engine import Completion, RolloutEngine, SamplingSettings

THINK = re.compile(r"<think>(.*?)(?:</think>|(?=<answer>)|\Z)", re.DOTALL)
ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Prediction:
    """A reply to one row; `answer` is None where the reply opens no answer block."""

    prompt: EncodedPrompt
    completion: Completion
    reasoning: str
    answer: str | None


def question_row(
    question: str, *, media: Media | None = None, options: Sequence[str] = (), problem_type: str = ""
) -> Row:
    """A row for a question asked by hand.

    Without a `problem_type` it is multiple choice when there are options, else free-form. Its gold answer is a
    placeholder: such a row is asked, never scored. Raises RowError for an empty question.
    """
    labelled = label_options(tuple(options))
    return Row(
        id="question",
        question=question,
        media=media,
        problem_type=problem_type or (MULTIPLE_CHOICE if options else "free-form"),
        options=labelled,
        answer=(option_labels(labelled) or ["?"])[0],
    )


def predict(
    engine: RolloutEngine, encoder: Encoder, row: Row, settings: SamplingSettings, *, seed: int = 0
) -> Prediction:
    """One completion for one row.

    Raises ValueError, naming `video`, `image` or `question`, where it cannot be read or the prompt is too long.
    """
    try:
        prompt = encode_view(encoder, row, "full").prompt
    except UnusableRowError as error:
        problem = str(error).removeprefix(f"row {row.id!r}: ")
        raise ValueError(f"{row.media.kind if row.media else 'question'}: {problem}") from error
    [[completion]] = engine.generate([prompt], 1, settings, seed)
    reasoning, answer = split_reply(completion.text)
    return Prediction(prompt, completion, reasoning, answer)


def split_reply(reply: str) -> tuple[str, str | None]:
    """Reasoning and answer of a reply, for display only (scoring has its own parser).

    A block that was never closed runs to the end of the reply. Without an answer block the answer is None; without a
    think block the reasoning is whatever stands outside the answer.
    """
    found = ANSWER.search(reply)
    thought = THINK.search(reply)
    outside = reply[: found.start()] + reply[found.end() :] if found else reply
    reasoning = thought.group(1) if thought else outside
    return reasoning.strip(), found.group(1).strip() if found else None


def render(prediction: Prediction) -> RenderableType:
    """Reasoning and answer for the console; model text is never read as markup."""
    answer = prediction.answer if prediction.answer is not None else "(the reply gives no answer)"
    parts: list[RenderableType] = [Panel(Text(prediction.reasoning or "(none)"), title="reasoning", title_align="left")]
    parts.append(Panel(Text(answer, style="bold"), title="answer", title_align="left"))
    if prediction.completion.truncated:
        parts.append(Text("The reply was cut off: raise max_new_tokens to read it whole.", style="yellow"))
    return Group(*parts)
