from __future__ import annotations

import logging

from trainer_cases import make_rows, make_trainer, read_lines

from ktr.rewards.runner import RewardRunner, RewardTable
from ktr.training.reward_watch import RewardWatch


def table(**scores) -> RewardTable:
    return RewardTable([0.0] * 2, scores)


def test_a_constant_reward_is_warned_about_once_and_counted(caplog):
    watch = RewardWatch(2)
    counted = [watch(table(format=[1.0, 1.0], accuracy=[0.0, 1.0])) for _ in range(3)]
    assert [step["rewards/format/constant_steps"] for step in counted] == [1, 2, 3]
    assert [step["rewards/accuracy/constant_steps"] for step in counted] == [0, 0, 0]
    assert [record.getMessage() for record in caplog.records] == [
        "reward format was 1 on every completion for 2 steps: it teaches nothing; look at completions.jsonl"
    ]
    assert watch(table(format=[1.0, 0.0], accuracy=[0.0, 1.0]))["rewards/format/constant_steps"] == 0


def test_a_silent_reward_is_warned_about_once(caplog):
    watch = RewardWatch(50)
    for _ in range(2):
        watch(table(judge=[None, None]))
    assert [record.getMessage() for record in caplog.records] == [
        "reward judge gave no score to any completion of a step"
    ]


def test_only_the_main_process_speaks(caplog):
    RewardWatch(1, is_main=False)(table(format=[1.0, 1.0], judge=[None, None]))
    assert not caplog.records


def test_a_run_warns_and_logs(checkpoints, tmp_path, caplog):
    def always(completions, **columns):
        return [1.0 for _ in completions]

    trainer = make_trainer(
        checkpoints["qwen2_5_vl"], tmp_path, make_rows(tmp_path, ["text"] * 2), alarm_steps=2,
        rewards=RewardRunner({"easy": (always, 1.0)}),
    )  # fmt: skip
    with caplog.at_level(logging.WARNING):
        trainer.train()
    assert [line["rewards/easy/constant_steps"] for line in read_lines(trainer.folder.metrics)[:2]] == [1, 2]
    assert "reward easy was 1 on every completion for 2 steps" in caplog.text
