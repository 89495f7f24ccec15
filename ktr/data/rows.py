"""The row: one question about one video, image or nothing, with its gold answer. Everything else starts from it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MULTIPLE_CHOICE = "multiple choice"
MEDIA_KINDS = ("video", "image")
# What a reply to a row is to hold: its reasoning and the answer, the answer alone, or timestamped captions.
REASONING, DIRECT, CAPTIONING = TASKS = ("reasoning", "direct", "captioning")
# Annotated ends are often rounded up to whole seconds.
DURATION_SLACK = 1.0

_OPTION_LABEL = re.compile(r"^\s*\(?([A-Z])\s*[.:)]")
_CONTROL_TOKEN = re.compile(r"<\|[A-Za-z_]+\|>")


class UnusableRowError(ValueError):
    """A well-formed row that cannot be used: its media cannot be read, or its prompt is too long."""


class RowError(ValueError):
    """A row that cannot be used. The message names file, line, row id and field, as far as they are known."""

    def __init__(
        self,
        problem: str,
        *,
        field: str = "",
        row_id: str = "",
        file: str | Path = "",
        line: int | None = None,
        index: int | None = None,
    ) -> None:
        place = [str(file)] if str(file) else []
        if line is not None:
            place.append(f"line {line}")
        if index is not None:
            place.append(f"row {index}")
        if row_id:
            place.append(f"id {row_id!r}")
        if field:
            place.append(f"field {field!r}")
        super().__init__(f"{', '.join(place)}: {problem}" if place else problem)
        self.problem, self.field, self.row_id = problem, field, row_id
        self.file, self.line, self.index = str(file), line, index

    def located(self, *, file: str | Path, line: int | None, index: int | None, row_id: str = "") -> RowError:
        """The same error with its place in a file."""
        return RowError(self.problem, field=self.field, row_id=self.row_id or row_id, file=file, line=line, index=index)


@dataclass(frozen=True, slots=True)
class Media:
    """A file and, for a video, the part of it that is asked about.

    Args:
        kind: `video` or `image`.
        path: as written in the data: relative to the media root, absolute, or a `file://` address.
        start: seconds from the first frame; None is the beginning.
        end: seconds from the first frame; None is the end.
    """

    kind: str
    path: str
    start: float | None = None
    end: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in MEDIA_KINDS:
            raise RowError(f"unknown kind of media {self.kind!r}; known: {', '.join(MEDIA_KINDS)}", field="kind")
        if not self.path or "\0" in self.path:
            raise RowError("the path of the media file is empty or holds a NUL character", field="path")
        if self.start is None and self.end is None:
            return
        if self.kind == "image":
            raise RowError("an image has no start or end", field="start")
        for name, value in (("start", self.start), ("end", self.end)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise RowError(f"{name} {value} is not a time in seconds from 0", field=name)
        if self.end is not None and (self.start or 0.0) >= self.end:
            raise RowError(f"start {self.start or 0.0} is not before end {self.end}", field="start")


@dataclass(frozen=True, slots=True)
class Row:
    """One question with its gold answer. Ids and answers are text, whatever they look like.

    Args:
        problem_type: how the answer is scored: `multiple choice`, `numerical`, `OCR`, `free-form`, `regression`, ...
        options: as shown to the model; those of a multiple-choice row carry letters (`A. red`).
        answer: bare gold text, without tags; the letter for multiple choice.
        rationale: the reasoning a supervised target holds, without tags.
        duration: seconds of the whole video, as the data say.
        category: kind of question, for tables by kind.
        captions: what happens in the media, a line an event with its times; for judges and for captioning.
        task: one of `TASKS`; prompts may word each of them in its own way.

    Raises:
        RowError: when the row could not be asked or scored.
    """

    id: str
    question: str
    media: Media | None
    problem_type: str
    options: tuple[str, ...]
    answer: str
    rationale: str | None = None
    duration: float | None = None
    source: str = ""
    category: str = ""
    captions: str | None = None
    task: str = REASONING

    def __post_init__(self) -> None:
        if not self.id:
            raise RowError("the id is empty", field="id")
        if not self.question.strip():
            raise self._wrong("question", "the question is empty")
        if not self.problem_type:
            raise self._wrong("problem_type", "the problem type is empty")
        if not self.answer.strip():
            raise self._wrong("answer", "the gold answer is empty, so no reply could be right")
        if self.problem_type == MULTIPLE_CHOICE:
            self._check_options()
        if self.task not in TASKS:
            raise self._wrong("task", f"unknown task {self.task!r}; known: {', '.join(TASKS)}")
        for name, text in (("question", self.question), ("answer", self.answer), ("rationale", self.rationale or "")):
            self._check_text(name, text)
        for option in self.options:
            self._check_text("options", option)
        if self.duration is not None:
            self._check_duration(self.duration)

    @property
    def modality(self) -> str:
        """`video`, `image`, or `text` for a row without media."""
        return self.media.kind if self.media else "text"

    def _wrong(self, field: str, problem: str) -> RowError:
        return RowError(problem, field=field, row_id=self.id)

    def _check_text(self, name: str, text: str) -> None:
        found = _CONTROL_TOKEN.search(text) if "<|" in text else None
        if found:
            raise self._wrong(name, f"the text holds {found.group()!r}, which a tokenizer reads as a control token")

    def _check_options(self) -> None:
        if not self.options:
            raise self._wrong("options", "a multiple choice row needs its options")
        labels = option_labels(self.options)
        if labels is None:
            raise self._wrong("options", "every option needs a letter of its own, such as 'A. red'")
        if self.answer not in labels:
            raise self._wrong("answer", f"the gold answer {self.answer!r} is none of the options {', '.join(labels)}")

    def _check_duration(self, duration: float) -> None:
        if not (math.isfinite(duration) and duration > 0):
            raise self._wrong("duration", f"{duration} is not a duration in seconds")
        if self.media is None:
            return
        if self.media.start is not None and self.media.start >= duration:
            raise self._wrong("start", f"start {self.media.start} lies past the video's {duration} s")
        if self.media.end is not None and self.media.end > duration + DURATION_SLACK:
            raise self._wrong("end", f"end {self.media.end} lies past the video's {duration} s")


def option_labels(options: Iterable[str]) -> list[str] | None:
    """The letters the options carry (`A. red`, `B: blue`, `(C) ...`), or None unless each has one of its own."""
    found = [_OPTION_LABEL.match(option) for option in options]
    labels = [match.group(1) for match in found if match]
    return labels if len(labels) == len(found) == len(set(labels)) else None


def label_options(options: tuple[str, ...]) -> tuple[str, ...]:
    """Options with letters: as they are if each has its own, else `A. ...`, `B. ...` put before them."""
    if option_labels(options) is not None:
        return options
    if len(options) > 26:
        raise RowError(f"{len(options)} options are more than there are letters", field="options")
    return tuple(f"{chr(ord('A') + index)}. {option}" for index, option in enumerate(options))


def duplicate_ids(rows: Iterable[Row]) -> dict[str, int]:
    """Ids that more than one row carries, with how many do."""
    return {row_id: count for row_id, count in Counter(row.id for row in rows).items() if count > 1}
