"""Rows of a benchmark's file with the facets by which its accuracy is shown, and with subtitles where they are asked.

A file's format may be left open (`auto`): rows with `data_type` are read as `benchmark`, rows with `videos` and
`multiple_choice` as `rewatch_qa`, rows with `visible_time` as `videoreasonbench`, rows with `video_id` and `dim` as
`tempcompass`, all others as `plain`; which one is logged.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ktr.data.importers import load_rows
from ktr.data.records import read_records
from ktr.data.rows import Row

logger = logging.getLogger(__name__)

FROM_ROWS = "rows"
_PAIR_ID = "mbinary_id"
_SRT_TIME = re.compile(r"(\d+):(\d{2}):(\d{2})[,.](\d{1,3})\s*-->\s*(\d+):(\d{2}):(\d{2})[,.](\d{1,3})")
_MARKUP = re.compile(r"<[^<>]{1,40}>|\{\\[^{}]*\}")


@dataclass(frozen=True)
class BenchmarkRows:
    """Rows in file order; `facets` by row id. `with_subtitles` counts the rows that were given some."""

    rows: list[Row]
    facets: dict[str, dict[str, str]] = field(default_factory=dict)
    with_subtitles: int | None = None


def load_benchmark_rows(
    path: str | Path,
    *,
    format: str = "auto",
    limit: int | None = None,
    facets: Mapping[str, str] | None = None,
    subtitles: str | Path | None = None,
    subtitle_lines: int | None = None,
) -> BenchmarkRows:
    """The rows of a file, or the first `limit`.

    Args:
        facets: name -> column of the file, several candidates parted by `|`; the first that a row has counts.
        subtitles: `rows` for the column `subtitle`, or a folder with one `.srt` file a video, named like it.
        subtitle_lines: at most as many lines, evenly spread over the video; None for all.

    Raises:
        ValueError: a row that cannot be read (naming file, line and field), or a subtitle folder that is not there.
    """
    file = Path(path)
    chosen = detect_format(file) if format == "auto" else format
    rows = load_rows(chosen, file, limit=limit)
    raw = [record.data for record in islice(read_records(file), len(rows))]
    rows = _numbered_pairs(rows, raw)
    found = {row.id: _facets(data, facets or {}) for row, data in zip(rows, raw, strict=True)}
    absent = [name for name in facets or {} if rows and not any(name in own for own in found.values())]
    if absent:
        logger.warning("%s: the rows lack the columns of %s, so there is no table by them", file, ", ".join(absent))
    if subtitles is None:
        return BenchmarkRows(rows, found)
    told = [
        _with_subtitles(row, _lines(row, data, subtitles), subtitle_lines) for row, data in zip(rows, raw, strict=True)
    ]
    count = sum(new is not old for new, old in zip(told, rows, strict=True))
    logger.info("%s: %d of %d rows have subtitles", file, count, len(rows))
    return BenchmarkRows(told, found, count)


def _numbered_pairs(rows: Sequence[Row], raw: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows with VideoMathQA's `mbinary_id` behind their question's id, where several pairs of a question share it."""
    shared = Counter(row.id for row in rows)
    return [
        dataclasses.replace(row, id=f"{row.id}-{data[_PAIR_ID]}") if shared[row.id] > 1 and _PAIR_ID in data else row
        for row, data in zip(rows, raw, strict=True)
    ]


def detect_format(path: Path) -> str:
    """The format that a file's first row shows by its keys. Raises RowError for a file without rows."""
    first = next(iter(read_records(path))).data
    if "data_type" in first:
        chosen = "benchmark"
    elif "videos" in first and "multiple_choice" in first:
        chosen = "rewatch_qa"
    elif "visible_time" in first:
        chosen = "videoreasonbench"
    elif "video_id" in first and "dim" in first and "options" not in first:
        chosen = "tempcompass"
    else:
        chosen = "plain"
    logger.info("%s: rows read as %s", path, chosen)
    return chosen


def read_srt(text: str) -> list[tuple[float, str]]:
    """Start in seconds and text of each cue of an `.srt` file; cues that cannot be read are left out."""
    cues = []
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n").lstrip("\ufeff")):
        time = _SRT_TIME.search(block)
        if time is None:
            continue
        hours, minutes, seconds, fraction = time.groups()[:4]
        words = " ".join(_MARKUP.sub("", block[time.end() :]).split())
        if words:
            start = int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction}")
            cues.append((start, words))
    return cues


def _facets(data: Mapping[str, Any], wanted: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, columns in wanted.items():
        values = (data.get(column.strip()) for column in columns.split("|"))
        value = next((value for value in values if isinstance(value, str | int) and str(value).strip()), None)
        if value is not None:
            found[name] = str(value)
    return found


def _lines(row: Row, data: Mapping[str, Any], subtitles: str | Path) -> list[str]:
    if str(subtitles) == FROM_ROWS:
        text = data.get("subtitle")
        text = text if isinstance(text, str) else ""
    else:
        folder = Path(subtitles).expanduser()
        if not folder.is_dir():
            raise ValueError(
                f"eval.subtitles={subtitles} is no folder of .srt files; use {FROM_ROWS} for the rows' own"
            )
        file = folder / f"{Path(row.media.path).stem}.srt" if row.media is not None else None
        text = file.read_text(encoding="utf-8", errors="replace") if file is not None and file.is_file() else ""
    cues = read_srt(text)
    return [words for _, words in cues] if cues else [line.strip() for line in text.splitlines() if line.strip()]


def _with_subtitles(row: Row, lines: Sequence[str], most: int | None) -> Row:
    if not lines:
        return row
    if most is not None and len(lines) > most:
        lines = [lines[int((place + 0.5) * len(lines) / most)] for place in range(most)]
    told = "Subtitles of the video:\n" + "\n".join(lines)
    return dataclasses.replace(row, question=f"{told}\n\n{row.question}")
