"""Measure one checkpoint: `python evaluate.py model.path=CHECKPOINT data=toy`."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from ktr.config.cli import run_entry
from ktr.config.resume import config_of_run
from ktr.config.schemas import EvaluateConfig
from ktr.reporting.run_figures import returned_figure


def evaluate(config: EvaluateConfig, run_dir: Path) -> float | None:
    from ktr.evaluation.entry import run  # Imported late: --help and --cfg answer without torch.

    config = config_of_run(config, run_dir, HydraConfig.get().overrides.task)
    print(run(config, run_dir))
    return None if config.compare else returned_figure(run_dir, config.metric)


if __name__ == "__main__":
    run_entry("evaluate", EvaluateConfig, evaluate)
