"""T-GRPO's comparison: what is asked on shuffled frames, what it earns, and that nothing learns from it."""

from __future__ import annotations

import pytest
import torch
from trainer_cases import (
    PLAIN,
    assert_same_gradients,
    make_encoder,
    make_rows,
    make_trainer,
    read_lines,
    run_step,
    sample_step,
)

from ktr.data.media import FrameSampling
from ktr.models.loading import load_model
from ktr.rewards.components import AccuracyReward
from ktr.rewards.runner import RewardRunner
from ktr.rewards.temporal import TemporalReward
from ktr.rollout.engine import Completion
from ktr.training.shuffled_rollouts import ShuffledRollouts, wants_shuffled

RIGHT, WRONG = "<answer>red</answer>", "<answer>blue</answer>"
FOUR = {"groups_per_step": 4, "group_size": 4}


class OrderedEngine:
    """Is right, in the first `ordered` completions of a group, on frames in order, and in `shuffled` on others."""

    def __init__(self, ordered: int = 2, shuffled: int = 0) -> None:
        self.ordered, self.shuffled = ordered, shuffled
        self.asked = []
        self.own_digests = {}

    def __call__(self, model):
        return self

    def generate(self, prompts, num_completions, settings, seed, progress=False):
        self.asked.append((prompts, num_completions, seed))
        return [[self.completion(prompt, i) for i in range(num_completions)] for prompt in prompts]

    def completion(self, prompt, number):
        in_order = prompt.frames is None or prompt.frames.digest == self.own_digests[prompt.row.id]
        is_right = number < (self.ordered if in_order else self.shuffled)
        return Completion((20 + number, 30), RIGHT if is_right else WRONG, None, False)


def t_grpo(**temporal):
    return RewardRunner({"accuracy": (AccuracyReward(), 1.0), "temporal": (TemporalReward(**temporal), 1.0)})


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    root = tmp_path_factory.mktemp("rows")
    return root, make_rows(root)


def trainer_of(checkpoints, rows, engine, rewards=None, **options):
    trainer = make_trainer(
        checkpoints["qwen2_5_vl"], *rows, rollout=engine, rewards=rewards or t_grpo(), trainer=FOUR,
        key_tokens=PLAIN, **options,
    )  # fmt: skip
    load = trainer.data_collator.encoder.load_frames
    engine.own_digests = {row.id: load(row).digest for row in rows[1] if row.media is not None}
    return trainer


def order_of(shuffled, own):
    """For each shuffled frame, the place of the same pixels in the own video."""
    known = list(own.frames.pixels_T3HW)
    return [next(i for i, one in enumerate(known) if torch.equal(one, new)) for new in shuffled.frames.pixels_T3HW]


def scores_of(trainer, rows):
    """Each group's rewards by component, by row id, and the step's metrics."""
    trainer._metrics["train"].clear()
    rollout = trainer.group_sampler([trainer.data_collator.encoder.encode(row) for row in rows[1]], 0)
    trainer._log_rollout(rollout, 0)
    metrics = {name: mean for name, (mean,) in trainer._metrics["train"].items()}
    temporal = rollout.table.by_component["temporal"]
    return {row.id: temporal[4 * i : 4 * i + 4] for i, row in enumerate(rows[1])}, metrics


def test_only_videos_are_asked_again_with_half_a_group_on_their_own_frames_in_another_order(checkpoints, rows):
    engine = OrderedEngine()
    trainer = trainer_of(checkpoints, rows, engine)
    sample_step(trainer, rows[1])
    (shuffled, half, seed), (ordered, whole, other_seed) = engine.asked
    assert (half, whole) == (2, 4) and seed != other_seed
    assert [prompt.row.id for prompt in shuffled] == ["row-0", "row-3"]
    for prompt in shuffled:
        own = next(known for known in ordered if known.row.id == prompt.row.id)
        order = order_of(prompt, own)
        assert sorted(order) == [0, 1, 2, 3] != order
        assert torch.equal(prompt.position_ids_3P, own.position_ids_3P)
        assert not torch.equal(prompt.pixel_values_ND, own.pixel_values_ND)


def test_the_order_is_decided_by_seed_step_and_row_and_is_never_the_own_one(checkpoints, rows):
    encoder = make_encoder(load_model(checkpoints["qwen2_5_vl"]), rows[0])
    prompt = encoder.encode(rows[1][0])

    def order(seed, step):
        shuffled = ShuffledRollouts(encoder, t_grpo(), num_completions=1, seed=seed).shuffled(prompt, step)
        return tuple(order_of(shuffled, prompt))

    orders = [order(0, step) for step in range(40)]
    assert orders == [order(0, step) for step in range(40)]
    assert len(set(orders)) > 5 and (0, 1, 2, 3) not in orders
    assert orders != [order(1, step) for step in range(40)]


def test_images_texts_and_videos_of_one_patch_have_no_shuffled_frames(checkpoints, rows):
    encoder = make_encoder(load_model(checkpoints["qwen2_5_vl"]), rows[0])
    encoder.sampling = FrameSampling(nframes=2)
    comparison = ShuffledRollouts(encoder, t_grpo(), num_completions=1, seed=0)
    assert [comparison.shuffled(encoder.encode(row), 0) for row in rows[1]] == [None] * 4
    engine = OrderedEngine()
    prompts = [encoder.encode(row) for row in rows[1]]
    assert comparison.accuracies(engine, prompts, None, 0, 0, []) == [None] * 4 and not engine.asked


def test_right_answers_are_paid_where_order_helps(checkpoints, rows):
    found, metrics = scores_of(trainer_of(checkpoints, rows, OrderedEngine(ordered=2, shuffled=1)), rows)
    nothing = [0.0] * 4
    # p = 2/4 and q = 1/2: p >= 0.8 q
    assert found == {"row-0": [0.3, 0.3, 0.0, 0.0], "row-1": nothing, "row-2": nothing, "row-3": [0.3, 0.3, 0.0, 0.0]}
    assert metrics["temporal/accuracy"] == metrics["temporal/shuffled_accuracy"] == 0.5
    assert metrics["temporal/paid"] == 1.0


def test_nothing_is_paid_where_shuffled_frames_do_better(checkpoints, rows):
    found, metrics = scores_of(trainer_of(checkpoints, rows, OrderedEngine(ordered=1, shuffled=1)), rows)
    # p = 1/4 and q = 1/2
    assert set(map(tuple, found.values())) == {(0.0,) * 4}
    temporal = [metrics[f"temporal/{name}"] for name in ("paid", "accuracy", "shuffled_accuracy")]
    assert temporal == [0.0, 0.25, 0.5]
    found, metrics = scores_of(trainer_of(checkpoints, rows, OrderedEngine(1, 1), t_grpo(mu=0.5, alpha=0.7)), rows)
    assert found["row-0"] == [0.7, 0.0, 0.0, 0.0] and metrics["temporal/paid"] == 1.0


def test_shuffled_completions_carry_no_loss(checkpoints, rows):
    """The same gradients as from the same rewards without any comparison."""
    compared = trainer_of(checkpoints, rows, OrderedEngine())
    batches = sample_step(compared, rows[1])
    assert [len(group.completions) for batch in batches for group in batch.groups] == [4] * 4
    loss, gradients = run_step(compared, batches)

    def same_rewards(completions, modality, **columns):
        bonus = {"video": 1.3, "image": 1.0, "text": 1.0}
        return [bonus[kind] if reply == RIGHT else 0.0 for reply, kind in zip(completions, modality, strict=True)]

    engine = OrderedEngine()
    plain = trainer_of(checkpoints, rows, engine, RewardRunner({"same": (same_rewards, 1.0)}))
    expected, expected_gradients = run_step(plain, sample_step(plain, rows[1]))
    assert len(engine.asked) == 1
    assert loss == pytest.approx(expected, rel=1e-5)
    assert_same_gradients(gradients, expected_gradients)


def test_the_comparison_is_by_the_component_accuracy_and_is_refused_without_it():
    with pytest.raises(ValueError, match="'temporal'.*named 'accuracy', and there are temporal"):
        wants_shuffled(RewardRunner({"temporal": (TemporalReward(), 1.0)}))
    assert wants_shuffled(t_grpo()) and not wants_shuffled(RewardRunner({"accuracy": (AccuracyReward(), 1.0)}))


def test_completions_are_kept_with_the_accuracies_they_were_compared_to(checkpoints, rows):
    trainer = trainer_of(checkpoints, rows, OrderedEngine(ordered=2, shuffled=1))
    sample_step(trainer, rows[1])
    kept = read_lines(trainer.folder.completions)
    assert {row["id"]: row.get("shuffled_accuracy") for row in kept} == {
        "row-0": [1.0, 0.0], "row-1": None, "row-2": None, "row-3": [1.0, 0.0],
    }  # fmt: skip
