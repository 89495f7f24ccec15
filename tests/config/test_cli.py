"""The entries as a person calls them: exit codes, one line on stderr, nothing left behind, no needless imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ktr.config.cli import note_failure
from ktr.config.run_folder_name import RunBusyError
from ktr.config.schemas import TrainConfig

ROOT = Path(__file__).resolve().parents[2]


def call(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    script, *rest = arguments
    command = [sys.executable, str(ROOT / script), *rest]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd or ROOT, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train.py", "ktr.top_k=abc"], ["ktr.top_k", "abc"]),
        (["train.py", "+ktr.topk=0.2"], ["ktr.topk", "did you mean ktr.top_k"]),
        (["train.py", "ktr=everything"], ["ktr=everything", "video_ktr_fast"]),
        (["train.py", "data=video_r1", "data.path=/no/such#rows.json"], ["data.path", "/no/such#rows.json"]),
        (["evaluate.py"], ["model.path", "required"]),
        (["predict.py", "model.path=.", "question=why?", "video=/no=video.mp4"], ["video", "/no=video.mp4"]),
        (["train.py", "hydra/launcher=slurm_rl"], ["hydra/launcher=slurm_rl", "add -m"]),
        (["train.py", "-m", "cluster=example"], ["cluster", "hydra/launcher=slurm_rl"]),
        (["train.py", "-m", "hydra/launcher=slurm_rl", "cluster=nowhere"], ["cluster=nowhere", "example"]),
        (["train.py", "-m", "hydra.launcher.max_job=3"], ["hydra.launcher.max_job", "--cfg hydra"]),
        (
            ["predict.py", "model.path=.", "question=why?", "problem_type=foo"],
            ["problem_type 'foo'", "multiple choice"],
        ),
        (["predict.py", "model=toy", "question=why?"], ["model.path", "required"]),
        (["train.py", "debug", "fast"], ["debug", "KEY=VALUE"]),
    ],
)
def test_a_bad_setting_is_one_line_and_leaves_nothing(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    done = call(*arguments, f"output_dir={tmp_path}/out", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ")
    assert all(word in done.stderr for word in words), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_setting_without_effect_is_warned_about_by_name(tmp_path: Path) -> None:
    entry = tmp_path / "entry.py"
    entry.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from ktr.config.cli import run_entry\n"
        "from ktr.config.schemas import TrainConfig\n"
        "run_entry('train', TrainConfig, lambda config, run_dir: None)\n"
    )
    done = call(str(entry), "ktr=none", "ktr.top_k=0.3", f"output_dir={tmp_path}/out", cwd=tmp_path)
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 1
    assert "WARNING" in done.stderr and "ktr.top_k has no effect: no signal of ktr is on" in done.stderr


def test_without_slurm_its_launchers_are_refused_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "train.py"), "-m", "hydra/launcher=slurm_rl", f"output_dir={tmp_path}/out"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)}, timeout=60)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "there is no Slurm here" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_more_jobs_than_a_sweep_may_have_are_refused(tmp_path: Path) -> None:
    done = call("train.py", "-m", "seed=1,2,3", "hydra.launcher.max_jobs=2", f"output_dir={tmp_path}/out")
    assert done.stderr == "error: hydra.launcher.max_jobs: the sweep has 3 jobs and 2 is the most; raise it\n"
    assert done.returncode == 1 and not list(tmp_path.glob("out/*/*"))


SCRIPT = """
import runpy, sys
for arguments in (["--help"], ["--cfg", "job"], ["--cfg", "job", "--resolve", "experiment=video_ktr_7b"]):
    for entry in ("train.py", "evaluate.py", "predict.py"):
        if "experiment=video_ktr_7b" in arguments and entry != "train.py":
            continue
        sys.argv = [entry, *arguments]
        runpy.run_path(entry, run_name="__main__")
from ktr.config.compose import compose
from ktr.config.validate import validate
validate(compose("train"))
heavy = sorted({"torch", "transformers", "trl", "numpy", "datasets", "wandb", "submitit", "optuna"} & set(sys.modules))
print("HEAVY", heavy)
"""


def test_help_config_and_validation_import_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_help_names_every_group_and_choice() -> None:
    text = call("train.py", "--help").stdout
    groups = ("model", "data", "reward", "ktr", "trainer", "eval", "rollout", "logger", "experiment", "debug")
    for group in (*groups, "hydra/launcher"):
        assert f"\n{group}\n" in text
        for file in (ROOT / "conf" / group).glob("*.yaml"):
            assert f" {file.stem} " in text
    assert "python train.py" in text and "top_k: 0.2" in text and "* video_ktr_fast" in text


def test_faults_of_the_project_keep_their_traceback(tmp_path: Path) -> None:
    fault = tmp_path / "fault.py"
    fault.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from ktr.config.cli import run_entry\n"
        "from ktr.config.schemas import TrainConfig\n"
        "def task(config, run_dir):\n"
        "    {}['lost']\n"
        "run_entry('train', TrainConfig, task)\n"
    )
    done = subprocess.run(
        [sys.executable, str(fault), f"output_dir={tmp_path}/out"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "KeyError: 'lost'" in done.stderr
    (run,) = (tmp_path / "out" / "toy").iterdir()
    assert json.loads((run / "failure.json").read_text()) == {"error": "KeyError: 'lost'"}
    assert "in task" in (run / "train.log").read_text()


def test_a_task_gets_typed_settings_and_its_folder_and_errors_of_files_are_one_line(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from ktr.config.cli import run_entry\n"
        "from ktr.config.schemas import TrainConfig\n"
        "def task(config, run_dir):\n"
        "    print(type(config).__name__, config.seed, run_dir)\n"
        "    open('/no/such/file')\n"
        "run_entry('train', TrainConfig, task)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), f"output_dir={tmp_path}/out", "seed=4"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    name, seed, folder = done.stdout.split()
    assert (name, seed) == ("TrainConfig", "4")
    assert Path(folder).parent == tmp_path / "out" / "toy" and (Path(folder) / ".hydra" / "overrides.yaml").exists()
    assert done.returncode == 1 and done.stderr.splitlines() == ["error: /no/such/file: No such file or directory"]


def sweep_script(folder: Path, task: str) -> Path:
    script = folder / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from ktr.config.cli import run_entry\n"
        "from ktr.config.schemas import TrainConfig\n"
        f"def task(config, run_dir):\n    {task}\n"
        "run_entry('train', TrainConfig, task)\n"
    )
    return script


def test_a_sweep_with_a_bad_value_starts_no_job_and_leaves_nothing(tmp_path: Path) -> None:
    script = sweep_script(tmp_path, "print('job', config.seed)")
    command = [sys.executable, str(script), "-m", f"output_dir={tmp_path}/out", "seed=1,2,-3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: job 2 (seed=-3): seed: must be at least 0, not -3\n"
    assert not list((tmp_path / "out").glob("*/*"))


def test_a_job_that_fails_keeps_no_other_from_running_and_the_sweep_ends_with_a_table(tmp_path: Path) -> None:
    script = sweep_script(tmp_path, "print('job', config.seed, run_dir, 1 / (2 - config.seed))")
    command = [sys.executable, str(script), "-m", f"output_dir={tmp_path}/out=#1", "seed=2,3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    jobs = [line.split() for line in done.stdout.splitlines() if line.startswith("job ")]
    assert [seed for _, seed, *_ in jobs] == ["3"]
    (sweep,) = (tmp_path / "out=#1").glob("*/sweep-*")
    assert [Path(folder).relative_to(sweep).name for _, _, folder, _ in jobs] == ["1"]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stderr.splitlines() if "│" in line]
    assert [row[:4] for row in rows] == [
        ["0", "FAILED", "seed=2", "0"], ["1", "COMPLETED", "seed=3", "1"],
    ]  # fmt: skip
    assert [row[-1] for row in rows] == ["ZeroDivisionError: division by zero", ""]
    assert done.returncode == 1 and "error: 1 of 2 jobs did not complete (job 0)" in done.stderr.splitlines()[-1]
    assert "ZeroDivisionError" in (sweep / "0" / "train.log").read_text()


def test_a_sweeper_gets_what_the_task_returns_and_an_old_failure_is_forgotten(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from hydra.experimental.callback import Callback\n"
        "from ktr.config.cli import run_entry\n"
        "from ktr.config.schemas import TrainConfig\n"
        "class Show(Callback):\n"
        "    def on_job_end(self, config, job_return, **kwargs):\n"
        "        print('returned', job_return.return_value)\n"
        "if __name__ == '__main__':\n"
        "    run_entry('train', TrainConfig, lambda config, run_dir: config.seed / 4)\n"
    )
    folder = tmp_path / "sweep" / "0"
    folder.mkdir(parents=True)
    (folder / "failure.json").write_text("{}")
    command = [sys.executable, str(script), "-m", f"hydra.sweep.dir={tmp_path}/sweep", "seed=1"]
    command += ["+hydra.callbacks.show._target_=__main__.Show"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert [line for line in done.stdout.splitlines() if "returned" in line] == ["returned 0.25"]
    assert json.loads((folder / "launch" / "returned.json").read_text()) == 0.25
    assert not (folder / "failure.json").exists()


def test_a_process_that_was_refused_a_folder_writes_nothing_into_it(tmp_path: Path) -> None:
    note_failure(RunBusyError("another process is at work"), TrainConfig, tmp_path)
    assert not list(tmp_path.iterdir())
    note_failure(ValueError("no such video"), TrainConfig, tmp_path)
    assert json.loads((tmp_path / "failure.json").read_text()) == {"error": "ValueError: no such video"}
