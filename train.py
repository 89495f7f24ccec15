"""Train a vision-language model: supervised warm-up, reinforcement learning with key tokens, evaluation.

`python train.py` runs the toy experiment; `python train.py --help` lists the groups and their choices.
"""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from ktr.config.cli import run_entry
from ktr.config.resume import config_of_run
from ktr.config.schemas import TrainConfig
from ktr.reporting.run_figures import returned_figure


def train(config: TrainConfig, run_dir: Path) -> float | None:
    from accelerate import PartialState  # Imported late: --help and --cfg answer without torch.

    from ktr.training.pipeline import run

    print(run(config_of_run(config, run_dir, HydraConfig.get().overrides.task), run_dir))
    return returned_figure(run_dir, config.metric) if PartialState().is_main_process else None


if __name__ == "__main__":
    run_entry("train", TrainConfig, train)
