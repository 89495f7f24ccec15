"""A reward that makes a run last and, where its role says so, fail: for the tests of sweeps on a real Slurm."""

from __future__ import annotations

import time
from typing import Any


class Pace:
    """0 for every completion after `seconds`; `role` names the job: `fail` raises, `limited` is four times as slow."""

    def __init__(self, role: str, seconds: float = 1.0) -> None:
        self.role, self.seconds = role, seconds
        self.__name__ = "pace"

    def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        time.sleep(4 * self.seconds if self.role == "limited" else self.seconds)
        if self.role == "fail":
            raise RuntimeError("this job was made to fail")
        return [0.0] * len(completions)
