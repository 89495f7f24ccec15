"""`evaluate.py`: one checkpoint, or given replies, on a benchmark or several; two runs compared; a run scored again."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from ktr.config.resume import flat
from ktr.config.schema_eval import EvalConfig
from ktr.config.schemas import EvaluateConfig
from ktr.evaluation.benchmark_run import (
    Asked,
    ViewRecords,
    asked_of,
    encoder_of,
    identity_of,
    judge_of,
    load_for,
    replayed,
    run_views,
    scorer_of,
)
from ktr.evaluation.benchmark_summary import benchmark_summary
from ktr.evaluation.identity import parser_digest
from ktr.evaluation.records import RecordWriter
from ktr.evaluation.saved_runs import compare_runs, load_run, saved_settings, settings_for
from ktr.evaluation.scoring import rescored
from ktr.reporting.benchmark_report import write_benchmarks, write_comparison
from ktr.training.run_folder import RunFolder, versions

logger = logging.getLogger(__name__)


def run(config: EvaluateConfig, run_dir: Path) -> Path:
    """Does what `config` asks in `run_dir`; returns the path of `summary.json`.

    Raises:
        ValueError: another process is at work in `run_dir`, or the run there began with other settings.
    """
    folder = RunFolder(run_dir)
    folder.lock()
    try:
        return _run(config, folder)
    finally:
        folder.unlock()


def _run(config: EvaluateConfig, folder: RunFolder) -> Path:
    _refuse_other_settings(config, folder.path)
    folder.write("config.yaml", yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True))
    folder.write("versions.json", versions())
    if config.compare:
        return _compare(config, folder)
    if config.rescore:
        return _rescore(config, folder)
    return _evaluate(config, folder)


def _refuse_other_settings(config: EvaluateConfig, run_dir: Path) -> None:
    """Raises ValueError where `resume` names a run that began with other settings, before anything of it is touched."""
    path = run_dir / "config.yaml"
    if config.resume is None or not path.exists():
        return
    before = flat(yaml.safe_load(path.read_text(encoding="utf-8")))
    now = flat(asdict(config))
    changed = [
        f"{key}: {before.get(key)} -> {now.get(key)}"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
        and key not in ("resume", "name", "output_dir", "metric")
        and key[:7] != "logger."
    ]
    if changed:
        raise ValueError(
            f"resume: the run in {run_dir} began with other settings ({'; '.join(changed)}): give resume=RUN alone, "
            "repeat those it began with, or begin a new run"
        )


def _evaluate(config: EvaluateConfig, folder: RunFolder) -> Path:
    if config.model.path is None and any(member.engine != "replay" for member in config.eval.members.values()):
        raise ValueError("model.path: is required: a checkpoint folder or a hub name")
    started = time.monotonic()
    asked = {name: _asked(config, member) for name, member in config.eval.members.items()}
    found: dict[str, ViewRecords] = {}
    loaded: dict[str, Any] = {}
    for name, member in config.eval.members.items():
        if member.engine == "replay":
            found[name] = replayed(asked[name], member, records=folder.path / "records", name=name)
        else:
            found[name] = _answered(config, member, asked[name], folder, name, loaded)
    summary: dict[str, Any] = {"model": config.model.path, "seconds": round(time.monotonic() - started, 1)}
    return _report(config, folder, summary, found, config.eval.members)


def _asked(config: EvaluateConfig, settings: EvalConfig) -> Asked:
    if settings.rows is not None:
        return asked_of(settings)
    from ktr.data.run_rows import load_run_rows

    cache = Path(config.output_dir) / "toy_world"
    rows = load_run_rows(config.data, stages=["eval"], eval_splits=settings.splits, cache=cache)
    return asked_of(settings, rows.eval, rows.media_root)


def _answered(
    config: EvaluateConfig, settings: EvalConfig, asked: Asked, folder: RunFolder, name: str, loaded: dict[str, Any]
) -> ViewRecords:
    """Records of the checkpoint's replies; `loaded` keeps models and engines for the other benchmarks of the run."""
    assert config.model.path is not None, "the schema requires a checkpoint"
    if settings.engine not in loaded:
        loaded[settings.engine] = load_for(config, settings.engine)
    parts, engine = loaded[settings.engine]
    encoder = encoder_of(settings, config.data, parts, asked.media_root)
    return run_views(
        engine,
        encoder,
        asked,
        settings,
        identity=identity_of(settings, config.model, config.model.path, encoder),
        seed=config.seed,
        records=folder.path / "records",
        name=name,
    )


def _report(
    config: EvaluateConfig,
    folder: RunFolder,
    summary: dict[str, Any],
    found: Mapping[str, ViewRecords],
    members: Mapping[str, EvalConfig],
) -> Path:
    """Summary, tables and report from all records of the run."""
    options = {"resamples": config.eval.bootstrap, "seed": config.seed}
    benchmarks = {
        name: benchmark_summary(views, metric=members[name].metric, settings=_how(config, members[name]), **options)
        for name, views in found.items()
    }
    summary["benchmarks"] = benchmarks
    if len(benchmarks) == 1:
        (only,) = benchmarks.values()
        shuffled = only["views"].get("shuffled")
        summary |= {
            "accuracy": only["accuracy"],
            "accuracy_shuffled": shuffled["accuracy"] if shuffled else None,
            "by_kind": only["by_kind"],
            "samples": only["samples"],
        }
    metrics = {
        f"{name}/{key}": f["interval"]["mean"] for name, b in benchmarks.items() for key, f in b["figures"].items()
    }
    folder.append(folder.metrics, {"stage": "eval", **metrics})
    if config.logger.name != "none":
        from ktr.training.tracker import tracking  # Imported late: given replies are scored without torch.

        with tracking(**asdict(config.logger), run_dir=folder.path, config=asdict(config), is_main=True) as tracker:
            tracker.log(metrics, stage="eval")
    write_benchmarks(folder.path, summary, title=f"{config.name} {folder.path.name}")
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for name, result in benchmarks.items():
        console.print(_line(name, result))
    return folder.write("summary.json", summary)


def _how(config: EvaluateConfig, settings: EvalConfig) -> dict[str, Any]:
    """The settings a score rests on, as they were resolved."""
    frames = settings.frames or (config.data.sampling if settings.engine != "replay" else None)
    own = {key: getattr(settings, key) for key in (
        "engine", "rows", "limit", "max_new_tokens", "temperature", "top_p", "num_samples", "batch_size", "policy",
        "metric", "regression", "subtitles",
    )}  # fmt: skip
    return own | {
        "prompt": settings.prompt or config.data.prompt,
        "frames": None if frames is None else asdict(frames),
        "require_tags": settings.wants_tags,
        "seed": config.seed,
        "parser": parser_digest(),
        "judge": settings.judge.model,
    }


def _line(name: str, result: Mapping[str, Any]) -> str:
    figure = result["figures"][result["headline"]]
    mean, low, high = (100 * figure["interval"][key] for key in ("mean", "low", "high"))
    samples = result["samples"]
    failed = {
        key: samples[key]
        for key in ("no_answer", "truncated", "media_error", "prompt_too_long", "no_reply", "unjudged")
        if samples[key]
    }
    tail = "".join(f", {key} {value}" for key, value in failed.items())
    return (
        f"{name}: {result['headline']} {mean:.1f} % (95 % interval {low:.1f} to {high:.1f}), {samples['rows']} rows, "
        f"answered {samples['answered']} of {samples['samples']}{tail}"
    )


def _rescore(config: EvaluateConfig, folder: RunFolder) -> Path:
    assert config.rescore is not None
    saved, records = saved_settings(config.rescore), load_run(config.rescore)
    found: dict[str, ViewRecords] = {}
    members: dict[str, EvalConfig] = {}
    changed: dict[str, int] = {}
    for name, views in records.items():
        members[name] = settings_for(name, saved, config.eval)
        scorer, judge = scorer_of(members[name]), judge_of(members[name].judge)
        found[name] = {view: rescored(own, scorer, judge) for view, own in views.items()}
        changed[name] = 0
        for view, own in found[name].items():
            changed[name] += sum(new.accuracy != old.accuracy for new, old in zip(own, views[view], strict=True))
            with RecordWriter(folder.path / "records" / f"{name}_{view}.jsonl") as file:
                file.write(own)
    logger.info("scores changed: %s", ", ".join(f"{name} {count}" for name, count in changed.items()))
    summary = {"rescored": str(config.rescore), "changed": changed}
    return _report(config, folder, summary, found, members)


def _compare(config: EvaluateConfig, folder: RunFolder) -> Path:
    a, b = config.compare
    compared = compare_runs(load_run(a), load_run(b), resamples=config.eval.bootstrap, seed=config.seed)
    summary = {"a": a, "b": b, "comparisons": compared}
    write_comparison(folder.path, summary)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for name, one in compared.items():
        difference = one["difference"]
        mean, low, high = (100 * difference[key] for key in ("mean", "low", "high"))
        console.print(
            f"{name}: A {100 * one['a']['mean']:.1f} %, B {100 * one['b']['mean']:.1f} %, A - B {mean:+.1f} points "
            f"(95 % interval {low:+.1f} to {high:+.1f}, paired), better on {one['better']} and worse on {one['worse']} "
            f"of {one['rows']} rows"
        )
    return folder.write("summary.json", summary)
