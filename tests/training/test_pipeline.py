"""The main job through its config: every experiment, real rows about a real clip, and what a run leaves behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ktr.config.compose import CONF_DIR, compose
from ktr.config.overrides import quote
from ktr.config.schemas import EvaluateConfig, PredictConfig, TrainConfig
from ktr.config.validate import validate
from ktr.evaluation import entry, predict_entry
from ktr.training import pipeline

EXPERIMENTS = sorted(path.stem for path in (CONF_DIR / "experiment").glob("*.yaml"))
FIXTURES = Path(os.environ.get("KTR_FIXTURES", Path(__file__).resolve().parents[3] / "shared" / "fixtures"))
TIME_KEYS = {"step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second", "data/wait_share"}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """One output folder for the module, so that toy clips are rendered once."""
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture(scope="module")
def fixtures():
    if not FIXTURES.is_dir():
        pytest.skip(f"no real clip: {FIXTURES} is absent (set KTR_FIXTURES)")
    return FIXTURES


def train(outputs: Path, run: str, *overrides: str) -> Path:
    config = validate(compose("train", [*overrides, f"output_dir={quote(str(outputs))}"]), TrainConfig)
    return pipeline.run(config, outputs / run)


def real_rows(fixtures: Path) -> list[str]:
    rows = fixtures / "annotations" / "video_r1_cot_style.json"
    return ["data=video_r1", f"data.path={quote(str(rows))}", f"data.media_root={quote(str(fixtures / 'video'))}"]


def metrics_of(run: Path) -> list[dict]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIME_KEYS} for row in rows]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_takes_a_step_with_the_toy_model(outputs, experiment):
    path = train(
        outputs, experiment, f"experiment={experiment}", "model=toy", "data=toy", "debug=fast", "stages=[sft,rl,eval]"
    )
    stages = [row["stage"] for row in metrics_of(path.parent)]
    assert {"sft", "rl", "eval"} <= set(stages)


@pytest.fixture(scope="module")
def real_run(outputs, fixtures):
    """SFT, GRPO and evaluation on six rows about a real clip."""
    overrides = ["experiment=toy", *real_rows(fixtures), "debug=fast", "sft.max_steps=2", "trainer.max_steps=2"]
    return train(outputs, "real", *overrides).parent


def test_real_rows_go_through_all_stages(real_run):
    rows = metrics_of(real_run)
    assert [row["step"] for row in rows if row["stage"] == "sft" and "loss" in row] == [1, 2]
    reinforced = [row for row in rows if row["stage"] == "rl" and "loss" in row]
    assert [row["step"] for row in reinforced] == [1, 2]
    assert all(0 < row["key_tokens/kept/union"] < 1 for row in reinforced)
    summary = json.loads((real_run / "summary.json").read_text())
    assert set(summary["accuracy"]) == {"base", "sft", "rl"} and None not in summary["accuracy"].values()


def test_a_run_folder_says_what_ran(real_run):
    versions = json.loads((real_run / "versions.json").read_text())
    assert {"torch", "transformers", "trl"} <= set(versions["packages"])
    assert "max_steps: 2" in (real_run / "config.yaml").read_text()
    completions = [json.loads(line) for line in (real_run / "completions.jsonl").read_text().splitlines()]
    assert completions and all(len(row["frames"]) == 4 and "reply" in row for row in completions)
    page = (real_run / "report.html").read_text()
    assert "<script" not in page and "data:image/png" in page


def test_a_checkpoint_loads_alone_and_answers(real_run, fixtures, tmp_path):
    overrides = [
        f"model.path={quote(str(real_run / 'checkpoints' / 'rl'))}",
        f"video={quote(str(fixtures / 'video' / 'billiards.mp4'))}",
        "question='what colour is the table?'", "max_new_tokens=12", "tokens=true",
    ]  # fmt: skip
    printed = predict_entry.run(validate(compose("predict", overrides), PredictConfig), tmp_path)
    assert "answer" in printed and printed.endswith("tokens.html")
    assert "data:image/png" in (tmp_path / "tokens.html").read_text()


def test_a_checkpoint_is_evaluated_alone(real_run, fixtures, tmp_path):
    overrides = [
        f"model.path={quote(str(real_run / 'checkpoints' / 'sft'))}", *real_rows(fixtures), "data.sampling.fps=null",
        "data.sampling.nframes=4", "data.sampling.max_pixels=3136", "data.sampling.min_pixels=784",
        "data.max_prompt_tokens=1024", "eval.max_new_tokens=8", "eval.bootstrap=100",
    ]  # fmt: skip
    path = entry.run(validate(compose("evaluate", overrides), EvaluateConfig), tmp_path / "run")
    assert json.loads(path.read_text())["samples"]["rows"] == 6


def test_two_runs_of_one_seed_are_the_same(outputs):
    overrides = ["debug=fast", "trainer.max_steps=2", "eval.base=false", "eval.views=[full]"]
    first, second, other = (
        metrics_of(train(outputs, name, *overrides, f"seed={seed}").parent)
        for name, seed in (("seed1a", 1), ("seed1b", 1), ("seed2", 2))
    )
    assert first == second
    assert first != other


def test_rl_alone_starts_from_a_given_checkpoint(outputs, real_run):
    path = train(
        outputs, "rl_alone", "debug=fast", "stages=[rl]", f"model.path={quote(str(real_run / 'checkpoints' / 'sft'))}"
    )
    assert {row["stage"] for row in metrics_of(path.parent)} == {"rl"}


def test_sft_on_rows_without_rationales_names_the_row(outputs, fixtures):
    rows = fixtures / "annotations" / "video_r1_rl_style.json"
    overrides = ["data=video_r1", f"data.path={quote(str(rows))}", f"data.media_root={quote(str(fixtures / 'video'))}"]
    with pytest.raises(ValueError, match="row '1'"):
        train(outputs, "no_rationale", "debug=fast", *overrides)


REWATCH = ["experiment=rewatch_r1", "model=toy", "data=toy", "debug=fast", "stages=[rl]"]


def test_a_reward_that_needs_captions_is_refused_without_them(outputs, fixtures):
    overrides = ["debug=fast", *real_rows(fixtures), "reward=rewatch_r1", "stages=[rl]"]
    with pytest.raises(ValueError, match="the reward 'rewatch' needs the captions.*data.captions_path"):
        train(outputs, "no_captions", *overrides)
    assert not (outputs / "no_captions" / "checkpoints").exists()


def test_a_reward_that_needs_accuracies_is_refused_without_them(outputs):
    with pytest.raises(ValueError, match="'temporal'.*it needs a component named 'accuracy'"):
        train(outputs, "no_accuracy", "debug=fast", "reward=t_grpo", "~reward.components.accuracy", "stages=[rl]")


def test_an_argument_that_a_component_refuses_is_named_by_its_key(outputs):
    with pytest.raises(ValueError, match=r"reward\.components\.accuracy: unknown reward policy 'strict'"):
        train(outputs, "strict", "debug=fast", "reward.components.accuracy.policy=strict", "stages=[rl]")


def test_a_judges_key_that_is_not_set_is_found_before_a_model_is_loaded(outputs, monkeypatch):
    monkeypatch.delenv("KTR_TEST_KEY", raising=False)
    key = "reward.components.rewatch.judge.client.api_key_env=KTR_TEST_KEY"
    with pytest.raises(ValueError, match="export KTR_TEST_KEY"):
        train(outputs, "no_key", *REWATCH, key)
    assert not (outputs / "no_key" / "checkpoints").exists()


def test_rewatch_rows_learn_three_tasks_from_real_files(outputs, fixtures, tmp_path):
    """Questions and captions about one clip, the question with a re-watching trace."""
    known = (fixtures / "annotations" / "rewatch_qa_style.jsonl").read_text().splitlines()[-1]
    trace = "<action>look at 00:00</action><observation>a row of balls</observation>"
    rows = tmp_path / "cot.jsonl"
    rows.write_text(json.dumps(json.loads(known) | {"process": f"<think>{trace}</think>"}))
    captions = fixtures / "annotations" / "rewatch_caption_style.jsonl"
    path = train(
        outputs, "rewatch_sft", "experiment=rewatch_r1_sft", "model=toy", "model.toy.max_length=8192", "debug=fast",
        "data.max_prompt_tokens=4096", f"data.path={quote(str(rows))}", f"data.captions_path={quote(str(captions))}",
        f"data.media_root={quote(str(fixtures / 'video'))}", "stages=[sft]", "sft.max_steps=2", "sft.batch_size=3",
    )  # fmt: skip
    assert [row["step"] for row in metrics_of(path.parent) if "loss" in row] == [1, 2]


def test_rows_of_an_excluded_modality_are_named(outputs, fixtures):
    with pytest.raises(ValueError, match="row '1' is video and data.modality=image"):
        train(outputs, "modality", "debug=fast", *real_rows(fixtures), "data.modality=image")
