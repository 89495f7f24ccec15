"""Check, cache, convert or publish a data set: `python prepare.py job=doctor data.path=ROWS.jsonl job.out=FOLDER`."""

from pathlib import Path

from ktr.config.cli import run_entry
from ktr.config.schema_prepare import PrepareConfig


def prepare(config: PrepareConfig, run_dir: Path) -> None:
    from ktr.data.prepare import run  # Imported late: --help and --cfg answer without torch.

    print(run(config, run_dir))


if __name__ == "__main__":
    run_entry("prepare", PrepareConfig, prepare)
