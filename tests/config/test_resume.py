"""A run goes on with the settings it began with."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from ktr.config.compose import compose
from ktr.config.fields import ConfigError
from ktr.config.resume import config_of_run, refuse_changes
from ktr.config.run_folder_name import newest_unfinished, run_dir
from ktr.config.schemas import EvaluateConfig, TrainConfig
from ktr.config.validate import check_files, validate


def config_of(*overrides: str) -> TrainConfig:
    return validate(compose("train", list(overrides)), TrainConfig)


BEGAN = ["debug=fast", "seed=3", "trainer.max_steps=4", "ktr=none", "reward.components.format.weight=0.5"]


def begin(path: Path, *overrides: str, finished: bool | None = False) -> TrainConfig:
    path.mkdir(parents=True)
    config = config_of(*overrides)
    (path / "config.yaml").write_text(yaml.safe_dump(asdict(config)))
    if finished is not None:
        (path / "state.json").write_text(json.dumps({"finished": finished}))
    return config


def test_a_new_run_has_its_own_settings(tmp_path: Path) -> None:
    config = config_of("seed=5")
    assert config_of_run(config, tmp_path / "new", ["seed=5"]) is config


def test_resume_alone_takes_the_settings_of_the_run(tmp_path: Path) -> None:
    began = begin(tmp_path / "run", *BEGAN)
    given = [f"resume={tmp_path}/run", "trainer.max_steps=90", "logger=wandb", "logger.mode=offline"]
    config = config_of_run(config_of(*given), tmp_path / "run", given)
    assert config.trainer.max_steps == 90 and config.logger.name == "wandb" and config.resume == f"{tmp_path}/run"
    expected = asdict(began) | {"logger": asdict(config.logger), "resume": config.resume}
    expected["trainer"]["max_steps"] = 90
    assert asdict(config) == expected


def test_the_command_of_the_run_may_be_repeated(tmp_path: Path) -> None:
    begin(tmp_path / "run", *BEGAN)
    given = [*BEGAN, f"resume={tmp_path}/run"]
    assert config_of_run(config_of(*given), tmp_path / "run", given).seed == 3


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("seed=4", "seed: 3 -> 4"),
        ("ktr=video_ktr", "ktr.entropy.enabled: False -> True"),
        ("reward.components.format.weight=0.25", "reward.components.format.weight: 0.5 -> 0.25"),
        ("trainer.learning_rate=1e-3", "trainer.learning_rate: "),
    ],
)
def test_settings_that_would_change_the_results_are_named(tmp_path: Path, change: str, told: str) -> None:
    begin(tmp_path / "run", *BEGAN)
    with pytest.raises(ConfigError, match="began with other settings") as error:
        config_of_run(config_of(*BEGAN, change), tmp_path / "run", [*BEGAN, change])
    assert told in str(error.value)


def test_more_steps_are_told_and_allowed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begin(tmp_path / "run", *BEGAN)
    refuse_changes(config_of(*BEGAN, "trainer.max_steps=8", "data.workers=2"), tmp_path / "run")
    assert "trainer.max_steps: 4 -> 8" in caplog.text and "data.workers: 0 -> 2" in caplog.text


def test_a_run_that_never_began_a_stage_may_change(tmp_path: Path) -> None:
    begin(tmp_path / "run", *BEGAN, finished=None)
    assert config_of_run(config_of("seed=4"), tmp_path / "run", ["seed=4"]).seed == 4


def test_auto_is_the_newest_run_that_is_not_finished(tmp_path: Path) -> None:
    runs = tmp_path / "out" / "toy"
    assert newest_unfinished(runs) is None
    assert Path(run_dir(str(tmp_path / "out"), "toy", "auto")).parent == runs
    for name, finished in (("20260101-1", False), ("20260102-1", False), ("20260103-1", True)):
        begin(runs / name, finished=finished)
    begin(tmp_path / "out" / "other" / "20260104-1")
    begin(runs / "20260105-1", finished=None)
    assert run_dir(str(tmp_path / "out"), "toy", "auto") == str(runs / "20260102-1")


def test_a_finished_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    begin(tmp_path / "run", finished=True)
    with pytest.raises(ConfigError, match="resume: the run in .* is finished and is not opened again"):
        check_files(config_of(f"resume={tmp_path}/run"))
    check_files(config_of("resume=auto"))


def test_an_evaluation_resumed_alone_takes_its_settings_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    given = ["eval=mmvu", "model.path=/checkpoint", "eval.limit=7", "seed=3"]
    began = validate(compose("evaluate", given), EvaluateConfig)
    (run / "config.yaml").write_text(yaml.safe_dump(asdict(began)))
    again = [f"resume={run}", "logger=none"]
    resumed = validate(compose("evaluate", again), EvaluateConfig)
    with pytest.raises(ConfigError, match="model.path: there is no /checkpoint"):
        config_of_run(resumed, run, again)
    began.model.path = str(tmp_path)
    began.eval.rows = str(run / "config.yaml")
    (run / "config.yaml").write_text(yaml.safe_dump(asdict(began)))
    assert asdict(config_of_run(resumed, run, again)) == asdict(began) | {"resume": str(run)}
