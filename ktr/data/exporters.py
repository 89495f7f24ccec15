"""Rows as files: this project's own form (`data=jsonl` reads it back as it was), or Video-R1's."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ktr.data.rows import MULTIPLE_CHOICE, Row
from ktr.reporting.files import write_atomic

COLUMNS = (
    "id", "question", "video", "image", "start", "end", "problem_type", "options", "answer", "rationale", "duration",
    "source", "category", "captions",
)  # fmt: skip


def plain_record(row: Row) -> dict[str, Any]:
    """A row in the form that `data=jsonl` reads; fields without a value are left out."""
    media = row.media
    values = {
        "id": row.id,
        "question": row.question,
        "video": media.path if media is not None and media.kind == "video" else None,
        "image": media.path if media is not None and media.kind == "image" else None,
        "start": media.start if media is not None else None,
        "end": media.end if media is not None else None,
        "problem_type": row.problem_type,
        "options": list(row.options) or None,
        "answer": row.answer,
        "rationale": row.rationale,
        "duration": row.duration,
        "source": row.source or None,
        "category": row.category,
        "captions": row.captions,
    }
    assert tuple(values) == COLUMNS
    return {name: value for name, value in values.items() if value is not None}


def video_r1_record(row: Row) -> dict[str, Any]:
    """A row in Video-R1's published schema, which has no place for `duration`, `category` and `captions`.

    Raises:
        ValueError: the row asks about a part of a video, which the schema cannot say.
    """
    media = row.media
    if media is not None and (media.start is not None or media.end is not None):
        raise ValueError(f"row {row.id!r} asks about a part of its video; Video-R1's schema has whole videos only")
    record = {
        "problem_id": row.id,
        "problem": row.question,
        "data_type": row.modality,
        "problem_type": row.problem_type,
        "options": list(row.options) if row.problem_type == MULTIPLE_CHOICE else [],
        "solution": f"<answer>{row.answer}</answer>",
        "path": media.path if media is not None else "",
        "data_source": row.source,
    }
    if row.rationale is not None:
        record["process"] = f"<think>{row.rationale}</think>"
    return record


def write_rows(rows: Sequence[Row], path: Path, format: str = "jsonl") -> Path:
    """Writes a whole file or none.

    Args:
        format: `jsonl`, `json`, `csv`, `parquet`, or `video_r1` (a JSON array in its schema).

    Raises:
        ValueError: an unknown format, or a row that the format cannot hold.
    """
    if format not in WRITERS:
        raise ValueError(f"rows cannot be written as {format!r}; known: {', '.join(WRITERS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[format](rows, path)
    return path


def write_lines(records: Iterable[dict[str, Any]], path: Path) -> None:
    write_atomic(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def _jsonl(rows: Sequence[Row], path: Path) -> None:
    write_lines(map(plain_record, rows), path)


def _json(rows: Sequence[Row], path: Path) -> None:
    write_atomic(path, json.dumps([plain_record(row) for row in rows], ensure_ascii=False, indent=1) + "\n")


def _video_r1(rows: Sequence[Row], path: Path) -> None:
    write_atomic(path, json.dumps([video_r1_record(row) for row in rows], ensure_ascii=False, indent=1) + "\n")


def _csv(rows: Sequence[Row], path: Path) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    for row in rows:
        record = plain_record(row)
        if "options" in record:
            record["options"] = json.dumps(record["options"], ensure_ascii=False)
        writer.writerow(record)
    write_atomic(path, text.getvalue())


def _parquet(rows: Sequence[Row], path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    unfinished = path.with_name(f".{path.name}.tmp")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([plain_record(row) for row in rows], _schema()), unfinished)
    unfinished.replace(path)


def _schema() -> Any:
    import pyarrow

    kinds = {"start": pyarrow.float64(), "end": pyarrow.float64(), "duration": pyarrow.float64()}
    kinds["options"] = pyarrow.list_(pyarrow.string())
    return pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in COLUMNS])


WRITERS: dict[str, Callable[[Sequence[Row], Path], None]] = {
    "jsonl": _jsonl,
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "video_r1": _video_r1,
}
SUFFIXES = {"jsonl": ".jsonl", "json": ".json", "csv": ".csv", "parquet": ".parquet", "video_r1": ".json"}
