"""The check of a data set before a run: every row, and every file in a process of its own that can be killed.

Written into the output folder:

| file             | holds                                                                                         |
|------------------|-----------------------------------------------------------------------------------------------|
| `verified.jsonl` | rows that can be used (`data=jsonl` reads it), with the duration measured                       |
| `rejects.jsonl`  | one line a row that cannot: id, path, reason, first error                                     |
| `summary.json`   | counts by reason and source, codecs, duplicates, name collisions                               |
| `checked.jsonl`  | what was found about each file; a stopped check goes on from there                             |

Reasons are those of `MediaError`, and `timeout` (reading did not end), `crashed` (it killed its process),
`invalid_row`, `duplicate_id`, `prompt_too_long` and `bad_prompt`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ktr.data.doctor_summary import summarize
from ktr.data.exporters import plain_record, write_lines
from ktr.data.inspection import (
    BOUNDS,
    PRELOADED,
    PRELOADED_WITH_MODEL,
    Finding,
    InspectionSettings,
    InspectionTask,
    make_inspector,
)
from ktr.data.paths import MediaError, resolve_media
from ktr.data.rows import Media, Row, RowError
from ktr.data.worker_pool import TIMEOUT, HardLimitPool, Outcome
from ktr.reporting.files import write_atomic
from ktr.rewards.problem_types import PROBLEM_TYPES, is_problem_type

logger = logging.getLogger(__name__)

INVALID_ROW, DUPLICATE_ID = "invalid_row", "duplicate_id"
MOSTLY_MISSING = 0.5


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of the check: seconds a file may take, processes, and memory of each (None for no bound)."""

    seconds: float = 60.0
    workers: int = 1
    memory_bytes: int | None = 8 << 30


def examine(
    rows: Sequence[Row],
    row_errors: Sequence[RowError],
    out: Path,
    settings: InspectionSettings,
    limits: Limits,
    *,
    progress: bool = True,
) -> dict[str, Any]:
    """Checks all rows and writes the files above; returns the summary.

    Args:
        rows: as imported.
        row_errors: of those that could not be imported.
        out: what an earlier check with the same settings found there is used where a file has not changed.

    Raises:
        MediaError: no video decoder works here, so nothing could be said about any video.
        RuntimeError: worker processes cannot start.
    """
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    tasks = _tasks(rows)
    findings, resumed = _findings(tasks, out / "checked.jsonl", settings, limits, progress)
    verified: list[dict[str, Any]] = []
    rejects = [_row_reject(error) for error in row_errors]
    seen: set[str] = set()
    for row in rows:
        finding = findings[row.media]
        problem = _problem(row, finding, seen)
        seen.add(row.id)
        if problem is None:
            verified.append(_verified(row, finding))
        else:
            path = row.media.path if row.media is not None else None
            rejects.append(
                {"id": row.id, "path": path, "reason": problem[0], "error": problem[1], "source": row.source}
            )
    write_lines(verified, out / "verified.jsonl")
    write_lines(rejects, out / "rejects.jsonl")
    summary = summarize(rows, findings, verified, rejects)
    summary["settings"] = dataclasses.asdict(settings) | {"seconds_a_file": limits.seconds}
    summary["prompt_length"] = "exact" if settings.model_path is not None else "visual tokens only (no model.path)"
    summary["files"]["taken from an earlier check"] = resumed
    summary["seconds"] = round(time.monotonic() - started, 1)
    write_atomic(out / "summary.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    missing = summary["reasons"].get("missing", 0)
    if missing > MOSTLY_MISSING * max(len(rows), 1):
        root = settings.media_root
        logger.warning("%d of %d rows have no file: is data.media_root=%s right?", missing, len(rows), root)
    return summary


def _tasks(rows: Sequence[Row]) -> dict[Media | None, InspectionTask]:
    """Rows by what they ask about, so that a file is read once for all of them."""
    asked: dict[Media | None, list[Row]] = {}
    for row in rows:
        asked.setdefault(row.media, []).append(row)
    return {media: InspectionTask(media, tuple(about)) for media, about in asked.items()}


def _findings(
    tasks: Mapping[Media | None, InspectionTask],
    journal: Path,
    settings: InspectionSettings,
    limits: Limits,
    progress: bool,
) -> tuple[dict[Media | None, Finding], int]:
    """A finding for every task, from the journal or from workers, and how many came from the journal."""
    keys = {media: _key(task, settings) for media, task in tasks.items()}
    known = _read_journal(journal, limits)
    findings = {media: known[key] for media, key in keys.items() if key in known}
    resumed = len(findings)
    left = [task for media, task in tasks.items() if media not in findings]
    pool = HardLimitPool(
        make_inspector,
        (settings,),
        workers=min(limits.workers, max(len(left), 1)),
        limit_s=limits.seconds,
        memory_bytes=limits.memory_bytes,
        preload=PRELOADED if settings.model_path is None else PRELOADED_WITH_MODEL,
    )
    bar = tqdm(total=len(tasks), initial=resumed, desc="doctor", unit="file", disable=not progress, dynamic_ncols=True)
    bad = sum(finding.reason is not None for finding in findings.values())
    with journal.open("a", encoding="utf-8") as file, bar:
        for outcome in pool.run(left):
            finding = _finding(outcome)
            findings[outcome.task.media] = finding
            line = {"key": keys[outcome.task.media], "limit": limits.seconds, "finding": dataclasses.asdict(finding)}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            bad += finding.reason is not None
            bar.set_postfix_str(f"{bad} bad", refresh=False)
            bar.update()
    return findings, resumed


def _finding(outcome: Outcome) -> Finding:
    if outcome.failure is not None:
        return Finding(outcome.failure, outcome.detail)
    finding: Finding = outcome.result
    if finding.reason == "no_backend":
        raise MediaError(outcome.task.media.path, "no_backend", finding.error)
    return finding


def _key(task: InspectionTask, settings: InspectionSettings) -> str:
    """Names a check: the file's state on disk, what is asked about it, and the settings."""
    state: tuple[int, int] | None = None
    if task.media is not None:
        with suppress(OSError, MediaError):
            status = resolve_media(task.media, settings.media_root).stat()
            state = (status.st_size, status.st_mtime_ns)
    return hashlib.blake2b(repr((settings, task, state)).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _read_journal(journal: Path, limits: Limits) -> dict[str, Finding]:
    """Findings of an earlier check; a file that timed out is tried again under a longer limit."""
    if not journal.exists():
        return {}
    found = {}
    for line in _whole_lines(journal):
        values = line["finding"]
        if values["reason"] == TIMEOUT and limits.seconds > line["limit"]:
            continue
        values["row_problems"] = {row: (reason, error) for row, (reason, error) in values["row_problems"].items()}
        values["used"] = None if values["used"] is None else tuple(values["used"])
        found[line["key"]] = Finding(**values)
    return found


def _whole_lines(journal: Path) -> Iterator[dict[str, Any]]:
    """The journal's lines; one that a killed check left unfinished is cut off, so that appending stays sound."""
    content = journal.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        journal.write_bytes(whole)
    for line in whole.splitlines():
        with suppress(ValueError):
            yield json.loads(line)


def _problem(row: Row, finding: Finding, seen: set[str]) -> tuple[str, str] | None:
    if row.id in seen:
        return DUPLICATE_ID, "an earlier row carries the same id"
    if not is_problem_type(row.problem_type):
        return INVALID_ROW, f"unknown problem_type {row.problem_type!r}; known: {', '.join(PROBLEM_TYPES)}"
    if finding.reason is not None:
        return finding.reason, finding.error
    return finding.row_problems.get(row.id)


def _row_reject(error: RowError) -> dict[str, Any]:
    reason = BOUNDS if error.field in ("start", "end") else INVALID_ROW
    return {
        "id": error.row_id or None, "path": None, "reason": reason, "error": str(error), "source": "",
        "file": error.file, "line": error.line, "index": error.index, "field": error.field,
    }  # fmt: skip


def _verified(row: Row, finding: Finding) -> dict[str, Any]:
    """The row with what was measured; the importer passes over the keys it does not know."""
    record = plain_record(row)
    if row.duration is None and finding.duration is not None:
        record["duration"] = finding.duration
    if row.media is not None:
        record |= {"backend": finding.backend, "repeated": finding.repeated, "clamped": finding.clamped}
    return record
