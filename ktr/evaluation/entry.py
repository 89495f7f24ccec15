"""`evaluate.py`: one checkpoint on the rows of `data`, its records, summary and report."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import yaml
from rich.console import Console

from ktr import components
from ktr.config.schemas import EvaluateConfig
from ktr.data.run_rows import load_run_rows
from ktr.evaluation.metrics import accuracy, by_category, counts
from ktr.evaluation.stage import evaluate_checkpoint
from ktr.training.run_folder import RunFolder, versions
from ktr.training.tracker import tracking


def run(config: EvaluateConfig, run_dir: Path) -> Path:
    """Evaluates `config.model.path`; returns the path of `summary.json`."""
    started = time.monotonic()
    folder = RunFolder(run_dir)
    settings = asdict(config)
    folder.write("config.yaml", yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))
    folder.write("versions.json", versions())
    rows = load_run_rows(
        config.data, stages=["eval"], eval_splits=config.eval.splits, cache=Path(config.output_dir) / "toy_world"
    )
    assert config.model.path is not None, "the schema requires a checkpoint"
    loaded = components.policy_model(config.model, config.model.path)
    encoder = components.prompt_encoder(config.data, loaded, rows.media_root)
    full, shuffled = evaluate_checkpoint(
        config, config.eval, loaded, encoder, rows.eval, folder.path / "records", name="model"
    )
    options = {"resamples": config.eval.bootstrap, "seed": config.seed}
    summary = {
        "model": str(config.model.path),
        "accuracy": accuracy(full, **options).to_dict(),
        "accuracy_shuffled": accuracy(shuffled, **options).to_dict() if shuffled else None,
        "by_kind": {name: asdict(score) for name, score in by_category(full, **options).items()},
        "samples": asdict(counts(full)),
        "seconds": round(time.monotonic() - started, 1),
    }
    with tracking(**asdict(config.logger), run_dir=folder.path, config=settings, is_main=True) as tracker:
        tracker.log({"accuracy": summary["accuracy"]["mean"]}, stage="eval")
    console = Console(stderr=True)
    for name, score in summary["by_kind"].items():
        console.print(f"{name:30s} {100 * score['accuracy']['mean']:5.1f} %")
    mean, low, high = (100 * summary["accuracy"][key] for key in ("mean", "low", "high"))
    console.print(f"accuracy {mean:.1f} % (95 % interval {low:.1f} to {high:.1f}), {len(full)} samples")
    return folder.write("summary.json", summary)
