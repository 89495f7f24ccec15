"""Whole runs: what they leave in the run folder, that a seed decides them, and what they do about unreadable rows."""

from __future__ import annotations

import math

import pytest
import torch
from trainer_cases import (
    PLAIN,
    ScriptedRollout,
    flat_reward,
    length_reward,
    make_rows,
    make_trainer,
    read_lines,
    real_rollout,
    sample_step,
    without_times,
)

from ktr.attribution.settings import KeyTokenSettings
from ktr.data.media import MediaError
from ktr.data.row_sampler import ReadableRows
from ktr.rewards.runner import RewardRunner
from ktr.training.callbacks import StopOnBrokenLoss


@pytest.fixture(scope="module")
def checkpoint(checkpoints):
    return checkpoints["qwen2_5_vl"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    root = tmp_path_factory.mktemp("rows")
    return root, make_rows(root)


def run(checkpoint, rows, **options):
    trainer = make_trainer(checkpoint, *rows, **options)
    trainer.train()
    return trainer, read_lines(trainer.folder.metrics), read_lines(trainer.folder.completions)


def test_a_seed_decides_the_metrics(checkpoint, rows):
    options = {"rollout": real_rollout(checkpoint), "trainer": {"max_steps": 3}}
    first = run(checkpoint, rows, **options)
    again = run(checkpoint, rows, **options)
    other = run(checkpoint, rows, **options, seed=1)
    assert first[0].folder.path != again[0].folder.path
    assert without_times(first[1]) == without_times(again[1]) and first[2] == again[2]
    assert [row["reply"] for row in first[2]] != [row["reply"] for row in other[2]]


def test_sampling_differs_by_step_and_by_seed(checkpoint, rows):
    def replies(seed):
        options = {"rollout": real_rollout(checkpoint), "trainer": {"groups_per_step": 1, "learning_rate": 1e-12}}
        _, _, kept = run(checkpoint, (rows[0], rows[1][:1]), seed=seed, **options)
        return [tuple(row["reply"] for row in kept if row["step"] == step) for step in (0, 1)]

    assert len({*replies(0), *replies(1)}) == 4


def test_metrics_of_a_run(checkpoint, rows):
    _, metrics, _ = run(checkpoint, rows, trainer={"groups_per_step": 4})
    first, second, last = metrics
    assert {line["stage"] for line in metrics} == {"rl"} and [line["step"] for line in metrics] == [1, 2, 2]
    lengths = [len(ScriptedRollout.completion(row.id, i).token_ids) for row in rows[1] for i in range(3)]
    rewards = [sum(ScriptedRollout.completion(row.id, i).token_ids) % 7 for row in rows[1] for i in range(3)]
    assert first["completions/mean_length"] == pytest.approx(sum(lengths) / 12)
    assert first["reward"] == first["rewards/length/mean"] == pytest.approx(sum(rewards) / 12)
    assert first["rewards/length/video/mean"] == pytest.approx((sum(rewards[:3]) + sum(rewards[9:])) / 6)
    assert first["rewards/length/image/mean"] == pytest.approx(sum(rewards[3:6]) / 3)
    assert first["rewards/length/free-form/mean"] == first["reward"]
    assert first["completions/truncated"] == first["rewards/abstained"] == first["rewards/errors"] == 0
    for name in ("loss", "grad_norm", "kl", "entropy", "clip_ratio/region_mean", "key_tokens/kept/union", "reward_std"):
        assert math.isfinite(first[name]), name
    assert first["kl"] == pytest.approx(0, abs=1e-6) and second["kl"] > 1e-6
    # key-token shares are over prompts that have the signal, of all tokens of the completion
    kept = sum(math.ceil(0.4 * n) for n in lengths) / sum(lengths)
    assert first["key_tokens/kept/entropy"] == pytest.approx(kept)
    assert first["key_tokens/kept/key"] < 1 and first["key_tokens/kept/plain"] == 0
    assert "train_loss" in last


def test_plain_runs_keep_every_token(checkpoint, rows):
    _, metrics, _ = run(checkpoint, rows, key_tokens=PLAIN)
    assert metrics[0]["key_tokens/kept/key"] == metrics[0]["key_tokens/kept/plain"] == 1


def test_completions_are_kept_with_what_was_seen_and_earned(checkpoint, rows):
    _, _, kept = run(checkpoint, rows, trainer={"max_steps": 2}, log_completions_every=2)
    assert len(kept) == 2 * 3 and {row["step"] for row in kept} == {0}
    for start in (0, 3):
        group = kept[start : start + 3]
        assert len({row["id"] for row in group}) == 1
        expected = [ScriptedRollout.completion(group[0]["id"], i) for i in range(3)]
        scores = torch.tensor(length_reward([], [list(reply.token_ids) for reply in expected]))
        advantages = (scores - scores.mean()) / (scores.std() + 1e-4)
        for row, reply, score, advantage in zip(group, expected, scores.tolist(), advantages.tolist(), strict=True):
            assert row["reply"] == reply.text and row["tokens"] == len(reply.token_ids) and not row["truncated"]
            assert row["reward"] == row["rewards"]["length"] == score
            assert row["advantage"] == pytest.approx(advantage, abs=1e-5)
            assert row["question"] == "what moved first ?" and row["answer"] == "red"
            shown = {"row-0": 4, "row-3": 4, "row-1": 1}.get(row["id"])
            assert row["frames"] is None if shown is None else len(row["frames"]) == shown


def abstaining(completions, completion_ids, **columns):
    return [
        None if sum(ids) % 3 == 0 else score
        for ids, score in zip(completion_ids, length_reward([], completion_ids), strict=True)
    ]


def test_a_completion_without_a_score_has_no_advantage_and_leaves_the_baseline(checkpoint, rows):
    _, metrics, kept = run(
        checkpoint,
        rows,
        rewards=RewardRunner({"length": (abstaining, 2.0)}),
        trainer={"groups_per_step": 4, "max_steps": 1},
    )
    silent = [row for row in kept if row["reward"] is None]
    assert silent and all(row["advantage"] == 0 and row["rewards"] == {"length": None} for row in silent)
    assert metrics[0]["rewards/abstained"] == pytest.approx(len(silent) / len(kept))
    scored = [row["reward"] for row in kept if row["reward"] is not None]
    assert metrics[0]["reward"] == pytest.approx(sum(scored) / len(scored))
    for name in {row["id"] for row in kept}:
        group = [row for row in kept if row["id"] == name]
        assert sum(row["advantage"] for row in group) == pytest.approx(0, abs=1e-5)


def test_a_reward_that_failed_is_counted_and_abstains(checkpoint, rows):
    def broken(completions, id, **columns):
        if "row-1" in id:
            raise RuntimeError("no verdict")
        return [float(len(text)) for text in completions]

    rewards = RewardRunner({"broken": (broken, 1.0), "length": (length_reward, 1.0)}, max_error_share=0.5)
    _, metrics, kept = run(checkpoint, rows, rewards=rewards, trainer={"groups_per_step": 4, "max_steps": 1})
    assert metrics[0]["rewards/errors"] == pytest.approx(3 / 12) and metrics[0]["rewards/abstained"] == 0
    assert all((row["rewards"]["broken"] is None) == (row["id"] == "row-1") for row in kept)


def test_rewards_see_the_columns_of_each_row(checkpoint, rows):
    seen = {}

    def look(prompts, completions, **columns):
        seen.update(columns, prompts=prompts, completions=completions)
        return [float(i) for i in range(len(completions))]

    trainer = make_trainer(checkpoint, rows[0], rows[1], rewards=RewardRunner({"look": (look, 1.0)}))
    sample_step(trainer, rows[1][:2])
    assert seen["id"] == ["row-0"] * 3 + ["row-1"] * 3 and seen["modality"] == ["video"] * 3 + ["image"] * 3
    assert seen["group"] == [0, 0, 0, 1, 1, 1] and seen["prompts"] == ["what moved first ?"] * 6
    assert seen["completion_ids"][4] == list(ScriptedRollout.completion("row-1", 1).token_ids)
    assert seen["completions"][4] == ScriptedRollout.completion("row-1", 1).text
    assert seen["options"] == [[]] * 6 and seen["answer"] == ["red"] * 6 and seen["truncated"] == [False] * 6


def test_one_group_of_equal_rewards_is_reported(checkpoint, rows):
    _, metrics, _ = run(checkpoint, rows, rewards=flat_reward("row-0"), trainer={"groups_per_step": 4, "max_steps": 1})
    assert metrics[0]["groups/zero_variance"] == 0.25


def test_a_broken_loss_ends_the_run_and_is_on_record(checkpoint, rows):
    trainer = make_trainer(checkpoint, *rows, key_tokens=PLAIN, callbacks=[StopOnBrokenLoss()])
    with torch.no_grad():
        trainer.model.lm_head.weight[:] = float("nan")
    with pytest.raises(ValueError, match="the loss is nan at step 1"):
        trainer.train()
    assert read_lines(trainer.folder.metrics)[0]["loss"] is None


@pytest.fixture
def broken_rows(tmp_path):
    """Five rows, of which two cannot be read."""
    rows = make_rows(tmp_path, ["video", "image", "video", "text", "video"])
    (tmp_path / "2.mp4").write_bytes((tmp_path / "2.mp4").read_bytes()[:400])
    (tmp_path / "1.png").unlink()
    return tmp_path, rows


def test_an_unreadable_row_stops_the_run(checkpoint, broken_rows):
    with pytest.raises(MediaError, match="1.png|2.mp4"):
        run(checkpoint, broken_rows, trainer={"max_steps": 5, "groups_per_step": 1})


def test_an_unreadable_row_is_skipped_and_listed_and_never_becomes_text(checkpoint, broken_rows):
    skipped = []

    def readable(encoder):
        return ReadableRows(broken_rows[1], encoder.load_frames, lambda row, error: skipped.append((row.id, error)))

    trainer, metrics, kept = run(
        checkpoint, broken_rows, readable=readable, trainer={"max_steps": 5, "groups_per_step": 1}
    )
    assert trainer.state.global_step == 5 and metrics[-1]["step"] == 5
    assert sorted(name for name, _ in skipped) == ["row-1", "row-2"] and trainer.readable.num_skipped == 2
    assert all(isinstance(error, MediaError) for _, error in skipped)
    assert {row["id"] for row in kept} == {"row-0", "row-3", "row-4"} and len(kept) == 5 * 3
    assert all((row["frames"] is None) == (row["id"] == "row-3") for row in kept)


def test_key_tokens_of_every_signal_alone(checkpoint, rows):
    for signal in ("entropy", "visual", "temporal"):
        _, metrics, _ = run(
            checkpoint,
            rows,
            key_tokens=KeyTokenSettings(signals=(signal,)),
            trainer={"groups_per_step": 4, "max_steps": 1},
        )
        assert 0 < metrics[0][f"key_tokens/kept/{signal}"] < 0.5
        # prompts that lack the signal train plainly: one text of four, and for time one image more
        assert (metrics[0]["key_tokens/kept/plain"] > 0) == (signal != "entropy")
