"""Jobs of a sweep on this machine, one after another, each in processes of its own."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console

from ktr.config.run_folder_name import LOCK
from launchers import job_events
from launchers.job_events import FAILED, FINISHED, INTERRUPTED, STARTED, Event
from launchers.run_processes import TORCHRUN, failure_text, run, worker_command, worker_variables
from launchers.submission import job_overrides
from launchers.sweep_record import Sweep, SweepJob
from launchers.worker import SIGNALS

STOPPING = (*SIGNALS, signal.SIGINT)


class SweepInterrupted(SystemExit):
    """The sweep was told to end, and what it was at is on disk."""

    def __init__(self, signum: int, sweep: Sweep) -> None:
        self.message = (
            f"ended by {signal.Signals(signum).name}; go on with: python -m launchers.sweep resubmit {sweep.folder}"
        )
        super().__init__(128 + signum)


def run_jobs(sweep: Sweep, jobs: Sequence[SweepJob], console: Console) -> None:
    """Runs `jobs`; one that fails does not keep the next from running.

    Raises:
        SweepInterrupted: this process was told to end; so was the job it was at.
        ValueError: another process runs jobs of this sweep.
    """
    axes = sweep.axes()
    with _at_work(sweep):
        for job in jobs:
            console.print(f"job {job.number} of {len(sweep.jobs)}: {axes[job.number]}", highlight=False)
            told = _run_job(sweep, job)
            if told is not None:
                interrupted = SweepInterrupted(told, sweep)
                console.print(interrupted.message, highlight=False, soft_wrap=True)
                raise interrupted


def _run_job(sweep: Sweep, job: SweepJob) -> int | None:
    folder, ranks = sweep.run_folder(job), sweep.settings["processes_per_node"]
    attempt = f"local-{time.time_ns()}.0"
    command = worker_command(sweep.entry, job_overrides(sweep, job))
    if ranks > 1:
        command = ["-m", TORCHRUN, "--standalone", f"--nproc-per-node={ranks}", "--max-restarts=0", *command]
    job_events.record(folder, Event(STARTED, attempt, 0))
    variables = os.environ | worker_variables(folder, attempt)
    status, lines, told = run([sys.executable, *command], variables, folder, attempt, STOPPING)
    interrupted = job_events.of_attempt(job_events.read(folder), attempt, INTERRUPTED)
    if status == 0 and not interrupted:
        job_events.record(folder, Event(FINISHED, attempt, 0))
    else:
        ended = None if told is None else f"ended by {signal.Signals(told).name}"
        job_events.record(folder, Event(FAILED, attempt, 0, ended or failure_text(0, status, lines)))
    return told


@contextmanager
def _at_work(sweep: Sweep) -> Iterator[None]:
    with (sweep.folder / LOCK).open("a") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another process runs the jobs of {sweep.folder}: wait for it, or end it") from None
        yield
