"""The table of methods: resumed runs, figures by seed, and a refusal to mix settings."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "methods.py"
FAST = ["--", "debug=fast", "eval.views=[full]"]


@pytest.fixture(scope="module")
def methods():
    spec = importlib.util.spec_from_file_location("methods", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_method_is_a_choice_of_the_config(methods):
    for overrides in methods.METHODS.values():
        methods.validate(methods.compose("train", list(overrides)), methods.TrainConfig)
    assert set(methods.TABLE) == {
        "GRPO", "T-GRPO", "entropy only", "visual only", "temporal only", "all three", "released",
    }  # fmt: skip


def test_methods_start_from_the_warm_up_of_their_seed_and_are_not_trained_twice(methods, tmp_path, monkeypatch):
    arguments = ["--out", str(tmp_path / "m"), "--seeds", "0", "--methods", "T-GRPO", *FAST]
    rows = methods.main(arguments)
    assert [row["method"] for row in rows] == ["warm-up", "T-GRPO"] and rows[1]["kept"] == 1.0
    assert (tmp_path / "m" / "table.md").read_text().count("\n| ") == 3
    config = (tmp_path / "m" / "seed-0" / "T-GRPO" / "config.yaml").read_text()
    assert str(tmp_path / "m" / "seed-0" / "warm-up" / "checkpoints" / "sft") in config

    from ktr.training import pipeline

    trained = []
    monkeypatch.setattr(pipeline, "run", lambda config, folder: trained.append(sorted(folder.iterdir())))
    assert methods.main(arguments) == rows and not trained
    with pytest.raises(ValueError, match="holds a run of other settings"):
        methods.main([*arguments, "sft.learning_rate=1e-5"])
    folder = tmp_path / "m" / "seed-0" / "T-GRPO"
    (folder / "summary.json").unlink()
    with pytest.raises(FileNotFoundError):  # the stand-in writes no summary
        methods.main(arguments)
    assert trained == [[folder / "overrides.json"]], "what a killed run left is gone"


def test_means_and_gains_are_over_seeds(methods):
    def run(accuracy, kept=None):
        return {"accuracy": accuracy, "shuffled": 0.5, "seconds": 10.0, methods.METRICS[0]: kept}

    runs = {"warm-up": {0: run(0.5), 1: run(0.6)}, "GRPO": {0: run(0.6, 1.0), 1: run(0.8, 0.5)}}
    warm_up, grpo = methods.table_of(runs)
    assert grpo["accuracy"] == pytest.approx(0.7) and grpo["gain"] == pytest.approx(0.15)
    assert grpo["deviation"] == pytest.approx(0.2 / 2**0.5) and grpo["kept"] == 0.75
    assert warm_up["gain"] == 0 and warm_up["kept"] is None
    text = methods.markdown([warm_up, grpo], [0, 1], 100)
    assert "| GRPO | 70.0 ± 14.1 | 60.0 | 80.0 | +15.0 | 50.0 | 75.0 | 10 |" in text
    json.dumps([warm_up, grpo])


def test_an_unknown_method_is_refused(methods, capsys):
    with pytest.raises(SystemExit):
        methods.main(["--out", "x", "--methods", "PPO"])
    assert "unknown method 'PPO'" in capsys.readouterr().err
