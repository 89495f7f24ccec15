"""A run that was cut off and goes on is the unbroken run: weights, optimizer, metrics and completions, bit for bit."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig
from resume_cases import Draws, train, weights
from trainer_cases import flat_reward, length_reward, make_rows, read_lines, real_rollout, without_times

from ktr.rewards.runner import RewardRunner
from ktr.training.checkpoints import checkpoints_in

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("video", "image", "text", "video", "text")
CHANGING = {"lr_scheduler": "cosine", "warmup_steps": 2, "weight_decay": 0.1, "max_grad_norm": 1.0}


@pytest.fixture(scope="module")
def checkpoint(checkpoints):
    return checkpoints["qwen2_5_vl"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def rows(root):
    return make_rows(root, KINDS)


def noisy_reward(completions, completion_ids, **columns):
    """Draws from Python's generator, as a reward of one's own may."""
    return [score + random.random() for score in length_reward(completions, completion_ids)]


def assert_same_run(root, broken, whole, tried):
    for name, found in weights(broken).items():
        assert torch.equal(found, weights(whole)[name]), name
    mine, other = broken.optimizer.state_dict()["state"], whole.optimizer.state_dict()["state"]
    assert all(torch.equal(mine[i][key], other[i][key]) for i in other for key in other[i])
    paths = [root / f"{tried}-{kind}" for kind in ("broken", "whole")]
    metrics = [without_times(read_lines(path / "metrics.jsonl")) for path in paths]
    assert metrics[0] == metrics[1]
    if (paths[1] / "completions.jsonl").exists():
        assert (paths[0] / "completions.jsonl").read_text() == (paths[1] / "completions.jsonl").read_text()


def compare(stage, tried, checkpoint, root, rows, breaks, **options):
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    kept = [Draws() for _ in range(len(breaks) + 2)]
    whole = train(stage, checkpoint, root, rows, f"{tried}-whole", callbacks=[kept[0]], **options)
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    for draws, after in zip(kept[1:], [*breaks, None], strict=True):
        broken = train(
            stage, checkpoint, root, rows, f"{tried}-broken", break_after=after, callbacks=[draws], **options
        )
        random.seed(after), np.random.seed(after), torch.manual_seed(7)
    assert_same_run(root, broken, whole, tried)
    last = kept[-1].drawn
    assert last == kept[0].drawn[-len(last) :]
    return broken, whole


@pytest.mark.parametrize("epochs", [1, 4])
def test_sft_of_twenty_steps_in_two_halves(checkpoint, root, rows, epochs):
    rows = rows * (80 // len(rows)) if epochs == 1 else rows * 4
    settings = {"max_steps": 20, "save_steps": 10, "batch_size": 4, "gradient_accumulation": 2, **CHANGING}
    compare("sft", f"sft{epochs}", checkpoint, root, rows, [10], trainer=settings)


def test_rl_of_twenty_steps_in_two_halves(checkpoint, root, rows):
    settings = {"max_steps": 20, "save_steps": 10, "groups_per_step": 1, "group_size": 2, **CHANGING}
    rewards = RewardRunner({"noise": (noisy_reward, 1.0)})
    options = {"rollout": real_rollout(checkpoint), "rewards": rewards, "trainer": settings}
    compare("rl", "rl", checkpoint, root, rows, [10], **options)


def test_records_between_logs_and_beyond_the_checkpoint(checkpoint, root, rows):
    """Broken twice, between checkpoints and between logs; some steps are taken again."""
    settings = {"max_steps": 9, "save_steps": 2, "logging_steps": 5, "groups_per_step": 2, "gradient_accumulation": 2}
    options = {"rollout": real_rollout(checkpoint), "rewards": flat_reward("row-0", "row-1"), "alarm_steps": 3}
    broken, _ = compare("rl", "records", checkpoint, root, rows, [3, 7], trainer=settings, **options)
    lines = read_lines(root / "records-broken" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 5, 9] and "train_loss" in lines[-1]
    steps = [line["step"] for line in read_lines(root / "records-broken" / "completions.jsonl")]
    assert sorted(set(steps)) == list(range(9)) and len(steps) == 9 * 2 * 3
    assert broken.reward_watch.alarm.streak("length") == 0


def test_constant_rewards_are_counted_over_the_break(checkpoint, root, rows):
    options = {"rewards": flat_reward(*(row.id for row in rows)), "trainer": {"max_steps": 4, "save_steps": 2}}
    broken, _ = compare("rl", "alarm", checkpoint, root, rows, [2], **options)
    assert broken.reward_watch.alarm.streak("length") == 4


def test_completions_are_used_up_before_a_checkpoint(checkpoint, root, rows):
    """A checkpoint due at step 3 waits for step 4, when both updates of a batch are done."""
    settings = {"max_steps": 8, "save_steps": 3, "updates_per_batch": 2, "save_total_limit": 9, **CHANGING}
    options = {"rollout": real_rollout(checkpoint), "trainer": settings}
    compare("rl", "updates", checkpoint, root, rows, [5], **options)
    assert [path.name for path in checkpoints_in(root / "updates-broken" / "steps")] == [
        "checkpoint-8", "checkpoint-6", "checkpoint-4",
    ]  # fmt: skip


def test_adapters(checkpoint, root, rows):
    options = {"peft_config": LoraConfig(r=2, target_modules=["q_proj", "v_proj"]), "rollout": real_rollout(checkpoint)}
    compare("rl", "lora", checkpoint, root, rows, [2], trainer={"max_steps": 4, "save_steps": 2}, **options)


@pytest.fixture(scope="module")
def of_two_ranks(checkpoint, root, rows):
    """Every scenario unbroken and cut off, by two processes."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(ROOT / "tests" / "resume_worker.py"), str(checkpoint), str(root),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_two_ranks_in_two_halves(root, of_two_ranks, stage):
    for rank in range(2):
        broken, whole = (torch.load(root / f"two-{stage}-{kind}-{rank}.pt") for kind in ("broken", "whole"))
        assert all(torch.equal(broken["weights"][name], value) for name, value in whole["weights"].items())
        assert broken["drawn"] == whole["drawn"][-len(broken["drawn"]) :]
    paths = [root / f"two-{stage}-{kind}" for kind in ("broken", "whole")]
    metrics = [without_times(read_lines(path / "metrics.jsonl")) for path in paths]
    assert metrics[0] == metrics[1] and metrics[0][-1]["step"] == 20
    if stage == "rl":
        assert (paths[0] / "completions.jsonl").read_text() == (paths[1] / "completions.jsonl").read_text()


def test_a_stage_with_all_its_steps_takes_no_other(checkpoint, root, rows):
    """Cut off after its last checkpoint, before its final line."""
    options = {"trainer": {"max_steps": 3, "save_steps": 1, "batch_size": 2}}
    whole = train("sft", checkpoint, root, rows, "done-whole", **options)
    train("sft", checkpoint, root, rows, "done-broken", **options)
    again = train("sft", checkpoint, root, rows, "done-broken", **options)
    assert again.state.global_step == 3
    assert_same_run(root, again, whole, "done")
