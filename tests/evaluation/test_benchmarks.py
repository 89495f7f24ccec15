"""Every benchmark of conf/eval, on real rows where they are at hand: import, prompt, perfect and empty replies."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from ktr.config.compose import CONF_DIR, SCHEMAS, compose
from ktr.config.overrides import quote
from ktr.config.schema_eval import METRICS as METRIC_NAMES
from ktr.config.schema_eval import VIEWS as VIEW_NAMES
from ktr.config.schema_eval import EvalConfig
from ktr.config.validate import check_files, validate
from ktr.data.prompts import PromptTemplate
from ktr.evaluation.benchmark_run import asked_of
from ktr.evaluation.benchmark_summary import benchmark_summary
from ktr.evaluation.entry import run
from ktr.evaluation.official import METRICS
from ktr.evaluation.replay import score_replies
from ktr.evaluation.views import VIEWS

FIXTURES = Path(os.environ.get("KTR_FIXTURES", Path(__file__).resolve().parents[2].parent / "shared" / "fixtures"))
ROWS = FIXTURES / "benchmarks"
NAMES = sorted(file.stem for file in (CONF_DIR / "eval").glob("*.yaml") if file.stem != "held_out")
SUITES = sorted(file.stem for file in (CONF_DIR / "eval" / "suite").glob("*.yaml"))

# Rows in the published form of the benchmarks whose rows are not among the fixtures.
MADE = {
    "tempcompass.json": [
        {"problem_id": 1, "problem": "What is the man doing?", "data_type": "video", "problem_type": "multiple choice",
         "options": ["A. running", "B. walking"], "solution": "<answer>A</answer>", "path": "a.mp4",
         "dim": "action", "task_type": "multi-choice"},
        {"problem_id": 2, "problem": "Is the ball rising?", "data_type": "video", "problem_type": "yes/no",
         "options": [], "solution": "<answer>No</answer>", "path": "a.mp4", "dim": "direction",
         "task_type": "yes_no"},
    ],
    "cg_av_counting.json": [
        {"problem_id": 1, "problem": "How often is the bell rung?", "data_type": "video", "problem_type": "REC",
         "options": [], "solution": "<answer>12</answer>", "path": "a.mp4", "target_type": "event"},
    ],
}  # fmt: skip


class AgreeingJudge:
    def same_answer(self, cases):
        return [True for _ in cases]


@cache
def composed(name: str) -> EvalConfig:
    return validate(compose("evaluate", [f"eval={name}", "model.path=/checkpoint"]), SCHEMAS["evaluate"]).eval


def settings_of(name: str, root: Path) -> EvalConfig:
    return dataclasses.replace(composed(name), root=str(root))


def rows_root(name: str, tmp_path: Path) -> Path:
    file = Path(settings_of(name, tmp_path).rows)
    if file.name in MADE:
        (tmp_path / file.name).write_text(json.dumps(MADE[file.name]))
        return tmp_path
    if not (ROWS / file.name).is_file():
        pytest.skip(f"the fixture rows {file.name} are not here")
    return ROWS


def test_all_benchmarks_have_a_config():
    wanted = [
        "video_holmes",
        "videommmu",
        "mmvu",
        "videomme",
        "tempcompass",
        "mvbench",
        "vsibench",
        "longvideobench",
        "lvbench",
        "mlvu",
        "vcrbench",
        "minerva",
        "longvideo_reason",
        "motionbench",
        "ovobench",
        "videomathqa",
        "videoreasonbench",
        "charades_sta",
        "livesports3k",
        "stvg",
        "cg_av_counting",
    ]
    assert set(wanted) <= set(NAMES)
    assert {"all", "rewatch_r1", "video_r1"} <= set(SUITES)


@pytest.mark.parametrize("name", NAMES)
def test_rows_import_render_and_score_by_the_published_metric(name, tmp_path):
    settings = settings_of(name, rows_root(name, tmp_path))
    asked = asked_of(settings)
    assert asked.rows
    for prompt in ("think", "direct", "rewatch"):
        template = PromptTemplate.load(prompt)
        for row in asked.rows:
            text = template.render(row, duration=61.0)
            assert row.question.strip() in text
            assert all(option in text for option in row.options)
    perfect = {row.id: [f"<think>I looked.</think>\n<answer>{row.answer}</answer>"] for row in asked.rows}
    empty = {row.id: [""] for row in asked.rows}
    for replies, score in ((perfect, 1.0), (empty, 0.0)):
        records = score_replies(asked.rows, replies, scorer=asked.scorer, judge=AgreeingJudge(), facets=asked.facets)
        summary = benchmark_summary({"full": records}, metric=settings.metric, resamples=100)
        headline = summary["figures"][summary["headline"]]
        assert headline["interval"]["mean"] == pytest.approx(score), headline
        assert [record.accuracy for record in records] == [score] * len(records)
        assert summary["samples"]["answered"] == (len(records) if score else 0)
        assert summary["samples"]["no_answer"] == (0 if score else len(records))


@pytest.mark.parametrize("name", NAMES)
def test_a_bare_answer_without_tags_is_read(name, tmp_path):
    asked = asked_of(settings_of(name, rows_root(name, tmp_path)))
    replies = {row.id: [row.answer] for row in asked.rows}
    records = score_replies(asked.rows, replies, scorer=asked.scorer, judge=AgreeingJudge())
    assert {record.accuracy for record in records} == {1.0}
    assert {record.format for record in records} == {0.0}


@pytest.mark.parametrize("name", NAMES)
def test_every_config_cites_its_source(name):
    comment = [line for line in (CONF_DIR / "eval" / f"{name}.yaml").read_text().splitlines() if line.startswith("#")]
    assert sum("arXiv" in line for line in comment) >= 2, "the benchmark, and where its settings are published"


def test_rows_only_a_judge_can_score_wait_for_one(tmp_path):
    settings = settings_of("videoreasonbench", rows_root("videoreasonbench", tmp_path))
    asked = asked_of(settings)
    records = score_replies(asked.rows, {row.id: ["None"] for row in asked.rows}, scorer=asked.scorer)
    assert {record.accuracy for record in records} == {None}
    assert benchmark_summary({"full": records})["samples"]["unjudged"] == len(records)


def test_video_mme_is_shown_by_length(tmp_path):
    settings = settings_of("videomme", rows_root("videomme", tmp_path))
    asked = asked_of(settings)
    records = score_replies(
        asked.rows, {row.id: [row.answer] for row in asked.rows}, scorer=asked.scorer, facets=asked.facets
    )
    assert set(benchmark_summary({"full": records})["by_facet"]["length"]) == {"short", "medium", "long"}


@pytest.mark.parametrize("suite", SUITES)
def test_suites_hold_benchmarks_as_their_files_say(suite, tmp_path):
    settings = settings_of(f"suite/{suite}", tmp_path)
    assert len(settings.members) > 1
    for name, member in settings.members.items():
        alone = settings_of(name, tmp_path)
        assert (member.rows, member.metric, member.facets) == (alone.rows, alone.metric, alone.facets)
        if suite == "rewatch_r1":
            assert (member.prompt, member.max_new_tokens, member.frames.max_frames) == ("rewatch", 4096, 192)
        else:
            assert member == alone


def test_a_suite_gives_its_run_settings_to_all():
    config = validate(
        compose(
            "evaluate",
            ["eval=suite/grounding", "model.path=/c", "eval.limit=3", "eval.benchmarks.stvg.frames.nframes=8",
             "+eval.shared.max_new_tokens=7"],
        ),
        SCHEMAS["evaluate"],
    )  # fmt: skip
    members = config.eval.members
    assert {member.limit for member in members.values()} == {3}
    assert {member.max_new_tokens for member in members.values()} == {7}
    assert (members["stvg"].frames.nframes, members["charades_sta"].frames.nframes) == (8, 32)


def test_names_in_the_schema_are_those_of_the_code():
    assert set(METRIC_NAMES) == set(METRICS)
    assert tuple(VIEW_NAMES) == VIEWS


def test_a_suite_is_scored_from_given_replies_in_one_run(tmp_path):
    replies = tmp_path / "replies.jsonl"
    (tmp_path / "tempcompass.json").write_text(json.dumps(MADE["tempcompass.json"]))
    (tmp_path / "mvbench.json").write_text(json.dumps(MADE["tempcompass.json"][:1]))
    replies.write_text('{"id": 1, "reply": "A. running"}\n{"id": "2", "reply": "Yes"}\n')
    suite = "{tempcompass: {rows: tempcompass.json, facets: {aspect: dim}}, mvbench: {rows: mvbench.json}}"
    config = validate(
        compose(
            "evaluate",
            [f"eval.root={quote(str(tmp_path))}", "eval.engine=replay", f"eval.replies={quote(str(replies))}",
             f"+eval.benchmarks={suite}"],
        ),
        SCHEMAS["evaluate"],
    )  # fmt: skip
    check_files(config)
    summary = json.loads(run(config, tmp_path / "run").read_text())
    assert summary["model"] is None
    assert summary["benchmarks"]["tempcompass"]["accuracy"]["mean"] == 0.5
    assert summary["benchmarks"]["tempcompass"]["by_facet"]["aspect"]["direction"]["accuracy"]["mean"] == 0.0
    assert summary["benchmarks"]["mvbench"]["accuracy"]["mean"] == 1.0
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"results.md", "results.csv", "report.html", "summary.json", "config.yaml", "records"} <= names


def test_two_processes_never_write_one_run(tmp_path):
    (tmp_path / "tempcompass.json").write_text(json.dumps(MADE["tempcompass.json"]))
    (tmp_path / "replies.jsonl").write_text('{"id": 1, "reply": "A. running"}\n{"id": "2", "reply": "Yes"}\n')
    root = quote(str(tmp_path))
    config = validate(
        compose("evaluate", ["eval=tempcompass", "eval.engine=replay", f"eval.root={root}",
                             f"eval.replies={quote(str(tmp_path / 'replies.jsonl'))}"]),
        SCHEMAS["evaluate"],
    )  # fmt: skip
    script = (
        "import sys, time; from pathlib import Path; from ktr.training.run_folder import RunFolder; "
        "folder = RunFolder(Path(sys.argv[1])); folder.lock(); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match="another process is at work"):
            run(config, tmp_path / "run")
        other.kill()
    assert run(config, tmp_path / "run").is_file()
