"""The end of a sweep: waiting for its jobs, the table of all of them, and a status that says whether all completed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console

from launchers import job_events, sweep_state
from launchers.slurm import SlurmError
from launchers.submission import processes, submit
from launchers.sweep_record import NAME, Sweep, SweepJob
from launchers.sweep_state import failure, table_of
from launchers.worker import FOLDER_VARIABLE

WIDTH = 200


class ShowSweep(Callback):
    """Keeps what a job of a sweep returns, and shows how the jobs of a `--multirun` ended.

    Hydra swallows what callbacks raise, so this one exits.
    """

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if FOLDER_VARIABLE in os.environ and job_return.status == JobStatus.COMPLETED:
            value = job_return.return_value
            if value is not None:
                job_events.keep_returned(Path(os.environ[FOLDER_VARIABLE]), value)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        folder = Path(config.hydra.sweep.dir).absolute()
        if (folder / NAME).exists():
            sweep = Sweep.read(folder)
            if sweep.settings.get("wait", True):
                try:
                    show_and_exit(sweep)
                except SlurmError as error:
                    sys.exit(f"error: {error}; python -m launchers.sweep status {sweep.folder}")


def console(*, to_stderr: bool = True) -> Console:
    """Where tables go; wide where nobody looks, so that a log holds whole lines."""
    plain = Console(stderr=to_stderr, highlight=False)
    return plain if plain.is_terminal else Console(stderr=to_stderr, highlight=False, width=WIDTH)


def show_and_exit(sweep: Sweep) -> None:
    """Shows the table of a sweep, and ends the process with status 1 where not all of its jobs completed."""
    found = sweep_state.states_of(sweep)
    console().print(table_of(sweep, found))
    failed = failure(found)
    if failed is not None:
        sys.exit(f"error: {failed}; python -m launchers.sweep resubmit {sweep.folder}")


def submit_and_wait(sweep: Sweep, jobs: Sequence[SweepJob]) -> None:
    """Submits jobs and, where the launcher's `wait` says so, stays until all of the sweep have ended."""
    told, settings = console(), sweep.settings
    ranks, nodes = processes(settings), settings["nodes"]
    gpus = f"{settings['gpus_per_node']} GPUs" if settings["gpus_per_node"] else "no GPU"
    told.print(
        f"{len(jobs)} jobs of {nodes * ranks} ranks ({nodes} nodes with {gpus} each, {settings['launch']}), at most "
        f"{settings['array_parallelism']} at a time, in {sweep.folder}",
        soft_wrap=True,
    )
    submit(sweep, jobs)
    told.print(
        f"submitted as {', '.join(job.ids[-1] for job in jobs)}; python -m launchers.sweep status|reattach|cancel "
        f"{sweep.folder}",
        soft_wrap=True,
    )
    if settings["wait"]:
        wait(sweep)


def wait(sweep: Sweep) -> None:
    """Stays until all jobs have ended. Who interrupts it ends the wait, not the jobs."""
    try:
        sweep_state.wait_for(sweep, console())
    except KeyboardInterrupt:
        console().print(f"the jobs go on; python -m launchers.sweep reattach {sweep.folder}", soft_wrap=True)
        sys.exit(130)


def objective_of(sweep: Sweep, job: SweepJob) -> tuple[JobStatus, Any]:
    """What a sweeper that searches gets from a job: what its entry returned, or the error that it failed with."""
    found = next(one for one in sweep_state.states_of(sweep) if one.job.number == job.number)
    if found.state != sweep_state.COMPLETED:
        return JobStatus.FAILED, RuntimeError(found.error)
    return JobStatus.COMPLETED, job_events.returned(found.folder)
