"""Searches by Optuna, through the entries as a person calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys; sys.path.insert(0, {root!r})
from ktr.config.cli import run_entry
from ktr.config.schemas import TrainConfig
def task(config, run_dir):
    if config.ktr.top_k > 0.4:
        raise ValueError("too many tokens")
    return -(config.ktr.top_k - 0.2) ** 2
if __name__ == "__main__":
    run_entry("train", TrainConfig, task)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(root=str(ROOT)))
    return path


def search(script: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), "-m", "hydra/sweeper=optuna", f"hydra.sweep.dir={folder}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)


def trials(folder: Path) -> list[list[str]]:
    paths = sorted(folder.glob("*/.hydra/overrides.yaml"), key=lambda path: int(path.parts[-3]))
    return [yaml.safe_load(path.read_text()) for path in paths]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_search_maximizes_goes_on_after_a_failed_trial_and_says_so(script: Path, tmp_path: Path) -> None:
    space = ["ktr.top_k=choice(0.5,0.2,0.3)", "hydra.sweeper.n_trials=6", "ktr=entropy"]
    done = search(script, tmp_path / "a", *space, "seed=3")
    values = [float(overrides[0].partition("=")[2]) for overrides in trials(tmp_path / "a")]
    failed = [str(place) for place, value in enumerate(values) if value == 0.5]
    assert len(values) == 6 and failed and {0.2, 0.3} <= set(values), values
    assert done.returncode == 1
    told = f"{len(failed)} of 6 jobs did not complete (job{'s' if len(failed) > 1 else ''} {', '.join(failed)})"
    assert told in done.stderr.splitlines()[-1]
    best = yaml.safe_load((tmp_path / "a" / "optimization_results.yaml").read_text())
    assert best["best_params"] == {"ktr.top_k": 0.2} and best["best_value"] == 0
    search(script, tmp_path / "b", *space, "seed=3")
    assert trials(tmp_path / "b") == trials(tmp_path / "a")


@pytest.mark.slow
@pytest.mark.skipif(metadata.version("sqlalchemy") >= "2", reason="optuna 2 keeps its studies by sqlalchemy 1")
def test_a_kept_study_is_gone_on_with(script: Path, tmp_path: Path) -> None:
    kept = [f"hydra.sweeper.storage='sqlite:///{tmp_path}/study.db'", "hydra.sweeper.study_name=kept"]
    space = ["ktr.top_k=interval(0.1,0.3)", "hydra.sweeper.n_trials=2", *kept]
    assert search(script, tmp_path / "a", *space).returncode == 0
    assert search(script, tmp_path / "b", *space).returncode == 0
    first, both = (yaml.safe_load((tmp_path / n / "optimization_results.yaml").read_text()) for n in "ab")
    assert both["best_value"] >= first["best_value"]
    import optuna

    assert len(optuna.load_study("kept", f"sqlite:///{tmp_path}/study.db").trials) == 4


def test_a_search_with_nothing_to_judge_by_is_refused_before_it_starts(tmp_path: Path) -> None:
    done = search(ROOT / "train.py", tmp_path / "sweep", "stages=[sft]", "seed=1,2")
    assert done.returncode == 1 and not (tmp_path / "sweep").exists()
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert line == "error: metric: names the figure to search by, such as rl/reward or videomme.accuracy"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_training_is_searched_by_the_figure_that_metric_names(tmp_path: Path) -> None:
    given = ["debug=fast", "stages=[sft]", "metric=sft/loss", "hydra.sweeper.direction=minimize"]
    given += ["hydra.sweeper.n_trials=2", "sft.learning_rate=interval(0.001,0.01)", f"output_dir={tmp_path}/out"]
    done = search(ROOT / "train.py", tmp_path / "sweep", *given)
    assert done.returncode == 0, done.stderr
    losses = []
    for number in "01":
        lines = (tmp_path / "sweep" / number / "metrics.jsonl").read_text().splitlines()
        losses.append([row["loss"] for row in map(json.loads, lines) if "loss" in row][-1])
    best = yaml.safe_load((tmp_path / "sweep" / "optimization_results.yaml").read_text())
    assert best["best_value"] == pytest.approx(min(losses))
