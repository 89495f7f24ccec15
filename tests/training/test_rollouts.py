"""New tries for groups without a spread, and rewards that fail: recorded, and fatal for all ranks together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rollout_cases import SeededEngine, prompts_of
from trainer_cases import make_rows, make_trainer, read_lines

from ktr.rewards.runner import RewardFailure, RewardRunner
from ktr.rollout.engine import SamplingSettings
from ktr.training.rollouts import GroupSampler

ROOT = Path(__file__).resolve().parents[2]


def flat_until(tries: dict[str, int]) -> RewardRunner:
    """Equal rewards for a prompt's completions up to its try of that number, then a spread."""

    def reward(completions, **columns):
        scores = []
        for reply in completions:
            name, attempt, number = reply.split("/")
            scores.append(float(number) if int(attempt) >= tries[name] else 1.0)
        return scores

    return RewardRunner({"mine": (reward, 1.0)})


def sampler_of(engine, rewards, **options):
    return GroupSampler(engine, rewards, SamplingSettings(4), num_completions=3, **options)


def test_flat_groups_are_sampled_again_and_others_are_left_alone():
    engine = SeededEngine()
    rollout = sampler_of(engine, flat_until({"a": 1, "b": 2, "c": 3}), resample_limit=3)(prompts_of("a", "b", "c"), 0)
    assert engine.asked == [["a", "b", "c"], ["b", "c"], ["c"]] and len(set(engine.seeds)) == 3
    assert rollout.tries_N == [1, 2, 3]
    assert [group.completions[2].text for group in rollout.sampled] == ["a/1/2", "b/2/2", "c/3/2"]
    assert rollout.table.total == rollout.table.by_component["mine"] == [0.0, 1.0, 2.0] * 3
    assert not rollout.advantages.zero_variance_N.any()


def test_tries_end_at_the_limit_and_the_step_keeps_its_groups():
    engine = SeededEngine()
    rollout = sampler_of(engine, flat_until({"a": 9, "b": 1}), resample_limit=2)(prompts_of("a", "b"), 0)
    assert engine.asked == [["a", "b"], ["a"], ["a"]]
    assert [group.prompt.row.id for group in rollout.sampled] == ["a", "b"]
    assert rollout.advantages.zero_variance_N.tolist() == [True, False] and rollout.tries_N == [3, 1]


def test_without_a_limit_nothing_is_sampled_again():
    engine = SeededEngine()
    sampler_of(engine, flat_until({"a": 9}))(prompts_of("a"), 0)
    assert engine.asked == [["a"]]


def test_errors_of_a_try_that_was_replaced_stay_on_record():
    def reward(completions, **columns):
        if any(reply.startswith("a/1") for reply in completions):
            raise RuntimeError("no verdict")
        return [float(reply[-1]) for reply in completions]

    rewards = RewardRunner({"mine": (reward, 1.0)}, max_error_share=0.9)
    rollout = sampler_of(SeededEngine(), rewards, resample_limit=1)(prompts_of("b", "a"), 7)
    assert rollout.table.total == [0.0, 1.0, 2.0] * 2 and rollout.table.errors == []
    assert [error["reply"] for error in rollout.errors] == ["a/1/0", "a/1/1", "a/1/2"]
    trace = rollout.errors[0].pop("trace")
    assert trace.endswith("RuntimeError: no verdict\n")
    assert rollout.errors[0] == {
        "step": 7, "id": "a", "component": "mine", "error": "RuntimeError: no verdict", "reply": "a/1/0",
    }  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    root = tmp_path_factory.mktemp("rows")
    return root, make_rows(root, ["text", "text"])


def test_a_run_masks_what_stays_flat_and_logs_the_shares(checkpoints, rows):
    def reward(completions, completion_ids, id, **columns):
        return [1.0 if name == "row-0" else float(sum(ids)) for ids, name in zip(completion_ids, id, strict=True)]

    options = {"rewards": RewardRunner({"mine": (reward, 1.0)}), "trainer": {"max_steps": 1}}
    trainer = make_trainer(checkpoints["qwen2_5_vl"], *rows, zero_variance="resample", resample_limit=2, **options)
    trainer.train()
    first = read_lines(trainer.folder.metrics)[0]
    assert first["groups/resampled"] == first["groups/zero_variance"] == 0.5
    assert trainer.engine.calls == 3
    assert [[group.prompt.row.id for group in batch.groups] for batch in trainer._buffered_inputs] == [["row-1"]]


def test_a_reward_that_raised_is_a_line_of_the_run_folder(checkpoints, rows):
    def reward(completions, id, **columns):
        if "row-1" in id:
            raise RuntimeError("no verdict")
        return [float(i) for i in range(len(completions))]

    rewards = RewardRunner({"mine": (reward, 1.0)}, max_error_share=0.5)
    trainer = make_trainer(checkpoints["qwen2_5_vl"], *rows, rewards=rewards, trainer={"max_steps": 1})
    trainer.train()
    lines = read_lines(trainer.folder.path / "reward_errors.jsonl")
    assert {(line["id"], line["component"], line["step"]) for line in lines} == {("row-1", "mine", 0)}
    assert len(lines) == 3 and all(line["error"] == "RuntimeError: no verdict" for line in lines)


def test_too_many_failures_end_the_run(checkpoints, rows):
    def broken(completions, **columns):
        raise RuntimeError("no verdict")

    trainer = make_trainer(checkpoints["qwen2_5_vl"], *rows, rewards=RewardRunner({"mine": (broken, 1.0)}))
    with pytest.raises(RewardFailure, match="mine on row row-.: RuntimeError: no verdict"):
        trainer.train()
    lines = read_lines(trainer.folder.path / "reward_errors.jsonl")
    assert len(lines) == 6 and all("in broken\n" in line["trace"] and line["reply"] for line in lines)


def test_a_failure_on_one_rank_ends_all(tmp_path):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(ROOT / "tests" / "reward_failure_worker.py"), str(tmp_path),
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-4000:]
    endings = [(tmp_path / f"rank-{rank}.txt").read_text(encoding="utf-8") for rank in range(2)]
    assert endings[0] == endings[1] and "only here" in endings[0]
