"""Work in processes that can be killed: one task at a time each, under a hard time limit.

A task that loops inside native code never lets Python run again, so neither a thread nor a signal handler can end it.
Its process is killed from outside instead, and another takes its place: a worker that dies or is killed costs its task
and nothing else.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

TIMEOUT, CRASHED = "timeout", "crashed"
START_LIMIT = 300.0
"""Seconds a worker may take to import and set itself up."""
ORPHAN_GRACE = 10.0
"""Seconds past its limit after which a worker's own alarm ends it, should the parent be gone."""
_READY = "ready"


@dataclass(frozen=True)
class Outcome:
    """What became of a task: its `result`, or why there is none (`timeout` or `crashed`, with a sentence)."""

    task: Any
    result: Any = None
    failure: str | None = None
    detail: str = ""


class _Worker:
    """One process, its pipe, and the task it holds."""

    def __init__(self, pool: HardLimitPool, folder: Path, number: int) -> None:
        self.errors = folder / f"{number}.stderr"
        self.connection, theirs = pool.context.Pipe()
        self.process: BaseProcess = pool.context.Process(
            target=_serve,
            args=(theirs, pool.make, pool.arguments, str(self.errors), pool.limit_s, pool.memory_bytes),
            daemon=True,
        )
        self.process.start()
        theirs.close()
        self.ready = False
        self.task: Any = None
        self.deadline = time.monotonic() + START_LIMIT

    def give(self, task: Any, limit_s: float) -> None:
        self.task = task
        self.deadline = time.monotonic() + limit_s
        self.connection.send(task)

    def end(self) -> None:
        """Kills the process; nothing inside it can prevent that."""
        self.process.kill()
        self.process.join()
        self.connection.close()

    def last_words(self) -> str:
        try:
            lines = self.errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""


class HardLimitPool:
    """Runs `make(*arguments)(task)` for many tasks, in `workers` processes.

    Args:
        make: module-level function called once in each worker; it returns the function that does a task.
        limit_s: seconds a task may take before its process is killed.
        memory_bytes: what a worker may allocate after its set-up; None for no bound.
        preload: modules imported once, before workers branch off, so that a new worker starts at once.

    Example::

        for outcome in HardLimitPool(make_inspector, (settings,), workers=4, limit_s=30).run(tasks):
            ...
    """

    def __init__(
        self,
        make: Callable[..., Callable[[Any], Any]],
        arguments: Sequence[Any] = (),
        *,
        workers: int,
        limit_s: float,
        memory_bytes: int | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        if workers < 1 or limit_s <= 0:
            raise ValueError(f"workers={workers} must be at least 1 and limit_s={limit_s} above 0")
        self.context = multiprocessing.get_context("forkserver")
        if preload:
            self.context.set_forkserver_preload(list(preload))
        self.make = make
        self.arguments = tuple(arguments)
        self.workers = workers
        self.limit_s = limit_s
        self.memory_bytes = memory_bytes

    def run(self, tasks: Iterable[Any]) -> Iterator[Outcome]:
        """Outcomes as they come, in any order. All processes end when the iteration does.

        Raises:
            RuntimeError: a worker cannot be set up, which is no fault of a task.
        """
        waiting = iter(tasks)
        live: list[_Worker] = []
        with tempfile.TemporaryDirectory(prefix="ktr-workers-") as folder:
            try:
                started = 0
                task = next(waiting, None)
                while task is not None or any(worker.task is not None for worker in live):
                    if task is not None and len(live) < self.workers and all(worker.ready for worker in live):
                        live.append(_Worker(self, Path(folder), started))
                        started += 1
                    for worker in live:
                        if task is not None and worker.ready and worker.task is None:
                            worker.give(task, self.limit_s)
                            task = next(waiting, None)
                    yield from self._collect(live, growing=task is not None and len(live) < self.workers)
            finally:
                for worker in live:
                    worker.end()

    def _collect(self, live: list[_Worker], *, growing: bool) -> Iterator[Outcome]:
        """Waits for the next message, death or deadline; workers that are gone leave `live`."""
        busy = [worker for worker in live if not worker.ready or worker.task is not None]
        if not busy or (growing and all(worker.ready for worker in live)):
            return
        patience = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
        spoke = set(wait([worker.connection for worker in busy], timeout=patience))
        for worker in busy:
            if worker.connection in spoke:
                outcome = self._hear(worker)
            elif time.monotonic() >= worker.deadline:
                outcome = Outcome(worker.task, None, TIMEOUT, f"not done after {self.limit_s:g} s, so it was stopped")
            else:
                continue
            if outcome is not None and outcome.failure is not None:
                worker.end()
                live.remove(worker)
                if not worker.ready:
                    raise RuntimeError(f"a worker process could not start: {outcome.detail or 'it took too long'}")
            if outcome is not None:
                worker.task = None
                yield outcome

    def _hear(self, worker: _Worker) -> Outcome | None:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join(timeout=5)
            return Outcome(worker.task, None, CRASHED, _cause_of_death(worker))
        if not worker.ready:
            assert message == _READY
            worker.ready = True
            return None
        return Outcome(worker.task, message)


def _cause_of_death(worker: _Worker) -> str:
    code = worker.process.exitcode
    if code is not None and code < 0:
        cause = f"the process that read it died of {signal.Signals(-code).name}"
    else:
        cause = f"the process that read it ended with status {code}"
    words = worker.last_words()
    return f"{cause}: {words}" if words else cause


def _serve(
    connection: Connection,
    make: Callable[..., Callable[[Any], Any]],
    arguments: Sequence[Any],
    errors: str,
    limit_s: float,
    memory_bytes: int | None,
) -> None:
    """The life of a worker. What native code writes to stderr goes to a file, so that it cannot flood the log."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    own = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(own, 2)
    work = make(*arguments)
    if memory_bytes is not None:
        _bound_memory(memory_bytes)
    connection.send(_READY)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        os.ftruncate(own, 0)
        os.lseek(own, 0, os.SEEK_SET)
        signal.setitimer(signal.ITIMER_REAL, limit_s + ORPHAN_GRACE)
        result = work(task)
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send(result)


def _bound_memory(more_bytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) if Path("/proc").is_dir() else 0
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more_bytes, hard))
