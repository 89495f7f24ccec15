"""Answer one question: `python predict.py model.path=CHECKPOINT video=clip.mp4 question="What happens first?"`."""

from pathlib import Path

from ktr.config.cli import run_entry
from ktr.config.schemas import PredictConfig


def predict(config: PredictConfig, run_dir: Path) -> None:
    from ktr.evaluation.predict_entry import run  # Imported late: --help and --cfg answer without torch.

    print(run(config, run_dir))


if __name__ == "__main__":
    run_entry("predict", PredictConfig, predict)
