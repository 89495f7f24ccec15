"""The run folder: what ran (config, versions, commit), what it measured, what it sampled.

`metrics.jsonl` is the record of a run; trackers are copies. `completions.jsonl` keeps sampled replies with their
rewards. Lines are appended whole and flushed, so a killed run leaves at most one torn last line. A run that goes on
from a checkpoint first cuts its records to the length they had then.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from ktr.config.run_folder_name import LOCK, RunBusyError
from ktr.reporting.files import write_atomic

RECORDS = ("metrics.jsonl", "completions.jsonl", "reward_errors.jsonl")
TRACKED_PACKAGES = (
    "torch", "torchvision", "transformers", "trl", "accelerate", "peft", "deepspeed", "vllm", "hydra-core",
    "omegaconf", "qwen-vl-utils", "av", "decord", "wandb",
)  # fmt: skip


class RunFolder:
    """Paths and writers of one run. Only the main process of a distributed run writes."""

    def __init__(self, path: Path, *, is_main: bool = True) -> None:
        self.path = Path(path)
        self.is_main = is_main
        self._lock: TextIO | None = None
        if is_main:
            self.path.mkdir(parents=True, exist_ok=True)

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def completions(self) -> Path:
        return self.path / "completions.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def append(self, path: Path, row: dict[str, Any]) -> None:
        """One JSON line; numbers that JSON lacks (nan, inf) are written as null."""
        if self.is_main:
            try:
                with path.open("a", encoding="utf-8") as file:
                    file.write(json_line(row) + "\n")
            except OSError as error:  # A full disk is noticed when the line is written, without the file's name.
                raise OSError(error.errno, error.strerror, str(path)) from error

    def write(self, name: str, value: dict[str, Any] | str) -> Path:
        """A whole file, replaced atomically."""
        path = self.path / name
        if self.is_main:
            text = value if isinstance(value, str) else json.dumps(_finite(value), indent=2, ensure_ascii=False) + "\n"
            write_atomic(path, text)
        return path

    def lock(self) -> None:
        """Keeps other processes out of this folder until this one ends, however it ends.

        Raises:
            RunBusyError: another process is at work in it.
        """
        if not self.is_main:
            return
        self._lock = (self.path / LOCK).open("a")
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunBusyError(f"another process is at work in {self.path}: wait for it, or end it") from None

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def record_sizes(self) -> dict[str, int]:
        """Bytes of each record, by its file's name, which are on disk when this returns."""
        sizes = {}
        for name in RECORDS:
            path = self.path / name
            if path.exists():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                sizes[name] = path.stat().st_size
        return sizes

    def cut_records(self, sizes: Mapping[str, int]) -> None:
        """Brings each record back to its length in `sizes` (0 where it is not there)."""
        if not self.is_main:
            return
        for name in RECORDS:
            path = self.path / name
            if path.exists() and path.stat().st_size > sizes.get(name, 0):
                os.truncate(path, sizes.get(name, 0))

    def read_metrics(self) -> list[dict[str, Any]]:
        if not self.metrics.exists():
            return []
        *lines, _torn = self.metrics.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines if line]


def json_line(row: dict[str, Any]) -> str:
    """One line of a record, without its end."""
    return json.dumps(_finite(row), ensure_ascii=False)


def versions() -> dict[str, Any]:
    """Interpreter, machine, the packages that decide results, and the project's commit where it is a checkout."""
    packages = {}
    for name in TRACKED_PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": sys.version.split()[0],
        "machine": platform.platform(),
        "packages": packages,
        "git_commit": _git("rev-parse", "HEAD"),
        "git_dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _git(*arguments: str) -> str | None:
    root = Path(__file__).resolve().parents[2]
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
