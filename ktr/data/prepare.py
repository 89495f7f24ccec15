"""`prepare.py`: one job on the rows of a data set. Nothing here imports torch: the workers do."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import yaml

from ktr.config.schema_prepare import PrepareConfig
from ktr.data.doctor import Limits, examine
from ktr.data.exporters import SUFFIXES, write_lines, write_rows
from ktr.data.inspection import InspectionSettings
from ktr.data.rows import RowError
from ktr.data.run_rows import media_root, source_rows
from ktr.data.sampling import FrameSampling
from ktr.reporting.files import write_atomic

logger = logging.getLogger(__name__)


def run(config: PrepareConfig, run_dir: Path) -> str:
    """Does the job of `config.job`; returns what a person wants to know at its end."""
    out = run_dir if config.job.out is None else Path(config.job.out).expanduser()
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "config.yaml", yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True))
    return JOBS[config.job.name](config, out)


def doctor(config: PrepareConfig, out: Path) -> str:
    """Checks every row and file; what it found stands in `out`."""
    rejects: list[RowError] = []
    rows = source_rows(config.data, config.data.path, rejects)
    summary = examine(rows, rejects, out, _inspection(config), _limits(config))
    counts = summary["rows"]
    lines = [f"{counts['verified']} of {counts['read']} rows can be used, {counts['rejected']} cannot"]
    lines += [f"  {count:>7} {reason}" for reason, count in summary["reasons"].items()]
    for name in ("duplicate_ids", "duplicate_rows", "duplicate_files", "name_collisions"):
        if summary[name]["count"]:
            lines.append(f"  {summary[name]['count']:>7} {name.replace('_', ' ')} (listed in summary.json)")
    return "\n".join([*lines, str(out / "summary.json")])


def cache(config: PrepareConfig, out: Path) -> str:
    """Decodes every file into `data.cache`, as the doctor does; with `job.features`, encodes it too."""
    from ktr.data.disk_store import DiskStore

    assert config.data.cache is not None, "the schema requires a folder"
    store = DiskStore(config.data.cache, int(config.data.cache_gb * 2**30))
    answer = doctor(config, out)
    if config.job.features:
        from ktr.models.feature_job import cache_features

        cache_features(config, out / "verified.jsonl")
    size = sum(path.stat().st_size for path in store.entries())
    return f"{answer}\n{len(store.entries())} entries, {size / 2**30:.2f} GiB in {store.folder}"


def convert(config: PrepareConfig, out: Path) -> str:
    """Writes the rows in another form; those that cannot be imported are listed beside them."""
    rejects: list[RowError] = []
    rows = source_rows(config.data, config.data.path, rejects)
    path = write_rows(rows, out / f"rows{SUFFIXES[config.job.format]}", config.job.format)
    write_lines(
        ({"id": error.row_id or None, "reason": "invalid_row", "error": str(error)} for error in rejects),
        out / "rejects.jsonl",
    )
    return f"{len(rows)} rows, {len(rejects)} left out (rejects.jsonl)\n{path}"


def publish(config: PrepareConfig, out: Path) -> str:
    """Writes a data set with its card, and pushes it where a token is set."""
    from ktr.data.publish import push, write_dataset

    rows = source_rows(config.data, config.data.path)
    folder = write_dataset(
        rows,
        out / "dataset",
        name=config.job.repo or config.name,
        license=config.job.license,
        media_root=media_root(config.data) if config.job.copy_media else None,
        copy_media=config.job.copy_media,
    )
    if config.job.repo is None:
        return f"{len(rows)} rows\n{folder}"
    return f"{len(rows)} rows\n{push(folder, config.job.repo, private=config.job.private)}"


JOBS: dict[str, Callable[[PrepareConfig, Path], str]] = {
    "doctor": doctor,
    "cache": cache,
    "convert": convert,
    "publish": publish,
}


def _inspection(config: PrepareConfig) -> InspectionSettings:
    data, root = config.data, media_root(config.data)
    return InspectionSettings(
        media_root=None if root is None else str(root),
        sampling=FrameSampling(**asdict(data.sampling)),
        prompt=data.prompt,
        decoder=data.decoder,
        factor=config.job.factor,
        model_path=config.model.path,
        max_prompt_tokens=data.max_prompt_tokens,
        every_frame=config.job.every_frame,
        cache=data.cache,
        cache_bytes=int(data.cache_gb * 2**30),
    )


def _limits(config: PrepareConfig) -> Limits:
    job = config.job
    memory = None if job.memory_gb is None else int(job.memory_gb * 2**30)
    return Limits(job.seconds, job.workers or len(os.sched_getaffinity(0)), memory)
