"""The processes of a run: started by a launcher, told to end by its signals, waited for with what they wrote.

They are workers (`launchers.worker`), alone or below torchrun's agent.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from launchers import job_events
from launchers.error_line import error_line, killed_text, killed_worker
from launchers.job_events import INTERRUPTED
from launchers.worker import ATTEMPT_VARIABLE, FOLDER_VARIABLE, SIGNALS, end_with_parent

logger = logging.getLogger(__name__)

WORKER, TORCHRUN = "launchers.worker", "torch.distributed.run"
LINES_KEPT = 1000
POLL_S = 0.2
# One rank has ended as told; another that has not followed by then waits for it in a collective.
FOLLOW_S = 60.0


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
