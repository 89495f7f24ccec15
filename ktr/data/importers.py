"""Importers: files of other projects become rows. A wrong row is an error that names file, line and field.

| format             | rows of                                                                              |
|--------------------|--------------------------------------------------------------------------------------|
| `video_r1`         | Video-R1's RL and COT files (`problem`, `solution`, `path`, and `process` for COT)   |
| `rewatch_qa`       | ReWatch-QA (`problem` with its options in the text, `videos`, `answer`)               |
| `rewatch_captions` | timestamped captions (`video`, `events`), as a captioning task                       |
| `benchmark`        | benchmarks in EasyVideoR1's form: Video-R1's keys and each benchmark's own            |
| `video_holmes`     | Video-Holmes as published: `Question`, `Options` by letter, `video ID`                |
| `conversations`    | LLaVA's form: `conversations` of human and gpt turns about one `video` or `image`     |
| `tempcompass`      | TempCompass as published: `video_id`, `dim`, `question` with its options, `answer`     |
| `videoreasonbench` | VideoReasonBench's question files, with the states that operations are checked against |
| `plain`            | `question`, `answer`, `options`, `problem_type`, `video` or `image`, ...              |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ktr.data.conversations import conversations
from ktr.data.fields import Fields, gold_label, problem_type_of, split_options, untagged_answer, untagged_rationale
from ktr.data.hub import is_hub_address, read_hub
from ktr.data.paths import resolve_media
from ktr.data.prompts import clock
from ktr.data.records import Record, read_records
from ktr.data.rows import (
    CAPTIONING,
    MEDIA_KINDS,
    MULTIPLE_CHOICE,
    REASONING,
    Media,
    Row,
    RowError,
    duplicate_ids,
    label_options,
)
from ktr.data.tasks import CAPTIONING_QUESTION
from ktr.data.video_reason_bench import OPERATIONS, operations_gold, video_reason_bench

__all__ = ["FORMATS", "iter_rows", "load_rows", "resolve_media"]

logger = logging.getLogger(__name__)

# Where benchmarks say what kind of question a row is, and what they write there when they only mean its form.
_KIND_FIELDS = ("task_type", "category", "ovo_task", "q_type_livesports", "original_question_type")
_NO_KIND = ("none", "multiple-choice", "multiple choice", "open", "open-ended")


def load_rows(
    format: str, path: str | Path, *, limit: int | None = None, rejects: list[RowError] | None = None
) -> list[Row]:
    """All rows of a file, or the first `limit`. See `iter_rows`; ids that occur twice are logged."""
    rows = list(islice(iter_rows(format, path, rejects=rejects), limit))
    twice = duplicate_ids(rows)
    if twice:
        logger.warning("%s: %d ids occur more than once, such as %s", path, len(twice), ", ".join(list(twice)[:3]))
    return rows


def iter_rows(format: str, path: str | Path, *, rejects: list[RowError] | None = None) -> Iterator[Row]:
    """Rows of a file, of a folder that `datasets` wrote, or of `hf://owner/name` (see `ktr.data.hub`), one at a time.

    Args:
        format: a key of `FORMATS`.
        rejects: where the errors of wrong rows go; without it the first one is raised.

    Raises:
        ValueError: for an unknown format.
        RowError: for a wrong row, naming file, line and field, or a file that cannot be read.
    """
    if format not in FORMATS:
        raise ValueError(f"data.format={format!r} is unknown; known: {', '.join(FORMATS)}")
    convert = FORMATS[format]
    for record, name in _records(path, rejects):
        try:
            rows = convert(Fields(record.data, f"{name}-{record.index}"))
        except RowError as error:
            located = _located(error, path, record)
            if rejects is None:
                raise located from error
            rejects.append(located)
            continue
        yield from (rows,) if isinstance(rows, Row) else rows


def _records(path: str | Path, rejects: list[RowError] | None) -> Iterator[tuple[Record, str]]:
    """Records of a file, a folder or a name on the hub, and the name that rows without an id are called by."""
    if is_hub_address(path):
        name = str(path).removeprefix("hf://").partition("?")[0].rstrip("/").rpartition("/")[2]
        for index, values in read_hub(str(path)):
            yield Record(index, None, values), name
        return
    file = Path(path)
    for record in read_records(file, rejects):
        yield record, file.stem


def _located(error: RowError, file: str | Path, record: Record) -> RowError:
    row_id = record.data.get("problem_id", record.data.get("id", ""))
    return error.located(file=file, line=record.line, index=record.index, row_id=str(row_id or ""))


def video_r1(fields: Fields) -> Row:
    """A row of Video-R1's published schema (RL: `solution`; COT: `process` too)."""
    problem_type = problem_type_of(fields.text("problem_type"))
    return _row(
        fields,
        question=fields.text("problem"),
        media=_media(fields),
        problem_type=problem_type,
        options=fields.texts("options"),
        answer=untagged_answer(fields.text("solution")),
        rationale=untagged_rationale(fields.optional("process")),
        source=fields.optional("data_source") or "",
        category=problem_type,
    )


def benchmark(fields: Fields) -> Row:
    """A benchmark's row in EasyVideoR1's form. The kind of question is what each benchmark calls it."""
    problem_type = problem_type_of(fields.text("problem_type"))
    question, answer = fields.text("problem", "question"), untagged_answer(fields.text("solution", "answer"))
    if answer == "None" and fields.data.get("states"):  # VideoReasonBench's rows that kept their states
        problem_type, answer = OPERATIONS, operations_gold(fields.data, fields.text("path"), question)
    kinds = [fields.optional(name) for name in _KIND_FIELDS]
    return _row(
        fields,
        question=question,
        media=_media(fields),
        problem_type=problem_type,
        options=fields.texts("options"),
        answer=answer,
        rationale=untagged_rationale(fields.optional("process")),
        source=fields.optional("data_source") or "",
        category=next((kind for kind in kinds if kind and kind.casefold() not in _NO_KIND), problem_type),
    )


def video_holmes(fields: Fields) -> Row:
    """A row of Video-Holmes (arXiv 2505.21374); its videos are `videos_cropped/<video ID>.mp4`."""
    options = fields.data.get("Options")
    if not isinstance(options, Mapping) or not options:
        raise RowError("options by letter are wanted, such as {'A': 'red'}", field="Options")
    video = fields.text("video ID")
    lettered = Fields(options, "")
    return _row(
        fields,
        identity=f"{video}-{fields.text('Question ID')}",
        question=fields.text("Question"),
        media=Media("video", f"videos_cropped/{video}.mp4"),
        problem_type=MULTIPLE_CHOICE,
        options=tuple(f"{letter}. {lettered.text(letter)}" for letter in sorted(options) if options[letter]),
        answer=fields.text("Answer").strip(),
        rationale=untagged_rationale(fields.optional("Explanation")),
        source="Video-Holmes",
        category=fields.optional("Question Type") or "",
    )


def rewatch_qa(fields: Fields) -> Row:
    """A row of ReWatch-QA: the options of a multiple-choice question are the last lines of its text."""
    question = fields.text("problem")
    options: tuple[str, ...] = ()
    choice = fields.data.get("multiple_choice")
    if not isinstance(choice, bool):
        raise RowError("true or false is wanted", field="multiple_choice")
    if choice:
        question, options = split_options(question)
    return _row(
        fields,
        question=question,
        media=Media(fields.optional("data_type") or "video", fields.text("videos")),
        problem_type=MULTIPLE_CHOICE if choice else "open-ended",
        options=options,
        answer=fields.text("answer"),
        rationale=untagged_rationale(fields.optional("process")),
        duration=fields.number("duration"),
        source="ReWatch-QA",
        category=fields.optional("question_type") or "",
    )


def rewatch_captions(fields: Fields) -> Row:
    """Timestamped captions as a task: the answer has one line an event, `MM:SS-MM:SS: caption`."""
    video = fields.text("video")
    duration = fields.number("duration")
    events = fields.data.get("events")
    if not isinstance(events, list) or not events:
        raise RowError("a list of events is wanted", field="events")
    lines = []
    for event in events:
        if not isinstance(event, dict):
            raise RowError("an event is an object with start, end and caption", field="events")
        part = Fields(event, "")
        start, end = part.number("start"), part.number("end")
        if start is None or end is None or not 0 <= start <= end:
            raise RowError(f"an event runs from {start} to {end}", field="events")
        longest = max(duration or 0.0, end)
        lines.append(f"{clock(start, longest)}-{clock(end, longest)}: {part.text('caption').strip()}")
    return _row(
        fields,
        identity=fields.identity("problem_id", "id") if "id" in fields.data else video,
        question=CAPTIONING_QUESTION,
        media=Media("video", video),
        problem_type=CAPTIONING,
        options=(),
        answer="\n".join(lines),
        duration=duration,
        source="ReWatch-Caption",
        category=CAPTIONING,
        captions="\n".join(lines),
        task=CAPTIONING,
    )


def tempcompass(fields: Fields) -> Row:
    """A question of TempCompass (arXiv 2403.00476) in its published form: yes or no, or options inside the question."""
    answer = fields.text("answer").strip()
    return _row(
        fields,
        question=fields.text("question"),
        media=Media("video", f"{fields.text('video_id')}.mp4"),
        problem_type="yes/no" if answer.casefold() in ("yes", "no") else MULTIPLE_CHOICE,
        options=(),
        answer=answer,
        source="TempCompass",
        category=fields.optional("dim") or "",
    )


def plain(fields: Fields) -> Row:
    """A row in this project's own words; what it lacks has the plainest default."""
    options = fields.texts("options")
    declared = fields.optional("problem_type")
    if declared is None:
        declared = MULTIPLE_CHOICE if options else "free-form"
    return _row(
        fields,
        question=fields.text("question", "problem"),
        media=_plain_media(fields),
        problem_type=problem_type_of(declared),
        options=options,
        answer=untagged_answer(fields.text("answer", "solution")),
        rationale=untagged_rationale(fields.optional("rationale", "process")),
        duration=fields.number("duration"),
        source=fields.optional("source", "data_source") or "",
        category=declared if (category := fields.optional("category")) is None else category,
        task=CAPTIONING if declared == CAPTIONING else REASONING,
        captions=fields.optional("captions"),
    )


FORMATS: dict[str, Callable[[Fields], Row | list[Row]]] = {
    "video_r1": video_r1,
    "rewatch_qa": rewatch_qa,
    "rewatch_captions": rewatch_captions,
    "benchmark": benchmark,
    "video_holmes": video_holmes,
    "conversations": conversations,
    "videoreasonbench": video_reason_bench,
    "tempcompass": tempcompass,
    "plain": plain,
}


def _row(fields: Fields, *, identity: str | None = None, **values: Any) -> Row:
    if values["problem_type"] == MULTIPLE_CHOICE:
        if not values["options"]:
            try:
                values["question"], values["options"] = split_options(values["question"])
            except RowError:
                raise RowError("a multiple choice row needs its options", field="options") from None
        values["options"] = label_options(values["options"])
        values["answer"] = gold_label(values["answer"], values["options"])
    return Row(id=identity or fields.identity("problem_id", "id"), **values)


def _media(fields: Fields) -> Media | None:
    kind = fields.text("data_type")
    if kind == "text":
        return None
    if kind not in MEDIA_KINDS:
        raise RowError(f"{kind!r} is not one of {', '.join(MEDIA_KINDS)}, text", field="data_type")
    return Media(kind, fields.text("path"), *_bounds(fields))


def _plain_media(fields: Fields) -> Media | None:
    given = [kind for kind in ("video", "image") if fields.data.get(kind)]
    if len(given) == 2:
        raise RowError("a row has a video or an image, not both", field="image")
    if given:
        return Media(given[0], fields.text(given[0]), *_bounds(fields))
    return _media(fields) if "path" in fields.data else None


def _bounds(fields: Fields) -> tuple[float | None, float | None]:
    return fields.number("start"), fields.number("end")
