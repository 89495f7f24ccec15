"""Evaluation records: one JSON line per sample, append-only, resumable after a kill at any byte.

A line counts once its newline is on disk. Whatever follows the last newline is a torn tail: readers leave it out and
say so, a writer cuts it off before appending.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

logger = logging.getLogger(__name__)

MEDIA_ERROR = "media_error"
TRUNCATED = "truncated"


class RecordKey(NamedTuple):
    """What makes a sample unique inside one record file."""

    id: str
    view: str
    sample: int


@dataclass(frozen=True)
class Record:
    """One scored sample.

    `status` is the verdict's (`ok`, `no_answer`, `ambiguous`, `truncated`, `unparsable`, `abstained`), or
    `media_error`, `prompt_too_long` or `no_reply` (none was given to replay). `accuracy` is in [0, 1], or None where
    only an absent judge could tell. `frames` holds the source
    indices of the frames shown, in the order shown. `view_changed` is False where the view left the input as it was
    (an image has no frame order). `detail` says why media could not be read, or what decided the verdict when it was
    not the plain rule. `prompt_digest` covers the prompt's text and its frames' pixels; `digest` covers row, view,
    decoding and seed, so that a resumed run never takes over a sample made under other settings. `scored_by` is `rule`,
    `judge`, or empty where nothing was scored. `question` and `options` let a reply be scored again without its row;
    `facets` are the columns by which accuracy is shown, such as a video's length.
    """

    id: str
    view: str
    sample: int
    category: str
    problem_type: str
    gold: str
    reply: str
    parsed: str | None
    status: str
    accuracy: float | None
    format: float
    num_tokens: int
    truncated: bool
    frames: tuple[int, ...] = ()
    view_changed: bool = True
    detail: str = ""
    prompt_digest: str = ""
    digest: str = ""
    scored_by: str = ""
    question: str = ""
    options: tuple[str, ...] = ()
    facets: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> RecordKey:
        return RecordKey(self.id, self.view, self.sample)

    @property
    def answered(self) -> bool:
        """Whether an answer was read from the reply (an open answer that waits for a judge is one)."""
        return self.status in ("ok", "abstained")

    def to_json(self) -> str:
        """One JSON object without a newline; readable text, escaped only where UTF-8 cannot hold it."""
        values = dataclasses.asdict(self)
        line = json.dumps(values, ensure_ascii=False, allow_nan=False)
        try:
            line.encode("utf-8")
        except UnicodeEncodeError:
            line = json.dumps(values, ensure_ascii=True, allow_nan=False)
        return line

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Raises ValueError naming the unknown or missing fields."""
        fields = dataclasses.fields(cls)
        unknown = sorted(set(values) - {field.name for field in fields})
        missing = [f.name for f in fields if f.default is dataclasses.MISSING and f.name not in values]
        if unknown or missing:
            raise ValueError(f"not an evaluation record: unknown fields {unknown}, missing fields {missing}")
        lists = {name: tuple(values.get(name, ())) for name in ("frames", "options")}
        return cls(**{**values, **lists})


@dataclass(frozen=True)
class RecordFile:
    """The records of a file and the size in bytes of the torn tail left out (0 when the file ends cleanly)."""

    records: list[Record]
    torn_bytes: int


def read_records(path: str | Path) -> RecordFile:
    """Read a JSONL record file, leaving out a torn last line.

    Raises ValueError with file and line for a complete line that is not a record, and for a sample recorded twice.
    """
    path = Path(path)
    *lines, tail = path.read_bytes().split(b"\n")
    records: list[Record] = []
    seen: dict[RecordKey, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = Record.from_dict(json.loads(line))
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}:{number}: unreadable record ({error})") from error
        if record.key in seen:
            raise ValueError(
                f"{path}:{number}: sample {tuple(record.key)} is also on line {seen[record.key]}; "
                "two runs wrote this file, evaluate again into a new one"
            )
        seen[record.key] = number
        records.append(record)
    if tail:
        logger.warning("%s: left out a torn last line of %d bytes", path, len(tail))
    return RecordFile(records, len(tail))


class RecordWriter:
    """Appends records to a JSONL file; a context manager.

    Each record is handed to the system at once, so a killed process loses at most the line it was writing; every
    `sync_every` records and on close the file is forced to disk, so a power cut loses no more than that.
    """

    def __init__(self, path: str | Path, *, sync_every: int = 64) -> None:
        if sync_every < 1:
            raise ValueError(f"sync_every must be at least 1, got {sync_every}")
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._sync_every = sync_every
        self._unsynced = 0
        self._file = self.path.open("ab")
        self._cut_torn_tail()

    def _cut_torn_tail(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            logger.warning("%s: cut off a torn last line of %d bytes", self.path, len(data) - whole)
            self._file.truncate(whole)

    def write(self, records: Iterable[Record]) -> None:
        for record in records:
            self._file.write(record.to_json().encode("utf-8") + b"\n")
            self._unsynced += 1
        self._file.flush()
        if self._unsynced >= self._sync_every:
            self._sync()

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._unsynced = 0

    def close(self) -> None:
        if not self._file.closed:
            self._file.flush()
            self._sync()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
