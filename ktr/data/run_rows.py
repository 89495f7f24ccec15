"""The rows of a run, by stage: from files, the hub or a mix of them, filtered; or from the toy world."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ktr.config.schema_inputs import DataConfig
from ktr.config.schema_sources import SourceConfig
from ktr.data.importers import load_rows
from ktr.data.paths import MediaError, resolve_media
from ktr.data.rows import Row, RowError, duplicate_ids
from ktr.data.selection import Keep, draw_subset, keep_rows, mix_rows
from ktr.data.tasks import captions_by_path, task_rows, with_captions

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
        ValueError: a stage has no rows, a row is of a kind that `data.modality` excludes, or ids of the evaluation's
            rows repeat.
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
    rows: dict[str, list[Row]] = {}
    for stage, path in paths.items():
        if stage not in stages:
            rows[stage] = []
            continue
        if path is None and not settings.mix:
            key = "data.path" if stage == "rl" else f"data.{stage}_path"
            raise ValueError(f"stage {stage} has no rows: set {key} to a file of rows")
        rows[stage] = _checked(source_rows(settings, path), settings, path or "data.mix")
    if repeated := duplicate_ids(rows["eval"]):
        raise ValueError(
            f"{paths['eval'] or 'data.mix'}: row ids must be unique in an evaluation; {len(repeated)} repeat, such as "
            f"{', '.join(map(repr, list(repeated)[:5]))}: give each row an id of its own, or set data.eval_path"
        )
    if settings.captions_path is not None:
        captions = captions_by_path(load_rows("rewatch_captions", settings.captions_path))
        for stage in ("sft", "rl"):
            rows[stage] = with_captions(rows[stage], captions, settings.captions_path)
    if rows["sft"]:
        rows["sft"] = task_rows(rows["sft"], settings.sft_tasks)
    return RunRows(rows["sft"], rows["rl"], rows["eval"], media_root(settings))


def source_rows(settings: DataConfig, path: str | None, rejects: list[RowError] | None = None) -> list[Row]:
    """Rows of a file, or of `data.mix` where `path` is None: filtered, drawn and cut as `settings` say.

    Args:
        rejects: where the errors of rows that cannot be imported go; without it the first one is raised.
    """
    filters: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in asdict(settings.keep).items()}
    keep = Keep(**filters)
    if path is not None:
        # Without a filter or a draw, nothing past the limit needs to be read.
        whole = keep != Keep() or settings.subset is not None
        rows = load_rows(settings.format, path, limit=None if whole else settings.limit, rejects=rejects)
        rows = keep_rows(rows, keep, path)
    else:
        sources = [
            (source.path, keep_rows(_rooted(source, settings, rejects), keep, source.path), source.weight)
            for source in settings.mix
        ]
        rows = mix_rows(sources, settings.mix_rows, seed=settings.subset_seed)
    return draw_subset(rows, settings.subset, settings.subset_seed)[: settings.limit]


def media_root(settings: DataConfig) -> Path | None:
    """Where relative media paths start. Sources of a mix that have a root of their own carry absolute paths."""
    if any(source.media_root for source in settings.mix):
        return None
    return None if settings.media_root is None else Path(settings.media_root)


def _rooted(source: SourceConfig, settings: DataConfig, rejects: list[RowError] | None) -> list[Row]:
    """A source's rows; where any source has a root of its own, their paths are made absolute here."""
    rows = load_rows(source.format, source.path, rejects=rejects)
    if not any(other.media_root for other in settings.mix):
        return rows
    root = source.media_root or settings.media_root
    rooted = []
    for row in rows:
        if row.media is None:
            rooted.append(row)
            continue
        try:
            path = resolve_media(row.media, root)
        except MediaError as error:
            problem = RowError(str(error), field="path", row_id=row.id, file=source.path)
            if rejects is None:
                raise problem from error
            rejects.append(problem)
            continue
        rooted.append(replace(row, media=replace(row.media, path=str(path))))
    return rooted


def _toy_rows(settings: DataConfig, stages: Sequence[str], eval_splits: Sequence[str], cache: Path) -> RunRows:
    from ktr.data.toy_world import ToyWorld

    world = ToyWorld.prepare(
        cache,
        train_clips=settings.toy.train_clips,
        validation_clips=settings.toy.validation_clips,
        test_clips=settings.toy.test_clips,
        questions_per_clip=settings.toy.questions_per_clip,
        seed=settings.toy.seed,
    )
    annotated = world.annotated_rows(scarce_kinds=settings.toy.scarce_kinds, scarce_share=settings.toy.scarce_share)
    sft = _checked(annotated, settings, "the toy world") if "sft" in stages else []
    train = _checked(world.rows("train"), settings, "the toy world") if "rl" in stages else []
    held_out = [row for split in eval_splits for row in world.rows(split)] if "eval" in stages else []
    if sft:
        sft = task_rows(sft, settings.sft_tasks)
    return RunRows(sft, train, _checked(held_out, settings, "the toy world"), world.root, world)


def _checked(rows: list[Row], settings: DataConfig, source: str | Path) -> list[Row]:
    if settings.modality != "any":
        for row in rows:
            if row.modality != settings.modality:
                raise ValueError(
                    f"{source}: row {row.id!r} is {row.modality} and data.modality={settings.modality} allows only "
                    f"{settings.modality} rows: set data.modality=any, take the row out, or filter with "
                    f"data.keep.modality=[{settings.modality}]"
                )
    return rows[: settings.limit]
