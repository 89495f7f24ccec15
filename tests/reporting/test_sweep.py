"""A sweep's folder read as one result: what counts, what does not, and what is written."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ktr.config.run_folder_name import STATE
from ktr.reporting.sweep import write_sweep
from ktr.reporting.sweep_jobs import read_sweep, settings_of_overrides
from ktr.reporting.sweep_statistics import spread
from ktr.reporting.sweep_tables import result_of, spread_text
from launchers import job_events
from launchers.job_events import FAILED, FINISHED, STARTED, Event
from launchers.sweep_record import Sweep, SweepJob

ROOT = Path(__file__).resolve().parents[2]
ACCURACIES = {("0.1", 0): 0.5, ("0.1", 1): 0.6, ("0.1", 2): 0.7, ("0.2", 0): 0.8, ("0.2", 1): None, ("0.2", 2): None}


def accuracy_summary(value: float) -> dict:
    return {"accuracy": {"base": None, "sft": 0.4, "rl": value}, "seconds": 3.0}


def trained_run(folder: Path, value: float) -> None:
    folder.mkdir(parents=True)
    (folder / STATE).write_text(json.dumps({"finished": True}))
    (folder / "summary.json").write_text(json.dumps(accuracy_summary(value)))
    rows = [{"stage": "rl", "step": step, "reward": value * step, "loss": 0.1} for step in (1, 2, 3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    job_events.record(folder, Event(STARTED, "local.1", 0, time=1.0))
    job_events.record(folder, Event(FINISHED, "local.1", 0, time=2.0))


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Six jobs of two values over three seeds: four finished, one failed after it had measured, one never begun."""
    overrides = [[f"ktr.top_k={k}", f"seed={seed}", "name='<b>toy'"] for k, seed in ACCURACIES]
    folder = tmp_path / "sweep"
    folder.mkdir()
    jobs = [SweepJob(number, own) for number, own in enumerate(overrides)]
    Sweep(folder, "train.py", "local", {}, [], jobs).save()
    for number, value in enumerate(ACCURACIES.values()):
        if value is not None:
            trained_run(folder / str(number), value)
    failed = folder / "4"
    failed.mkdir()
    (failed / "summary.json").write_text(json.dumps(accuracy_summary(0.99)))
    job_events.record(failed, Event(STARTED, "local.1", 0, time=1.0))
    job_events.record(failed, Event(FAILED, "local.1", 0, "out | of memory <i>", time=2.0))
    return folder


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_jobs_that_did_not_finish_are_rows_of_their_own_and_in_no_mean(sweep):
    result = result_of(sweep, read_sweep(sweep), ["seed"])
    assert result.verdict == "6 jobs: 4 finished, 1 failed, 1 pending. 2 of them in no mean."
    write_sweep(result)
    one, two = rows_of(sweep / "settings.csv")
    assert (one["ktr.top_k"], one["figure"], one["runs"], one["left_out"]) == ("0.1", "accuracy.rl", "3", "0")
    assert float(one["mean"]) == pytest.approx(0.6) and float(one["std"]) == pytest.approx(0.1)
    assert float(one["low"]) == pytest.approx(0.3515861, abs=1e-6)
    assert (two["mean"], two["std"], two["low"], two["runs"], two["left_out"]) == ("0.8", "", "", "1", "2")
    jobs = rows_of(sweep / "jobs.csv")
    assert [job["state"] for job in jobs] == ["finished"] * 4 + ["failed", "pending"]
    assert jobs[4]["error"] == "out | of memory <i>" and jobs[0]["rl/reward"] == "1.5"
    text = (sweep / "sweep.md").read_text()
    assert "| 0.1 | 3 of 3 | 60.0 ± 10.0 (35.2 to 84.8) |" in text
    assert "| 0.2 | 1 of 3 | 80.0 |" in text
    assert "| 0.2 | job 4 failed: out \\| of memory <i> | - |" in text and "| 0.2 | job 5 pending | - |" in text
    assert "1 whole blocks; 2 finished runs are in no whole block" in text and "+15.0" in text
    (effect, _) = rows_of(sweep / "effects.csv")
    assert (effect["axis"], effect["blocks"], effect["unpaired"]) == ("ktr.top_k", "1", "2")
    assert float(effect["effect"]) == pytest.approx(-0.15)


def test_the_page_and_plots_hold_the_same_and_escape_what_others_wrote(sweep):
    page = write_sweep(result_of(sweep, read_sweep(sweep), ["seed"])).read_text()
    assert "<script" not in page and "<i>" not in page.partition("Jobs</h2>")[2] and "&lt;b&gt;toy" in page
    assert "60.0 ± 10.0 (35.2 to 84.8)" in page and "out | of memory &lt;i&gt;" in page
    assert page.count('class="dots"') == 2 and page.count('<figure class="chart">') == 2
    plots = sorted(path.name for path in (sweep / "plots").iterdir())
    assert plots == ["accuracy.rl.svg", "accuracy.rl_by_ktr.top_k.svg"]
    for name in plots:
        svg = ElementTree.parse(sweep / "plots" / name).getroot()
        assert svg.tag == "{http://www.w3.org/2000/svg}svg" and svg.find("{*}style") is not None
        assert len(svg.findall("{*}g")) == 2
        text = (sweep / "plots" / name).read_text()
        assert "var(" not in text and "fill:#d55e00" in text and ".whisker {" in text


def test_a_search_is_drawn_as_a_dot_a_run(tmp_path):
    overrides = [
        [f"sft.learning_rate=0.00{digit}123456789", f"ktr={ktr}"] for digit, ktr in ((1, "none"), (2, "visual"))
    ]
    Sweep(tmp_path, "train.py", "local", {}, [], [SweepJob(number, own) for number, own in enumerate(overrides)]).save()
    for number, value in enumerate((0.25, 0.75)):
        trained_run(tmp_path / str(number), value)
    write_sweep(result_of(tmp_path, read_sweep(tmp_path), ["seed"]))
    names = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert names == ["accuracy.rl.svg", "accuracy.rl_by_sft.learning_rate.svg"]
    svg = ElementTree.parse(tmp_path / "plots" / names[1]).getroot()
    left, right = ((float(dot.get("cx")), float(dot.get("cy"))) for dot in svg.findall("{*}circle"))
    assert left[0] < right[0] and left[1] > right[1]
    text = (tmp_path / "sweep.md").read_text()
    assert "| 0.001123 | none | 1 of 1 | 25.0 |" in text and "No block has every value of ktr; 2 finished" in text


def test_a_run_that_was_finished_by_hand_counts_though_its_job_had_failed(sweep):
    (sweep / "4" / STATE).write_text(json.dumps({"finished": True}))
    (run,) = [run for run in read_sweep(sweep) if run.number == 4]
    assert run.finished and run.error == ""


def test_figures_are_chosen_by_name_and_a_wrong_one_is_refused(sweep):
    runs = read_sweep(sweep)
    result = result_of(sweep, runs, ["seed"], ["rl/reward", "accuracy.sft"])
    assert result.figures == ["rl/reward", "accuracy.sft"] and not result.share("rl/reward")
    with pytest.raises(ValueError, match="no finished job has a figure 'acuracy'; they have .*accuracy.rl"):
        result_of(sweep, runs, ["seed"], ["acuracy"])


def test_a_finished_run_without_the_figure_is_counted(sweep):
    (sweep / "0" / "metrics.jsonl").unlink()
    write_sweep(result_of(sweep, read_sweep(sweep), ["seed"], ["rl/reward"]))
    assert ", 1 without" in (sweep / "sweep.md").read_text()


def test_values_are_shown_as_a_person_would_write_them():
    found = settings_of_overrides(["+ktr.x=1", "name='a b'", "~logger", "stages=[sft,rl]", "a='b"])
    assert found == {"ktr.x": "1", "name": "a b", "~logger": "", "stages": "[sft,rl]", "a": "'b"}
    assert spread_text(spread([1.5]), share=False) == "1.5" and spread_text(None, share=True) == "-"
    assert spread_text(spread([0.01, 0.03]), share=True, signed=True) == "+2.0 (-10.7 to +14.7)"


def test_the_command_writes_prints_and_refuses_other_folders(sweep, tmp_path):
    command = [sys.executable, "-m", "ktr.reporting.sweep", str(sweep), "--figure", "accuracy.rl"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "6 jobs: 4 finished, 1 failed, 1 pending." in done.stdout
    assert done.stdout.splitlines()[-1] == str(sweep / "sweep.html")
    done = subprocess.run([*command[:-3], str(tmp_path)], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 1 and done.stderr.startswith(f"error: {tmp_path} is not a sweep's folder")
