"""One task of a Slurm job: starts the processes of a run, hands Slurm's signals on, and has the job requeued.

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
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from launchers import job_events, slurm
from launchers.error_line import error_line, killed_text, killed_worker
from launchers.job_events import FAILED, FINISHED, INTERRUPTED, REQUEUED, STARTED, Event
from launchers.worker import ATTEMPT_VARIABLE, FOLDER_VARIABLE, SIGNALS, end_with_parent

logger = logging.getLogger(__name__)

WORKER, TORCHRUN = "launchers.worker", "torch.distributed.run"
LINES_KEPT = 1000
POLL_S = 0.2
# One rank has ended as told; another that has not followed by then waits for it in a collective.
FOLLOW_S = 60.0


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


def worker_command(entry: str, overrides: Sequence[str]) -> list[str]:
    """What follows the interpreter, or torchrun's options."""
    return ["-m", WORKER, entry, *overrides]


def worker_variables(folder: Path, attempt: str) -> dict[str, str]:
    return {FOLDER_VARIABLE: str(folder), ATTEMPT_VARIABLE: attempt}


def failure_text(rank: int, status: int, lines: Sequence[str]) -> str:
    """Why a task's processes ended with `status`, in one line."""
    killed = killed_worker(lines) or ((rank, -status) if status < 0 else None)
    if killed:
        return killed_text(*killed)
    return error_line(lines) or f"rank {rank} ended with status {status}"


def run(
    command: list[str],
    variables: Mapping[str, str],
    folder: Path,
    attempt: str,
    signals: Sequence[signal.Signals] = SIGNALS,
) -> tuple[int, list[str], int | None]:
    """Runs the processes of a run to their end: their status, the last lines they wrote to stderr, and the first of
    `signals` that came meanwhile, each of which tells them to end.

    `SIGNALS` are blocked in what is started here: torchrun's agent never sees them, which would kill its workers, and
    for a worker they wait until it listens.
    """
    told: list[int] = []
    with listening(signals, told):
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        child = subprocess.Popen(command, env=dict(variables), stderr=subprocess.PIPE, preexec_fn=end_with_parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        lines: deque[str] = deque(maxlen=LINES_KEPT)
        copier = threading.Thread(target=_copy, args=(child, lines), daemon=True)
        copier.start()
        informed: set[int] = set()
        while child.poll() is None:
            if told:
                for worker in _workers(child.pid):
                    if worker.pid not in informed:
                        logger.info("%s is handed to process %d", signal.Signals(told[0]).name, worker.pid)
                        informed.add(worker.pid)
                        with suppress(psutil.NoSuchProcess):
                            worker.send_signal(signal.SIGUSR2)
                if _left_behind(folder, attempt):
                    logger.warning("the other ranks have ended as told: this one is not waited for any longer")
                    child.kill()  # Those below it end with it.
                    child.wait()
                    return 0, list(lines), told[0]
            time.sleep(POLL_S)
        copier.join(timeout=10)
        return child.returncode, list(lines), told[0] if told else None


@contextmanager
def listening(signals: Sequence[signal.Signals], told: list[int]) -> Iterator[None]:
    """Within the block this process outlives `signals`, and their numbers are added to `told`."""

    def handle(signum: int, frame: object) -> None:
        told.append(signum)

    before = {signum: signal.signal(signum, handle) for signum in signals}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _workers(pid: int) -> list[psutil.Process]:
    """The processes of the run: `pid` itself, or where that is torchrun's agent, those it has started.

    Not those below them, which share a worker's command line where it has forked them.
    """
    try:
        child = psutil.Process(pid)
        below = child.children() if TORCHRUN in child.cmdline() else [child]
    except psutil.Error:
        return []
    return [one for one in below if _is_worker(one)]


def _is_worker(process: psutil.Process) -> bool:
    """Whether a process has become a worker; until then it is a copy of the one that started it."""
    try:
        line = process.cmdline()
    except psutil.Error:
        return False
    return WORKER in line and TORCHRUN not in line


def _left_behind(folder: Path, attempt: str) -> bool:
    ended = job_events.of_attempt(job_events.read(folder), attempt, INTERRUPTED)
    return bool(ended) and time.time() - ended[0].time > FOLLOW_S


def _copy(child: subprocess.Popen[bytes], lines: deque[str]) -> None:
    """Hands on what the processes write, and keeps its last lines."""
    assert child.stderr is not None
    rest = b""
    while data := os.read(child.stderr.fileno(), 65536):
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        *whole, rest = (rest + data).split(b"\n")
        rest = rest[rest.rfind(b"\r") + 1 :]  # A progress bar writes over one line for days.
        lines.extend(line.decode(errors="replace").rpartition("\r")[2] for line in whole)
    if rest:
        lines.append(rest.decode(errors="replace"))
