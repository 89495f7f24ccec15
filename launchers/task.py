"""One task of a Slurm job: has the processes of a run started, and the job requeued.

It takes the place of submitit's own signal handler, which requeues at once, before a checkpoint is written, and knows
nothing of the processes below it. On SIGUSR2 (pre-emption, time limit) or SIGTERM every process of the run is told
once; when they have ended with their state on disk, rank 0 asks for the requeue. Anything else that ends a process
ends the job with a status that is not 0, whatever the rank.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from launchers import job_events, slurm
from launchers.job_events import FAILED, FINISHED, INTERRUPTED, REQUEUED, STARTED, Event
from launchers.run_processes import TORCHRUN, failure_text, run, worker_command, worker_variables

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where a task stands in its job, from Slurm's variables."""

    job: str
    attempt: str
    node: int
    nodes: int
    rank: int
    local_rank: int
    tasks: int
    hosts: list[str]

    @property
    def port(self) -> int:
        """The same for all tasks of an attempt, and another one for other jobs on the node."""
        return random.Random(self.attempt).randint(20000, 60000)


def place() -> Place:
    from submitit import JobEnvironment  # Imported late: only tasks need it.

    known = JobEnvironment()
    return Place(
        known.raw_job_id,
        f"{known.job_id}.{os.environ.get('SLURM_RESTART_COUNT', '0')}",
        known.node,
        known.num_nodes,
        known.global_rank,
        known.local_rank,
        known.num_tasks,
        list(known.hostnames),
    )


@dataclass(frozen=True)
class JobTask:
    """What submitit calls in every task of a job: `entry` with `overrides`, in the run folder `folder`.

    `launch` is `torchrun` (one task a node, which starts `processes` workers) or `srun` (one task a process). A job
    that was told to end by its time limit is requeued `max_num_timeout` times.
    """

    entry: str
    overrides: tuple[str, ...]
    folder: Path
    launch: str
    processes: int
    max_num_timeout: int
    signal_delay_s: int

    def __call__(self) -> None:
        logging.basicConfig(level=logging.INFO, format="[%(asctime)s][%(name)s] %(message)s")
        here = place()
        if job_events.is_finished(job_events.read(self.folder)):
            logger.info("the run in %s is finished already", self.folder)
            return
        self._note(here, STARTED)
        command, variables = self.command(here)
        status, lines, _ = run(command, os.environ | variables, self.folder, here.attempt)
        interrupted = job_events.of_attempt(job_events.read(self.folder), here.attempt, INTERRUPTED)
        if interrupted and status in (0, -signal.SIGTERM):
            if here.rank == 0:
                self._go_on_later(here)
            sys.exit(0)  # And not a return: submitit would take the job for done.
        if status != 0:
            self._fail(here, status, lines)
        if here.rank == 0:
            self._note(here, FINISHED)

    def command(self, here: Place) -> tuple[list[str], dict[str, str]]:
        """The command line of this task and the variables it needs: ranks and the address of the first node."""
        own = worker_command(self.entry, self.overrides)
        # A log has room for what led to an error, beside the line that the table shows.
        variables = worker_variables(self.folder, here.attempt) | {"HYDRA_FULL_ERROR": "1"}
        if self.launch == "torchrun" and here.nodes * self.processes > 1:
            where = [f"--nnodes={here.nodes}", f"--node-rank={here.node}", f"--nproc-per-node={self.processes}"]
            first = [f"--master-addr={here.hosts[0]}", f"--master-port={here.port}", "--max-restarts=0"]
            return [sys.executable, "-m", TORCHRUN, *where, *first, *own], variables
        if here.tasks > 1:
            variables |= {
                "MASTER_ADDR": here.hosts[0],
                "MASTER_PORT": str(here.port),
                "RANK": str(here.rank),
                "LOCAL_RANK": str(here.local_rank),
                "WORLD_SIZE": str(here.tasks),
                "LOCAL_WORLD_SIZE": str(here.tasks // here.nodes),
            }
        return [sys.executable, *own], variables

    def _note(self, here: Place, event: str, text: str = "") -> None:
        job_events.record(self.folder, Event(event, here.attempt, here.rank, text))

    def _go_on_later(self, here: Place) -> None:
        reason = slurm.requeue_reason(here.job, self.signal_delay_s)
        if reason is None:
            logger.info("the state is on disk; Slurm itself ends or requeues this job")
            return
        limits = job_events.requeues(job_events.read(self.folder), slurm.TIMED_OUT)
        if reason == slurm.TIMED_OUT and limits >= self.max_num_timeout:
            text = (
                f"the time limit was reached {limits + 1} times and hydra.launcher.max_num_timeout is "
                f"{self.max_num_timeout}; the state is on disk: `python -m launchers.sweep resubmit` goes on from it"
            )
            self._note(here, FAILED, text)
            sys.exit(f"error: {text}")
        logger.info("%s, and the state is on disk: the job is requeued", reason)
        self._note(here, REQUEUED, reason)
        try:
            slurm.requeue(here.job)
        except slurm.SlurmError as error:
            self._note(here, FAILED, f"could not be requeued ({error})")
            raise

    def _fail(self, here: Place, status: int, lines: list[str]) -> None:
        text = failure_text(here.rank, status, lines)
        self._note(here, FAILED, text)
        logger.error("%s", text)
        sys.exit(128 - status if status < 0 else status)
