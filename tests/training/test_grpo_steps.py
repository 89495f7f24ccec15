"""One optimizer step in every arrangement: packed or plain, whole or in pieces, shared or recomputed vision."""

from __future__ import annotations

import math

import pytest
import torch
from small_models import FAMILIES
from trainer_cases import (
    Forwards,
    Gradients,
    ScriptedRollout,
    assert_same_gradients,
    flat_reward,
    make_rows,
    make_trainer,
    objective_of,
    read_lines,
    run_step,
    sample_step,
    without_times,
)

from ktr.attribution.settings import KeyTokenSettings
from ktr.config.schema_learning import GrpoConfig
from ktr.models.families import unwrap_model
from ktr.models.lora import lora_config
from ktr.training.grpo_trainer import KeyTokenGRPOTrainer

FOUR = {"groups_per_step": 4, "max_steps": 1, "beta": 0.1}
RELEASED = {"delta": "signed", "scope": "group", "normalize": "selected", "top_k": 0.4, "granularity": "frame"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("steps")


@pytest.fixture(scope="module")
def rows(root):
    return make_rows(root)


def options_of(objective="grpo", key_tokens=None, **more):
    """Options of `make_trainer` for a step over four groups."""
    settings = {**FOUR, "objective": objective, **more.pop("trainer", {})}
    key_tokens = KeyTokenSettings(**(key_tokens or {"top_k": 0.4}))
    return {
        "trainer": settings,
        "key_tokens": key_tokens,
        "objective": objective_of(GrpoConfig(**settings), normalize=key_tokens.normalize, mask_kl=key_tokens.mask_kl),
        **more,
    }


@pytest.fixture(scope="module")
def take_step(checkpoints, root, rows):
    """Trains one step; returns its gradients, its line of metrics and the trainer."""

    def take(family="qwen2_5_vl", **options):
        kept = Gradients()
        trainer = make_trainer(checkpoints[family], root, rows, callbacks=[kept], **options_of(**options))
        trainer.train()
        (gradients,) = kept.steps
        return gradients, without_times(read_lines(trainer.folder.metrics))[0], trainer

    return take


def assert_same_step(found, expected, tolerance=1e-4):
    assert_same_gradients(found[0], expected[0], tolerance)
    assert found[1].keys() == expected[1].keys()
    for name in expected[1].keys() - {"stage"}:
        assert found[1][name] == pytest.approx(expected[1][name], rel=1e-3, abs=1e-5), name


CASES = {
    "grpo": {},
    "dapo": {"objective": "dapo"},
    "released": {"key_tokens": RELEASED},
    "selected-dapo": {"objective": "dapo", "key_tokens": {**RELEASED, "mask_kl": False}},
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def expected_step(case, take_step):
    return take_step(**case)


@pytest.mark.parametrize(
    "arrangement",
    [{"trainer": {"gradient_accumulation": 2}}, {"checkpointing": True}],
    ids=["two passes", "gradient checkpointing"],
)
def test_runs_take_the_same_step(take_step, case, expected_step, arrangement):
    assert 0 < expected_step[1]["key_tokens/kept/key"] < 1
    assert_same_step(take_step(**case, **arrangement), expected_step)


@pytest.fixture(scope="module")
def scored_step(case, checkpoints, root, rows):
    """Gradients and metrics of one step, and the same by packed or plain rows within a budget of tokens."""
    trainer = make_trainer(checkpoints["qwen2_5_vl"], root, rows, **options_of(**case))

    def take(**scorer):
        vars(trainer.scorer).update({"packing": True, "max_packed_tokens": 4096, **scorer})
        trainer._metrics["train"].clear()
        loss, gradients = run_step(trainer, sample_step(trainer, rows))
        return gradients, {"loss": loss, **{name: mean for name, (mean,) in trainer._metrics["train"].items()}}

    return take, take()


@pytest.mark.parametrize(
    "scorer",
    [
        {"packing": False},
        {"packing": False, "max_packed_tokens": 1},
        {"max_packed_tokens": 1},
        {"max_packed_tokens": 30},
        {"max_packed_tokens": 60},
    ],
    ids=str,
)
def test_packed_plain_and_cut_groups_take_the_same_step(scored_step, scorer):
    take, expected = scored_step
    assert_same_step(take(**scorer), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_shared_features_of_a_frozen_tower_give_the_step_of_recomputed_ones(
    take_step, checkpoints, family, monkeypatch
):
    kinds = {"key_tokens": {"top_k": 0.4, "blind": "zero_features"}, "freeze_vision": True, "family": family}
    shared = take_step(**kinds)
    assert shared[2].vision_frozen
    monkeypatch.setattr("ktr.training.grpo_trainer.vision_is_frozen", lambda model: False)
    recomputed = take_step(**kinds)
    assert not recomputed[2].vision_frozen
    assert_same_step(shared, recomputed)
    assert not any("visual" in name for name in shared[0])


def test_a_frozen_tower_sees_each_patch_once_and_a_trained_one_once_for_the_gradient(checkpoints, root, rows):
    for frozen, passes in ((True, 1), (False, 2)):
        trainer = make_trainer(checkpoints["qwen2_5_vl"], root, rows, trainer=FOUR, freeze_vision=frozen)
        patches = []
        # a trained tower's reference has a tower of its own
        for model in (trainer.model, trainer.ref_model):
            unwrap_model(model).model.visual.patch_embed.register_forward_hook(
                lambda module, inputs, output, seen=patches: seen.append(len(output))
            )
        run_step(trainer, sample_step(trainer, rows))
        encoder = trainer.data_collator.encoder
        known = [len(prompt.pixel_values_ND) for prompt in map(encoder.encode, rows) if prompt.grid_thw]
        assert sum(patches) == passes * sum(known)


def test_bf16_takes_nearly_the_step_of_float32(take_step, monkeypatch):
    # The same completions: of a random model, sampled ones differ after a few tokens.
    sampled = []
    sample = KeyTokenGRPOTrainer._generate_and_score_completions

    def sample_once(trainer, prompts):
        sampled.append(sampled[0] if sampled else sample(trainer, prompts))
        return sampled[0]

    monkeypatch.setattr(KeyTokenGRPOTrainer, "_generate_and_score_completions", sample_once)
    exact = take_step(freeze_vision=True)
    found = take_step(freeze_vision=True, trainer={"bf16": True})
    assert found[1]["loss"] != exact[1]["loss"]
    assert found[1]["entropy"] == pytest.approx(exact[1]["entropy"], rel=1e-2)
    largest = max(exact[0].values(), key=lambda gradient: float(gradient.abs().max()))
    name = next(name for name, gradient in exact[0].items() if gradient is largest)
    cosine = torch.nn.functional.cosine_similarity(found[0][name].flatten(), largest.flatten(), dim=0)
    assert float(cosine) > 0.999


def test_the_reference_of_adapters_is_the_policy_without_them(take_step, checkpoints, root, rows):
    adapters = lora_config(rank=4, target_modules=["q_proj", "v_proj"])
    gradients, metrics, trainer = take_step(peft_config=adapters, trainer={"learning_rate": 0.05})
    assert gradients and all("lora" in name for name in gradients)
    assert trainer.ref_model is None and metrics["kl"] == pytest.approx(0, abs=1e-6)
    (batch,) = sample_step(trainer, rows)
    base = make_trainer(checkpoints["qwen2_5_vl"], root, rows, trainer=FOUR)
    torch.testing.assert_close(batch.ref_logps_NC, sample_step(base, rows)[0].ref_logps_NC, atol=1e-5, rtol=0)
    with torch.no_grad():
        adapted = trainer.scorer.score(trainer.model, batch.groups).logps_NC
    assert float((adapted - batch.ref_logps_NC).abs().max()) > 1e-3, "the adapters have not learned"


def test_a_second_update_reuses_weights_and_has_ratios(checkpoints, root, rows):
    trainer = make_trainer(
        checkpoints["qwen2_5_vl"], root, rows,
        trainer={**FOUR, "max_steps": 4, "updates_per_batch": 2, "learning_rate": 0.02},
    )  # fmt: skip
    ratios, weights = [], []
    compute, attribute = trainer._piece_loss, trainer.attributor.attribute
    calls = []

    def spy(model, inputs, piece):
        loss = compute(model, inputs, piece)
        with torch.no_grad():
            now_NC = trainer.scorer.score(model, inputs.groups).logps_NC
        ratios.append((now_NC - inputs.old_logps_NC).exp())
        weights.append(inputs.weights_NC.clone())
        return loss

    trainer._piece_loss = spy
    trainer.attributor.attribute = lambda *args, **kwargs: calls.append(kwargs["step"]) or attribute(*args, **kwargs)
    trainer.train()
    assert trainer.engine.calls == 2 and calls == [0, 2]
    for first in (0, 2):
        torch.testing.assert_close(ratios[first], torch.ones_like(ratios[first]), atol=1e-5, rtol=0)
        assert float((ratios[first + 1] - 1).abs().max()) > 0.01
        assert torch.equal(weights[first], weights[first + 1])
    lines = read_lines(trainer.folder.metrics)
    assert ["reward" in line for line in lines[:4]] == [True, False, True, False]
    assert ["key_tokens/kept/key" in line for line in lines[:4]] == [True, False, True, False]
    assert lines[1]["clip_ratio/region_mean"] > 0 == lines[0]["clip_ratio/region_mean"]


def test_a_masked_group_leaves_the_loss_and_keeps_its_place_in_the_mean(checkpoints, root, rows):
    settings = {"trainer": {**FOUR, "groups_per_step": 2}}
    both = make_trainer(
        checkpoints["qwen2_5_vl"], root, rows, rewards=flat_reward("row-1"), zero_variance="mask", **settings
    )
    batches = sample_step(both, rows[:2])
    assert [len(batch.groups) for batch in batches] == [1]
    loss, gradients = run_step(both, batches)
    alone = make_trainer(checkpoints["qwen2_5_vl"], root, rows, **settings)
    (batch,) = sample_step(alone, rows[:1])
    expected, expected_gradients = run_step(alone, [batch])
    assert loss == pytest.approx(expected / 2, rel=1e-5)
    assert_same_gradients({name: 2 * g for name, g in gradients.items()}, expected_gradients)


def test_a_kept_group_without_spread_carries_only_the_kl_term(checkpoints, root, rows):
    def step(**options):
        trainer = make_trainer(checkpoints["qwen2_5_vl"], root, rows, **options)
        with torch.no_grad():
            for parameter in trainer.ref_model.parameters() if trainer.ref_model is not None else ():
                parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
        return run_step(trainer, sample_step(trainer, rows[:2]))

    everything = flat_reward("row-0", "row-1")
    kept, gradients = step(rewards=everything, trainer={**FOUR, "beta": 0.2})
    half, half_gradients = step(rewards=everything, trainer={**FOUR, "beta": 0.1})
    assert kept > 0 and kept == pytest.approx(2 * half, rel=1e-5)
    assert_same_gradients({name: 2 * g for name, g in half_gradients.items()}, gradients)


@pytest.mark.parametrize(("zero_variance", "beta"), [("mask", 0.1), ("keep", 0.0), ("mask", 0.0)])
def test_a_step_without_any_loss_is_taken_and_moves_nothing(checkpoints, root, rows, zero_variance, beta):
    trainer = make_trainer(
        checkpoints["qwen2_5_vl"], root, rows, rewards=flat_reward(*(row.id for row in rows)),
        zero_variance=zero_variance, trainer={**FOUR, "beta": beta, "max_steps": 2, "weight_decay": 0.0},
        objective=objective_of(GrpoConfig(**{**FOUR, "beta": beta}), mask_kl=False),
    )  # fmt: skip
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    forwards = Forwards(trainer.model)
    references = Forwards(trainer.ref_model) if beta else None
    trainer.train()
    assert trainer.state.global_step == 2
    assert all(torch.equal(before[name], p) for name, p in trainer.model.named_parameters())
    lines = read_lines(trainer.folder.metrics)
    assert [line["loss"] for line in lines[:2]] == [0.0, 0.0] and lines[0]["groups/zero_variance"] == 1.0
    # nothing but the stand-in, one short row without its video
    assert forwards.seen == [{"grad": True, "rows": 1, "vision": []}] * 2
    assert references is None or not references.seen


def test_views_are_run_for_groups_that_carry_loss_only(checkpoints, root, rows):
    """Video: blind and shuffled views; image: blind; text: none. A group whose advantages are 0 gets none at all."""

    def forwards(*flat):
        trainer = make_trainer(
            checkpoints["qwen2_5_vl"], root, rows, rewards=flat_reward(*flat), zero_variance="mask",
            max_packed_tokens=64, trainer={**FOUR, "beta": 0.0},
        )  # fmt: skip
        batches = sample_step(trainer, rows[:3])
        seen = Forwards(trainer.model)
        run_step(trainer, batches)
        return seen

    rows_of = {name: sum(one["rows"] for one in forwards(*flat).seen) for name, flat in {
        "all": (), "no video": ("row-0",), "no image": ("row-1",), "no text": ("row-2",),
    }.items()}  # fmt: skip
    assert rows_of == {"all": 3 + 2 + 1, "no video": 3, "no image": 4, "no text": 5}


def test_weights_of_released_key_tokens_need_no_extra_pass_when_the_group_fits_its_row(checkpoints, root, rows):
    def policy_passes(**options):
        settings = GrpoConfig(**FOUR, objective=options.pop("objective", "grpo"))
        trainer = make_trainer(
            checkpoints["qwen2_5_vl"], root, rows, key_tokens=KeyTokenSettings(**RELEASED),
            objective=objective_of(settings, normalize="selected"), trainer=FOUR, **options,
        )  # fmt: skip
        seen = Forwards(trainer.model)
        batches = sample_step(trainer, rows)
        before = len(seen.seen)
        assert all(batch.attributed == (before > 0) for batch in batches)
        return before

    assert policy_passes() == 0
    assert policy_passes(max_packed_tokens=30) > 0
    assert policy_passes(objective="dapo") > 0


def test_the_means_count_all_completions_of_a_step(checkpoints, root, rows):
    lengths = [len(ScriptedRollout.completion(row.id, i).token_ids) for row in rows for i in range(3)]
    trainer = make_trainer(checkpoints["qwen2_5_vl"], root, rows, trainer={**FOUR, "gradient_accumulation": 2})
    for batch in sample_step(trainer, rows):
        assert batch.denominators.completions == 12
        assert batch.denominators.policy_tokens == batch.denominators.kl_tokens == sum(lengths)


def test_selected_tokens_of_kept_groups_without_spread_count_in_the_mean(checkpoints, root, rows):
    """Whether there is a KL term or not: without one the group has no loss, and its tokens stand in the mean."""

    def denominators(beta):
        settings = {**FOUR, "objective": "dapo", "beta": beta}
        trainer = make_trainer(
            checkpoints["qwen2_5_vl"], root, rows, rewards=flat_reward("row-0", "row-1"), trainer=settings,
            key_tokens=KeyTokenSettings(("entropy",), 0.4),
            objective=objective_of(GrpoConfig(**settings), normalize="selected"),
        )  # fmt: skip
        (batch,) = sample_step(trainer, rows)
        return batch.denominators

    assert denominators(0.0) == denominators(0.1)


@pytest.mark.parametrize("mask_kl", [True, False])
def test_the_mean_over_selected_tokens_counts_those_of_the_whole_step(checkpoints, root, rows, mask_kl):
    lengths = [len(ScriptedRollout.completion(row.id, i).token_ids) for row in rows for i in range(3)]
    settings = {**FOUR, "gradient_accumulation": 2, "objective": "dapo"}
    trainer = make_trainer(
        checkpoints["qwen2_5_vl"], root, rows, trainer=settings, key_tokens=KeyTokenSettings(("entropy",), 0.4),
        objective=objective_of(GrpoConfig(**settings), normalize="selected", mask_kl=mask_kl),
    )  # fmt: skip
    selected = sum(math.ceil(round(0.4 * n, 6)) for n in lengths)
    for batch in sample_step(trainer, rows):
        assert batch.denominators.policy_tokens == selected
        assert batch.denominators.kl_tokens == (selected if mask_kl else sum(lengths))
