"""Measure one checkpoint: `python evaluate.py model.path=CHECKPOINT data=toy`."""

from pathlib import Path

from ktr.config.cli import run_entry
from ktr.config.schemas import EvaluateConfig


def evaluate(config: EvaluateConfig, run_dir: Path) -> None:
    from ktr.evaluation.entry import run  # Imported late: --help and --cfg answer without torch.

    print(run(config, run_dir))


if __name__ == "__main__":
    run_entry("evaluate", EvaluateConfig, evaluate)
