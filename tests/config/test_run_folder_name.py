"""Run folders: always new, never shared, no `=`; `resume` goes back to one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig

from ktr.config.compose import compose
from ktr.config.run_folder_name import newest_unfinished, run_dir, run_id


def folder(*overrides: str) -> str:
    config = compose("train", list(overrides), with_hydra=True)
    HydraConfig.instance().set_config(config)
    first = config.hydra.run.dir
    assert first == config.hydra.run.dir, "a run keeps its folder"
    return first


def test_two_runs_of_the_same_second_have_two_folders() -> None:
    assert len({run_id() for _ in range(200)}) == 200
    assert folder() != folder()


def test_the_folder_is_output_dir_name_id(tmp_path: Path) -> None:
    path = Path(folder(f"output_dir={tmp_path}/out", "name=first"))
    assert path.parent == tmp_path / "out" / "first"
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", path.name)
    assert Path(folder()).is_absolute() and Path(folder()).parts[-3:-1] == ("outputs", "toy")
    assert "=" not in folder()


def test_resume_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    assert folder(f"resume={tmp_path}/out/toy/x") == f"{tmp_path}/out/toy/x"


def unfinished(folder: Path, checkpoint: str | None = None, *, failed: bool) -> Path:
    folder.mkdir(parents=True)
    state = {"finished": False, "stages": {"rl": {"records": {}, "checkpoint": checkpoint}}}
    (folder / "state.json").write_text(json.dumps(state))
    if failed:
        (folder / "failure.json").write_text('{"error": "no such video"}')
    return folder


def test_auto_passes_over_a_run_that_failed_before_its_first_checkpoint(tmp_path: Path, caplog) -> None:
    killed = unfinished(tmp_path / "1", failed=False)
    failed = unfinished(tmp_path / "2", failed=True)
    assert newest_unfinished(tmp_path) == killed
    assert f"{failed} failed before its first checkpoint" in caplog.text
    (failed / "checkpoints" / "rl_steps" / "checkpoint-1").mkdir(parents=True)
    assert newest_unfinished(tmp_path) == failed
    assert newest_unfinished(unfinished(tmp_path / "3", "checkpoints/rl", failed=True).parent) == tmp_path / "3"


def test_a_sweep_has_a_folder_of_its_own(tmp_path: Path) -> None:
    sweep = compose("train", [f"output_dir={tmp_path}"], with_hydra=True).hydra.sweep.dir
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/toy/sweep-\d{{8}}-\d{{6}}-[0-9a-f]{{6}}", sweep)


def test_processes_of_one_torchrun_share_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("MASTER_PORT", "29500")
    one = run_dir("out", "toy", None)
    assert one == run_dir("out", "toy", None)
    monkeypatch.setenv("MASTER_PORT", "29501")
    assert one != run_dir("out", "toy", None)
