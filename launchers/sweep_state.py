"""How the jobs of a sweep stand: Slurm's word, what each job wrote about itself, and the table of both."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ktr.config.run_folder_name import is_at_work
from launchers import job_events, slurm
from launchers.job_events import FAILED, FINISHED, STARTED, Event
from launchers.sweep_record import Sweep, SweepJob

COMPLETED, RUNNING, PENDING, LOST = "COMPLETED", "RUNNING", "PENDING", "LOST"
ENDED = slurm.FINAL | {LOST}
# How long a job that was submitted may be unknown to Slurm before it is given up.
UNKNOWN_S = 60.0


@dataclass(frozen=True)
class JobState:
    """`state` is Slurm's word, also for jobs that ran without it; `metric` the last one measured."""

    job: SweepJob
    folder: Path
    state: str
    requeued: int
    metric: str
    error: str

    @property
    def ended(self) -> bool:
        return self.state in ENDED


def states_of(sweep: Sweep) -> list[JobState]:
    """How every job stands now."""
    told = slurm.states(job.ids[-1] for job in sweep.jobs if job.ids) if sweep.launcher == "slurm" else {}
    return [_state_of(sweep, job, told.get(job.ids[-1]) if job.ids else None) for job in sweep.jobs]


def wait_for(sweep: Sweep, console: Console) -> list[JobState]:
    """Waits until every job has ended; each change of how many do what is a line on `console`.

    A final state counts when it is seen twice: a job that is requeued has one for a moment. While Slurm's queue does
    not answer, nothing is known and the wait goes on.
    """
    seen: dict[int, str] = {}
    shown = ""
    while True:
        try:
            found = states_of(sweep)
            counts = Counter(one.state for one in found)
            line = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        except slurm.SlurmError as error:
            found, line = [], f"waiting for Slurm: {error}"
        if line != shown:
            console.print(f"{time.strftime('%H:%M:%S')} {line}")
            shown = line
        if found and all(one.ended and seen.get(one.job.number) == one.state for one in found):
            return found
        seen = {one.job.number: one.state for one in found}
        time.sleep(min(2.0, sweep.settings["poll_s"]) if all(one.ended for one in found) else sweep.settings["poll_s"])


def table_of(sweep: Sweep, found: Sequence[JobState]) -> Table:
    """State, swept overrides, run folder, last metric and first error line of every job."""
    table = Table(title=str(sweep.folder), title_justify="left", title_style="bold")
    for name in ("job", "state", "overrides", "folder", "requeued", "last metric", "error"):
        table.add_column(name, overflow="fold", justify="right" if name == "requeued" else "left")
    axes = sweep.axes()
    for one in found:
        style = "red" if one.ended and one.state != COMPLETED else "green" if one.state == COMPLETED else ""
        cells = (axes[one.job.number], one.folder.name, str(one.requeued or ""), one.metric, one.error)
        table.add_row(str(one.job.number), Text(one.state, style), *map(Text, cells))
    return table


def failure(found: Sequence[JobState]) -> str | None:
    """One line where jobs did not complete."""
    failed = [one for one in found if one.state != COMPLETED]
    if not failed:
        return None
    numbers = ", ".join(str(one.job.number) for one in failed)
    return f"{len(failed)} of {len(found)} jobs did not complete (job{'s' if len(failed) > 1 else ''} {numbers})"


def last_metric(folder: Path) -> str:
    """What a run measured last: its accuracy where it has one, else the reward or the loss of its last step."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return ""
    *lines, _torn = path.read_text(encoding="utf-8").split("\n")
    for line in reversed(lines):
        values: dict[str, Any] = json.loads(line)
        for name in ("accuracy", "reward", "loss"):
            if isinstance(values.get(name), int | float):
                step = f" {values['step']}" if "step" in values else ""
                return f"{values['stage']}{step}: {name} {values[name]:.4g}"
    return ""


def _state_of(sweep: Sweep, job: SweepJob, told: str | None) -> JobState:
    folder = sweep.run_folder(job)
    events = job_events.read(folder)
    state = _slurm_state(job, told, events, sweep) if sweep.launcher == "slurm" else _local_state(sweep, events)
    error = "" if state in (COMPLETED, RUNNING, PENDING) else _error(state, events)
    requeued = sum(not attempt.endswith(".0") for attempt in {event.attempt for event in events})
    return JobState(job, folder, state, requeued, last_metric(folder), error)


def _slurm_state(job: SweepJob, told: str | None, events: Sequence[Event], sweep: Sweep) -> str:
    finished = job_events.is_finished(events)
    if told == COMPLETED and not finished:
        return "FAILED"  # It ended with status 0, and not by finishing its run.
    if told is not None:
        return told
    if finished:
        return COMPLETED
    if any(event.event == FAILED for event in events[-1:]):
        return "FAILED"
    age = time.time() - (sweep.folder / "sweep.json").stat().st_mtime
    return PENDING if age < UNKNOWN_S else LOST


def _local_state(sweep: Sweep, events: Sequence[Event]) -> str:
    if job_events.is_finished(events):
        return COMPLETED
    if not events:
        return PENDING
    return RUNNING if events[-1].event == STARTED and is_at_work(sweep.folder) else "FAILED"


def _error(state: str, events: Sequence[Event]) -> str:
    attempts = [event.attempt for event in events]
    failed = job_events.of_attempt(events, attempts[-1], FAILED) if attempts else []
    if failed:
        return failed[0].text
    if state == LOST:
        return "neither Slurm nor the run's folder knows how it ended"
    if FINISHED not in {event.event for event in events} and state == "FAILED":
        return "it ended without an error and without finishing its run"
    return f"ended by Slurm ({state})"
