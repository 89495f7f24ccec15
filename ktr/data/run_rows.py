"""The rows of a run, by stage: from files of other projects, or from the toy world."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ktr.config.schema_inputs import DataConfig
from ktr.data.importers import load_rows
from ktr.data.rows import Row

if TYPE_CHECKING:
    from ktr.data.toy_world import ToyWorld

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunRows:
    """Rows of each stage; a stage that does not run has none. `world` is the toy world the rows came from."""

    sft: list[Row]
    rl: list[Row]
    eval: list[Row]
    media_root: Path | None
    world: ToyWorld | None = None


def load_run_rows(settings: DataConfig, *, stages: Sequence[str], eval_splits: Sequence[str], cache: Path) -> RunRows:
    """The rows that `stages` need, all checked against `data.modality`.

    Toy clips are rendered into `cache` where they are not there yet. Without `data.eval_path` the evaluation reads the
    training rows, which is said.

    Raises:
        ValueError: a stage has no rows, or a row is of a kind that `data.modality` excludes.
    """
    if settings.format == "toy":
        return _toy_rows(settings, stages, eval_splits, cache)
    paths = {
        "sft": settings.sft_path or settings.path,
        "rl": settings.path,
        "eval": settings.eval_path or settings.path,
    }
    if "eval" in stages and settings.eval_path is None and len(stages) > 1:
        logger.warning("data.eval_path is not set: the evaluation answers the training rows, not held-out ones")
    rows = {}
    for stage, path in paths.items():
        if stage not in stages:
            rows[stage] = []
            continue
        if path is None:
            key = "data.path" if stage == "rl" else f"data.{stage}_path"
            raise ValueError(f"stage {stage} has no rows: set {key} to a file of rows")
        rows[stage] = _checked(load_rows(settings.format, path, limit=settings.limit), settings, path)
    root = None if settings.media_root is None else Path(settings.media_root)
    return RunRows(rows["sft"], rows["rl"], rows["eval"], root)


def _toy_rows(settings: DataConfig, stages: Sequence[str], eval_splits: Sequence[str], cache: Path) -> RunRows:
    from ktr.data.toy_world import ToyWorld

    world = ToyWorld.prepare(
        cache,
        train_clips=settings.toy.train_clips,
        validation_clips=settings.toy.validation_clips,
        test_clips=settings.toy.test_clips,
        seed=settings.toy.seed,
    )
    train = _checked(world.rows("train"), settings, "the toy world") if {"sft", "rl"} & set(stages) else []
    held_out = [row for split in eval_splits for row in world.rows(split)] if "eval" in stages else []
    return RunRows(train, train, _checked(held_out, settings, "the toy world"), world.root, world)


def _checked(rows: list[Row], settings: DataConfig, source: str | Path) -> list[Row]:
    if settings.modality != "any":
        for row in rows:
            if row.modality != settings.modality:
                raise ValueError(
                    f"{source}: row {row.id!r} is {row.modality} and data.modality={settings.modality} allows only "
                    f"{settings.modality} rows: set data.modality=any, or take the row out"
                )
    return rows[: settings.limit]
