"""Several tasks from the same rows: timestamped captions, direct answers and reasoning, learned together.

ReWatch-R1 (arXiv 2509.23652) warms up on all three with one loss; each has an instruction of its own in the prompt.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ktr.data.rows import CAPTIONING, DIRECT, REASONING, Media, Row

logger = logging.getLogger(__name__)

CAPTIONING_QUESTION = "Describe what happens in the video, event by event, each with its start and end time."


def captions_by_path(rows: Sequence[Row]) -> dict[str, str]:
    """The captions of each media file, by its path as the data write it."""
    return {_key(row.media): row.captions for row in rows if row.media is not None and row.captions is not None}


def with_captions(rows: Sequence[Row], captions: Mapping[str, str], source: str | Path) -> list[Row]:
    """Rows with the captions of their media; a row that has captions keeps its own.

    Raises:
        ValueError: no row's media has captions: the paths of the two files do not go together.
    """
    joined = [
        row if row.captions is not None or row.media is None else replace(row, captions=captions.get(_key(row.media)))
        for row in rows
    ]
    missing = sum(row.captions is None for row in joined)
    if rows and missing == len(rows):
        known = next(iter(captions), "none")
        raise ValueError(
            f"{source} has captions for none of the {len(rows)} rows: they name media otherwise, the rows such as "
            f"{rows[0].media.path if rows[0].media else 'no media'!r} and the captions such as {known!r}"
        )
    if missing:
        logger.warning("%s has no captions for %d of %d rows", source, missing, len(rows))
    return joined


def task_rows(rows: Sequence[Row], tasks: Sequence[str]) -> list[Row]:
    """The rows to learn `tasks` from, task after task.

    `reasoning` and `direct` ask the rows' own questions, `captioning` asks once a video for its captions. With
    `reasoning` alone rows stay as they are, so that one without a rationale is an error later; beside other tasks the
    rows without a rationale only serve those. Rows that are captioning by themselves serve that task alone.

    Raises:
        ValueError: a task has no rows.
    """
    if tuple(tasks) == (REASONING,):
        return list(rows)
    asked = [row for row in rows if row.task != CAPTIONING]
    found = {
        REASONING: [replace(row, task=REASONING) for row in asked if row.rationale is not None],
        DIRECT: [replace(row, id=f"{row.id}-{DIRECT}", task=DIRECT) for row in asked],
        CAPTIONING: _captioning_rows(rows),
    }
    needs = {
        REASONING: "rows with a rationale",
        DIRECT: "rows with a question of their own",
        CAPTIONING: "captions: set data.captions_path, or use rows with captions",
    }
    for task in tasks:
        if not found[task]:
            raise ValueError(f"the task {task!r} of data.sft_tasks has no rows; it needs {needs[task]}")
        logger.info("%d rows for the task %s", len(found[task]), task)
    return [row for task in tasks for row in found[task]]


def _captioning_rows(rows: Sequence[Row]) -> list[Row]:
    first: dict[Media, Row] = {}
    for row in rows:
        if row.media is not None and row.captions is not None and row.media.kind == "video":
            first.setdefault(row.media, row)
    return [
        row
        if row.task == CAPTIONING
        else Row(
            id=f"{row.id}-{CAPTIONING}",
            question=CAPTIONING_QUESTION,
            media=media,
            problem_type=CAPTIONING,
            options=(),
            answer=row.captions or "",
            duration=row.duration,
            source=row.source,
            category=CAPTIONING,
            captions=row.captions,
            task=CAPTIONING,
        )
        for media, row in first.items()
    ]


def _key(media: Media) -> str:
    return posixpath.normpath(media.path)
