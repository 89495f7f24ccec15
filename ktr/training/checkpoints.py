"""Checkpoints that are whole or absent: written aside, listed with their digests, moved into place, verified on load.

A checkpoint of a stage is `checkpoints/<stage>_steps/checkpoint-<step>`: model, processor, optimizer, scheduler, random
states, and `manifest.json` with the size and SHA-256 of every other file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
STAGING = ".unfinished"
REMOVED = ".removed"


class CheckpointError(ValueError):
    """A checkpoint that cannot be written, or that a run cannot go on from; says where and what to do."""


def checkpoint_step(path: Path) -> int:
    """The step in a checkpoint's name."""
    return int(path.name.rpartition("-")[2])


def checkpoints_in(folder: Path) -> list[Path]:
    """Checkpoints of a stage, the newest first, whole or not."""
    found = [path for path in folder.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(found, key=checkpoint_step, reverse=True)


def publish(staged: Path, final: Path) -> None:
    """Turns a finished folder into the checkpoint `final`, in one step; takes the place of what lay there.

    Raises:
        OSError: the disk is full or read-only; `final` is then as it was.
    """
    files = _files(staged)
    for path in files:
        _force(path)
    sealed = {str(path.relative_to(staged)): stamp for path, stamp in zip(files, _stamps(files), strict=True)}
    manifest = staged / MANIFEST
    manifest.write_text(json.dumps({"files": sealed}, indent=1) + "\n", encoding="utf-8")
    _force(manifest)
    move_into_place(staged, final)


def move_into_place(staged: Path, final: Path) -> None:
    """Renames a finished folder; whatever lay at `final` goes."""
    if final.exists():
        remove(final)
    staged.rename(final)
    _force(final.parent)


def remove(folder: Path) -> None:
    """Takes a folder away in one step; what a kill leaves of it is `.removed`, which the next one clears."""
    aside = folder.with_name(REMOVED)
    if aside.exists():
        shutil.rmtree(aside)
    folder.rename(aside)
    shutil.rmtree(aside)


def defect(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, or None where every file is as it was written."""
    try:
        listed: dict[str, dict[str, Any]] = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))["files"]
    except FileNotFoundError:
        return f"it has no {MANIFEST}"
    except (ValueError, KeyError, TypeError):
        return f"its {MANIFEST} cannot be read"
    for name, stamp in listed.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != stamp["bytes"]:
            return f"{name} has {path.stat().st_size} bytes of {stamp['bytes']}"
    paths = [checkpoint / name for name in listed]
    for name, stamp, found in zip(listed, listed.values(), _stamps(paths), strict=True):
        if found != stamp:
            return f"{name} is not what was written"
    return None


def newest_whole(folder: Path) -> Path | None:
    """The newest checkpoint of a stage that is whole. Torn ones are warned about and renamed to `torn-<step>`."""
    for path in checkpoints_in(folder):
        fault = defect(path)
        if fault is None:
            return path
        logger.warning("%s is torn (%s): going back to the one before it", path, fault)
        aside = path.with_name(f"torn-{checkpoint_step(path)}")
        if aside.exists():
            remove(aside)
        path.rename(aside)
    return None


def rotate(folder: Path, limit: int | None) -> None:
    """Removes the oldest checkpoints beyond `limit`; never the newest."""
    for path in checkpoints_in(folder)[max(limit, 1) :] if limit else []:
        remove(path)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)


def _stamps(paths: list[Path]) -> list[dict[str, Any]]:
    """Size and digest of each file; hashing leaves the interpreter's lock, so files are hashed side by side."""

    def stamp(path: Path) -> dict[str, Any]:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": path.stat().st_size, "sha256": digest}

    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(stamp, paths))


def _force(path: Path) -> None:
    """Brings a file or a folder's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
