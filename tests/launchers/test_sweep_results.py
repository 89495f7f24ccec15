"""Sweeps of the real entries, here and on Slurm, read as one result."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ON_SLURM = ["hydra/launcher=slurm_eval", "hydra.launcher.gpus_per_node=null", "hydra.launcher.poll_s=1"]


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=380)


def csv_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def evaluated(folder: Path, launcher: list[str]) -> Path:
    """A sweep over numbers of rows, seeds and two files of replies, one of which no job can read."""
    rows = [{"id": i, "question": "?", "options": ["red", "blue"], "answer": "AB"[i % 2]} for i in range(4)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "good.jsonl").write_text("".join(json.dumps({"id": i, "reply": "(A)"}) + "\n" for i in range(4)))
    (folder / "bad.jsonl").write_text('{"id": 0}\n')
    given = [f"eval.rows={folder}/rows.jsonl", "eval.engine=replay", f"output_dir={folder}/out", "seed=0,1"]
    swept = [f"eval.replies={folder}/good.jsonl,{folder}/bad.jsonl", "eval.limit=1,4"]
    done = python(str(ROOT / "evaluate.py"), "-m", *given, *swept, *launcher, cwd=folder)
    assert done.returncode == 1 and "4 of 8 jobs did not complete" in done.stderr, done.stderr
    (sweep,) = (folder / "out").glob("*/sweep-*")
    return sweep


@pytest.mark.parametrize(
    "launcher", [pytest.param([], marks=pytest.mark.slow), pytest.param(ON_SLURM, marks=pytest.mark.slurm)]
)
@pytest.mark.timeout(400)
def test_evaluations_that_failed_are_in_no_mean(tmp_path, launcher, request):
    if launcher:
        request.getfixturevalue("cluster")
    sweep = evaluated(tmp_path, launcher)
    done = python("-m", "ktr.reporting.sweep", str(sweep), cwd=ROOT)
    assert "8 jobs: 4 finished, 4 failed. 4 of them in no mean." in done.stdout, done.stderr
    rows = csv_rows(sweep / "settings.csv")
    assert [(Path(row["eval.replies"]).name, row["eval.limit"], row["runs"], row["left_out"]) for row in rows] == [
        ("good.jsonl", "1", "2", "0"), ("good.jsonl", "4", "2", "0"), ("bad.jsonl", "1", "0", "2"),
        ("bad.jsonl", "4", "0", "2"),
    ]  # fmt: skip
    assert [row["mean"] for row in rows] == ["1.0", "0.5", "", ""] and rows[0]["figure"].endswith(".accuracy")
    effects = csv_rows(sweep / "effects.csv")
    assert [(row["axis"], float(row["effect"])) for row in effects] == [("eval.limit", 0.25), ("eval.limit", -0.25)]
    errors = [job["error"] for job in csv_rows(sweep / "jobs.csv") if job["state"] == "failed"]
    assert len(errors) == 4 and all("bad.jsonl:1" in error for error in errors)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_training_is_read_by_its_own_figures(tmp_path):
    given = ["debug=fast", "stages=[sft]", "seed=0,1", f"output_dir={tmp_path}/out"]
    done = python(str(ROOT / "train.py"), "-m", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (sweep,) = (tmp_path / "out").glob("*/sweep-*")
    done = python("-m", "ktr.reporting.sweep", str(sweep), cwd=ROOT)
    assert "2 jobs: 2 finished." in done.stdout, done.stderr
    (row,) = csv_rows(sweep / "settings.csv")
    assert (row["figure"], row["runs"], row["left_out"]) == ("sft/loss", "2", "0")
    losses = [float(job["sft/loss"]) for job in csv_rows(sweep / "jobs.csv")]
    assert float(row["mean"]) == pytest.approx(sum(losses) / 2) and losses[0] != losses[1]
