"""Ends that leave nothing behind: on SIGTERM, SIGUSR2 or Ctrl-C a checkpoint at the next safe point, then a status.

A safe point is the end of an optimizer step after which no sampled completions wait for further updates.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)


class Interrupted(SystemExit):
    """The run was told to end and its state is on disk; the process ends with 128 + the signal's number."""

    def __init__(self, signum: int, run: Path, saved: str) -> None:
        self.message = f"ended by {signal.Signals(signum).name}, {saved}; go on with resume={run}"
        super().__init__(128 + signum)


class StopRequest:
    """Whether this run was told to end.

    Args:
        run: its folder, for the message.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.signum = 0
        self.in_steps = False
        self._process = os.getpid()

    @property
    def agreed(self) -> int:
        """The signal that any rank was sent, or 0; collective, and the same on all."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self.signum
        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        told = torch.tensor(self.signum, device=device)
        torch.distributed.all_reduce(told, op=torch.distributed.ReduceOp.MAX)
        return int(told)

    def interrupt(self, signum: int, saved: str) -> Interrupted:
        interrupted = Interrupted(signum, self.run, saved)
        logger.warning("%s", interrupted.message)
        return interrupted

    def handle(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # A process forked for data has inherited this handler.
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            return
        again, self.signum = self.signum == signum == signal.SIGINT, signum
        if again:  # Whoever presses Ctrl-C twice will not wait.
            raise KeyboardInterrupt
        if not self.in_steps:  # Nothing is under way that a restart would not do again.
            raise self.interrupt(signum, "between checkpoints")
        logger.warning("%s: ends after the next checkpoint", signal.Signals(signum).name)


@contextmanager
def stop_requests(run: Path) -> Iterator[StopRequest]:
    """Listens to `SIGNALS` within the block; the handlers before it are put back. Only a main thread can listen."""
    request = StopRequest(run)
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {signum: signal.signal(signum, request.handle) for signum in SIGNALS}
    try:
        yield request
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class SafePoints(TrainerCallback):
    """Puts every checkpoint off to the next safe point, and ends training there when the run was told to end."""

    def __init__(self, request: StopRequest) -> None:
        self.request = request
        self._due = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.request.in_steps = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        told = bool(self.request.agreed)
        safe = state.global_step % getattr(args, "num_iterations", 1) == 0
        due = control.should_save or self._due or told
        control.should_save, self._due = due and safe, due and not safe
        if told and safe:
            control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.request.in_steps = False
