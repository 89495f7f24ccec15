"""What has happened to a job of a sweep: one line an event in the folder `launch` of its run folder.

Every task and every worker writes a file of its own (`task_0.jsonl`, `worker_3.jsonl`, by rank), so that no two
machines append to one. An attempt is one start of a job: Slurm's id, or one of this machine's own, and how often it had
been requeued by then (`12_0.1`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ktr.reporting.files import write_atomic

FOLDER, RETURNED = "launch", "returned.json"
STARTED, FINISHED, FAILED, INTERRUPTED, REQUEUED = "started", "finished", "failed", "interrupted", "requeued"


@dataclass(frozen=True)
class Event:
    """`text` is the first line of an error for `failed`, and why the job goes on later for `requeued`."""

    event: str
    attempt: str
    rank: int
    text: str = ""
    time: float = field(default_factory=time.time)


def record(folder: Path, event: Event) -> None:
    """Adds a line to the file of who tells it: workers say that they were interrupted, their task all else.

    The folder is the job's run folder.
    """
    path = folder / FOLDER / f"{'worker' if event.event == INTERRUPTED else 'task'}_{event.rank}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * torn + json.dumps(asdict(event), ensure_ascii=False) + "\n")


def read(folder: Path) -> list[Event]:
    """The events of all ranks in the order of their times. A torn line, of a rank that was killed, is left out."""
    events = []
    for path in sorted((folder / FOLDER).glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            with suppress(json.JSONDecodeError):
                events.append(Event(**json.loads(line)))
    return sorted(events, key=lambda event: event.time)


def of_attempt(events: Iterable[Event], attempt: str, kind: str) -> list[Event]:
    return [event for event in events if event.attempt == attempt and event.event == kind]


def is_finished(events: Iterable[Event]) -> bool:
    return any(event.event == FINISHED for event in events)


def requeues(events: Iterable[Event], reason: str) -> int:
    """How often the job was requeued for a reason."""
    return sum(event.event == REQUEUED and event.text == reason for event in events)


def keep_returned(folder: Path, value: Any) -> None:
    """Writes what the entry returned, for a sweeper that searches; a number, or several."""
    write_atomic(folder / FOLDER / RETURNED, json.dumps(value) + "\n")


def returned(folder: Path) -> Any:
    """What the entry returned, or None."""
    path = folder / FOLDER / RETURNED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
