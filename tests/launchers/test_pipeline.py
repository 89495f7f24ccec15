"""Stages that build on one another: what each job gets, what a failure keeps from running, and going on."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from ktr.config.fields import ConfigError
from launchers import job_events, pipeline, pipeline_plan
from launchers.pipeline_plan import Pipeline, plan
from launchers.sweep_record import Sweep

ROOT = Path(__file__).resolve().parents[2]
ROWS = '{"id": "1", "question": "What moves?", "answer": "a ball", "problem_type": "free-form"}\n'
SLURM = ["hydra/launcher=slurm", "hydra.launcher.gpus_per_node=null", "hydra.launcher.poll_s=1"]


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Jobs run `pipeline_stage.py`; what is written to the file it returns makes them fail (`sft/0`)."""
    monkeypatch.setattr(pipeline_plan, "ENTRY", Path(__file__).with_name("pipeline_stage.py"))
    monkeypatch.setenv("KTR_TEST_FAIL", str(tmp_path / "fail"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "fail"


def started(tmp_path: Path, *arguments: str) -> tuple[Path, str | None]:
    """The folder of a pipeline that was run to its end, and the error that it ended with."""
    error = None
    try:
        pipeline.run(["stages=[sft,rl,eval]", f"output_dir={tmp_path}/out", *arguments])
    except SystemExit as ended:
        error = str(ended.code)
    (folder,) = (tmp_path / "out" / "toy").glob("pipeline-*")
    return folder, error


def resumed(folder: Path) -> str | None:
    try:
        pipeline.run([f"resume={folder}"])
    except SystemExit as ended:
        return str(ended.code)
    return None


def made(folder: Path) -> dict[str, list]:
    """What each job's checkpoint was made by, from the first stage on."""
    paths = sorted(folder.glob("*/*/checkpoints/*/made.json"))
    return {"/".join(path.relative_to(folder).parts[:2]): json.loads(path.read_text()) for path in paths}


def test_each_stage_gets_its_own_settings_and_the_checkpoint_before_it(tmp_path):
    arguments = ["stages=[sft,rl]", f"output_dir='{tmp_path}/a,b'", "seed=0,1", "sft:sft.max_steps=2"]
    found, sweeps = plan([*arguments, "rl:ktr=none,entropy", "rl:hydra.launcher.max_jobs=4"])
    assert found.folder.parent == tmp_path / "a,b" / "toy" and not found.folder.exists()
    assert found.parents == {"sft": [], "rl": [0, 0, 1, 1]}
    common = f"output_dir='{tmp_path}/a,b'"
    assert [job.overrides for job in sweeps["sft"].jobs] == [
        [common, "seed=0", "sft.max_steps=2", "stages=[sft]"], [common, "seed=1", "sft.max_steps=2", "stages=[sft]"],
    ]  # fmt: skip
    start = f"model.path='{found.folder}/sft/1/checkpoints/sft'"
    assert sweeps["rl"].jobs[3].overrides == [common, "seed=1", "ktr=entropy", start, "stages=[rl]"]
    assert {sweep.launcher for sweep in sweeps.values()} == {"local"}
    assert sweeps["rl"].settings["max_jobs"] == 4 and sweeps["sft"].settings["max_jobs"] == 100


def test_slurm_gives_each_stage_its_own_launcher(tmp_path):
    arguments = ["stages=[sft,eval]", f"output_dir={tmp_path}", *SLURM, "eval:hydra/launcher=slurm_debug"]
    _, sweeps = plan([*arguments, "sft:hydra.launcher.nodes=2"])
    assert [sweep.settings["timeout_min"] for sweep in sweeps.values()] == [720, 30]
    assert [sweep.settings["nodes"] for sweep in sweeps.values()] == [2, 1]
    assert sweeps["sft"].settings["submitit_folder"].startswith(str(sweeps["sft"].folder))


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["stages=[rl,sft]"], "stages"),
        (["stages=[sft]", "rl:seed=1"], "rl:"),
        (["stages=[sft,rl]", "rl:ktr.top_k=0.1,7"], "ktr.top_k"),
        (["stages=[sft]", "data=jsonl", "data.path=/no/such.jsonl"], "data.path"),
        (["stages=[sft]", "seed=0,1,2", "hydra.launcher.max_jobs=2"], "hydra.launcher.max_jobs"),
        (["stages=[sft,rl]", "rl:hydra/launcher=slurm_rl"], "hydra/launcher"),
        (["stages=[sft,rl]", "rl:name=other"], "rl:name"),
        (["stages=[sft,rl]", "rl:model.path=other"], "rl:model.path"),
        (["stages=[sft]", "hydra/launcher=slurm", "cluster=nowhere"], "cluster=nowhere"),
        (["stages=[sft]", "resume=x"], "resume"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(arguments, key, tmp_path):
    with pytest.raises(ConfigError) as caught:
        plan([*arguments, f"output_dir={tmp_path}/out"])
    assert caught.value.key == key
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_stages_run_here_one_after_another_fanned_out_and_read_as_one_result(tmp_path, stand_in):
    folder, error = started(tmp_path, "seed=0,1", "rl:ktr=none,entropy")
    assert error is None
    found = made(folder)
    assert len(found) == 2 + 4 + 4
    assert found["eval/3"] == [["sft", "1"], ["rl", "1", "entropy"], ["eval", "1"]]
    rows = list(csv.DictReader((folder / "settings.csv").read_text().splitlines()))
    assert [(row["rl:ktr"], row["runs"]) for row in rows] == [("none", "2"), ("entropy", "2")]
    assert [float(row["mean"]) for row in rows] == [pytest.approx(0.505), pytest.approx(0.605)]


def test_what_builds_on_a_failed_stage_never_runs_and_resume_does_the_rest(tmp_path, stand_in, capsys):
    stand_in.write_text("sft/1")
    began = time.monotonic()
    folder, error = started(tmp_path, "seed=0,1")
    assert time.monotonic() - began < 30
    assert error.startswith(
        "error: stage sft failed (job 1): sft cannot do this; 1 of 2 rl jobs did not run; 1 of 2 eval"
    )
    assert f"python -m launchers.pipeline resume={folder}" in error
    assert not (folder / "rl" / "1").exists() and set(made(folder)) == {"sft/0", "rl/0", "eval/0"}
    assert "NOT RUN" in capsys.readouterr().err
    before = {name: (folder / name / "summary.json").stat().st_mtime_ns for name in made(folder)}
    stand_in.unlink()
    assert resumed(folder) is None
    assert {name: (folder / name / "summary.json").stat().st_mtime_ns for name in before} == before
    assert made(folder)["eval/1"] == [["sft", "1"], ["rl", "1"], ["eval", "1"]]


def test_resume_of_another_folder_is_one_line(tmp_path):
    command = [sys.executable, "-m", "launchers.pipeline", f"resume={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == f"error: resume: {tmp_path} is not a pipeline's folder: it has no pipeline.json\n"


@pytest.mark.slow
def test_a_warm_up_that_fails_never_runs_rl_here(tmp_path):
    """The real train.py, on rows that a warm-up cannot learn from."""
    assert_warm_up_failed(tmp_path, [])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_training_hands_its_checkpoint_on(tmp_path):
    folder, error = started(tmp_path, "debug=fast", "eval.base=true")
    assert error is None
    for stage, start in (("rl", "sft"), ("eval", "rl")):
        settings = yaml.safe_load((folder / stage / "0" / "config.yaml").read_text())
        assert settings["model"]["path"] == str(folder / start / "0" / "checkpoints" / start)
    assert json.loads((folder / "eval" / "0" / "summary.json").read_text())["accuracy"]["base"] is not None
    assert (folder / "sweep.html").exists()


@pytest.mark.slurm
@pytest.mark.timeout(300)
def test_stages_wait_for_one_another_on_slurm(tmp_path, stand_in, cluster):
    folder, error = started(tmp_path, *SLURM, "seed=0,1", "rl:ktr=none,entropy")
    assert error is None
    assert made(folder)["eval/3"] == [["sft", "1"], ["rl", "1", "entropy"], ["eval", "1"]]
    for sweep in (Pipeline.read(folder).sweep(stage) for stage in ("rl", "eval")):
        assert sweep.settings["dependency"] is None


@pytest.mark.slurm
@pytest.mark.timeout(300)
def test_slurm_cancels_what_builds_on_a_failed_stage_and_resume_does_the_rest(tmp_path, stand_in, cluster):
    stand_in.write_text("rl/0")
    folder, error = started(tmp_path, *SLURM, "seed=0,1")
    assert error.startswith("error: stage rl failed (job 0): rl cannot do this; 1 of 2 eval jobs did not run")
    assert set(made(folder)) == {"sft/0", "sft/1", "rl/1", "eval/1"}
    ids = {stage: [list(job.ids) for job in Sweep.read(folder / stage).jobs] for stage in ("sft", "rl", "eval")}
    stand_in.unlink()
    assert resumed(folder) is None
    assert made(folder)["eval/0"] == [["sft", "0"], ["rl", "0"], ["eval", "0"]]
    again = {stage: [len(job.ids) for job in Sweep.read(folder / stage).jobs] for stage in ("sft", "rl", "eval")}
    assert again == {"sft": [1, 1], "rl": [2, 1], "eval": [2, 1]} and all(ids.values())


@pytest.mark.slurm
@pytest.mark.timeout(300)
def test_a_warm_up_that_fails_never_runs_rl_on_slurm(tmp_path, cluster):
    """The real train.py, on rows that a warm-up cannot learn from."""
    assert_warm_up_failed(tmp_path, SLURM)


def assert_warm_up_failed(tmp_path: Path, launcher: list[str]) -> None:
    """The command ends with an error within 30 s of the failure, and nothing of the later stages has run."""
    (tmp_path / "rows.jsonl").write_text(ROWS)
    data = ["data=jsonl", f"data.path={tmp_path}/rows.jsonl", f"data.eval_path={tmp_path}/rows.jsonl"]
    folder, error = started(tmp_path, "debug=fast", *data, *launcher)
    ended = time.time()
    assert error.startswith("error: stage sft failed (job 0): row '1' has no rationale")
    assert "1 of 1 rl jobs did not run; 1 of 1 eval jobs did not run" in error
    assert not (folder / "rl" / "0").exists() and not (folder / "eval" / "0").exists()
    (failed,) = [event for event in job_events.read(folder / "sft" / "0") if event.event == job_events.FAILED]
    assert ended - failed.time < 30
