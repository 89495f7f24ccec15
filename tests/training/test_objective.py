"""Shapes: B completions, C completion tokens."""

from __future__ import annotations

import math
import subprocess
import sys
import types
from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ktr.training.objective import (
    LossDenominators,
    MaskedMean,
    ObjectiveSettings,
    count_denominators,
    policy_loss,
    pooled_means,
)

OBJECTIVES = ["grpo", "bnpo", "dr_grpo", "dapo", "gspo", "cispo"]
LENGTHS = [7, 3, 5, 1, 6, 7]
LIMIT = 9


def make(objective: str, **changes) -> ObjectiveSettings:
    return ObjectiveSettings(objective, max_completion_length=LIMIT, **changes)


@pytest.fixture
def batch():
    """Completions whose ratios reach beyond every clip; padding holds values that must not be used."""
    generator = torch.Generator().manual_seed(0)
    valid = torch.arange(7) < torch.tensor(LENGTHS).unsqueeze(1)
    logps = -3 * torch.rand(6, 7, generator=generator)
    old = logps + 0.4 * torch.randn(6, 7, generator=generator)
    ref = logps + 0.4 * torch.randn(6, 7, generator=generator)
    return types.SimpleNamespace(
        logps=logps.masked_fill(~valid, torch.nan),
        old=old.masked_fill(~valid, -torch.inf),
        ref=ref.masked_fill(~valid, torch.inf),
        advantages=torch.tensor([1.2, -0.7, 0.5, -1.5, 0.0, 0.9]),
        valid=valid,
        weights=(torch.rand(6, 7, generator=generator) < 0.5).float(),
        entropies=torch.rand(6, 7, generator=generator).masked_fill(~valid, torch.nan),
    )


def number(loss: torch.Tensor) -> float:
    return loss.detach().item()


def loss_and_gradient(batch, settings, weights=None, chosen=slice(None), denominators=None, old="old"):
    logps = batch.logps.clone().requires_grad_()
    output = policy_loss(
        logps[chosen],
        None if old is None else batch.old[chosen],
        batch.ref[chosen],
        batch.advantages[chosen],
        batch.valid[chosen],
        None if weights is None else weights[chosen],
        settings,
        denominators=denominators,
        entropies_BC=batch.entropies[chosen],
    )
    (gradient,) = torch.autograd.grad(output.loss, logps)
    return output, gradient


class Accelerator:
    """One process: nothing to gather."""

    num_processes = 1
    sync_gradients = True

    def gather(self, tensor):
        return tensor

    def reduce(self, tensor, reduction):
        return tensor


def trl_loss_and_gradient(batch, settings: ObjectiveSettings, *, with_old: bool = True):
    """TRL's own `_compute_loss`, on a stand-in for the trainer that returns the batch's log-probs."""
    trainer_type = pytest.importorskip("trl.trainer.grpo_trainer").GRPOTrainer
    logps = torch.where(batch.valid, batch.logps, 0.0).requires_grad_()
    entropies = torch.where(batch.valid, batch.entropies, 0.0)
    low, high = settings.clip
    trainer = types.SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logps, entropies, None),
        accelerator=Accelerator(),
        args=types.SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
        model=types.SimpleNamespace(training=True),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=1,
        importance_sampling_level="sequence" if settings.objective == "gspo" else "token",
        loss_type="grpo" if settings.objective == "gspo" else settings.objective,
        beta=settings.beta,
        epsilon_low=low,
        epsilon_high=settings.cispo_cap if settings.objective == "cispo" else high,
        max_completion_length=settings.max_completion_length,
        _metrics=defaultdict(lambda: defaultdict(list)),
    )
    mask = batch.valid.long()
    inputs = {
        "prompt_ids": torch.zeros(6, 1, dtype=torch.long),
        "prompt_mask": torch.ones(6, 1, dtype=torch.long),
        "completion_ids": torch.zeros(6, 7, dtype=torch.long),
        "completion_mask": mask,
        "advantages": batch.advantages,
        "num_items_in_batch": mask.sum(),
        "ref_per_token_logps": torch.where(batch.valid, batch.ref, 0.0),
    }
    if with_old:
        inputs["old_per_token_logps"] = torch.where(batch.valid, batch.old, 0.0)
    loss = trainer_type._compute_loss(trainer, trainer.model, inputs)
    (gradient,) = torch.autograd.grad(loss, logps)
    return loss, gradient, {name: values[-1] for name, values in trainer._metrics["train"].items()}


@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("with_old", [True, False])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_equals_trl_in_value_gradient_and_metrics(batch, objective, with_old, beta):
    settings = make(objective, beta=beta, cispo_cap=1.3)
    expected, expected_gradient, expected_metrics = trl_loss_and_gradient(batch, settings, with_old=with_old)
    output, gradient = loss_and_gradient(batch, settings, weights=torch.ones(6, 7), old="old" if with_old else None)
    assert number(output.loss) == pytest.approx(number(expected), rel=1e-6, abs=1e-7)
    assert torch.allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-8)
    metrics = pooled_means([output.metrics])
    assert metrics == pytest.approx({name: expected_metrics[name] for name in metrics}, rel=1e-5)
    assert set(expected_metrics) - set(metrics) <= {"clip_ratio/low_min", "clip_ratio/high_max"}
    if with_old:  # the batch does reach the clips, so that they are compared too
        assert any(value > 0 for name, value in metrics.items() if "clip" in name)


# Hand-computed on two completions: A = 1 with ratios 2, 1 and A = -1 with ratio 0.5; ref_logp - logp = 0.5 everywhere.
def golden_batch():
    old = torch.tensor([[-1.0, -2.0], [-1.0, 0.0]])
    logps = old + torch.tensor([[2.0, 1.0], [0.5, 1.0]]).log()
    return logps, old, logps + 0.5, torch.tensor([1.0, -1.0]), torch.tensor([[True, True], [True, False]])


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        # clipped terms: 1.2, 1 and max(0.5, 0.8) * -1
        ("grpo", -((1.2 + 1.0) / 2 - 0.8) / 2),
        ("bnpo", -(1.2 + 1.0 - 0.8) / 3),
        ("dr_grpo", -(1.2 + 1.0 - 0.8) / (2 * LIMIT)),
        # dapo's upper clip is 1.28
        ("dapo", -(1.28 + 1.0 - 0.8) / 3),
        # sequence ratios sqrt(2) and 0.5, clipped to 1.0004 and 0.9997
        ("gspo", -(1.0004 - 0.9997) / 2),
        # ratio (capped at 1.5) times A times logp
        ("cispo", -(1.5 * (math.log(2) - 1) + 1.0 * -2.0 + 0.5 * -1.0 * (math.log(0.5) - 1)) / 3),
    ],
)
def test_golden_values(objective, expected):
    logps, old, ref, advantages, valid = golden_batch()
    settings = make(objective, beta=0.0, cispo_cap=1.5)
    output = policy_loss(logps, old, None, advantages, valid, None, settings)
    assert number(output.loss) == pytest.approx(expected, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("estimator", "clamp", "expected"),
    [
        ("k1", None, -0.5),
        ("k2", None, 0.125),
        ("k3", None, math.exp(0.5) - 1.5),
        ("k3", 0.25, math.exp(0.25) - 1.25),
        ("k1", 0.25, -0.25),
    ],
)
def test_golden_kl(estimator, clamp, expected):
    logps, old, ref, _, valid = golden_batch()
    settings = make("grpo", beta=0.1, kl_estimator=estimator, kl_clamp=clamp)
    output = policy_loss(logps, old, ref, torch.zeros(2), valid, None, settings)
    assert number(output.loss) == pytest.approx(0.1 * expected, rel=1e-5)
    assert float(output.policy_loss) == 0.0
    assert pooled_means([output.metrics])["kl"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_clamp_is_silent_inside_and_stops_the_gradient_outside(batch, estimator):
    batch.advantages = torch.zeros(6)
    batch.ref = torch.where(batch.valid, batch.logps - 30.0, 0.0)
    _, inside = loss_and_gradient(batch, make("grpo", beta=1.0, kl_estimator=estimator, kl_clamp=31.0))
    _, free = loss_and_gradient(batch, make("grpo", beta=1.0, kl_estimator=estimator))
    _, outside = loss_and_gradient(batch, make("grpo", beta=1.0, kl_estimator=estimator, kl_clamp=10.0))
    assert torch.equal(inside, free) and bool(free.any())
    assert not outside.any()


@pytest.mark.parametrize("mask_kl", [True, False])
@pytest.mark.parametrize("normalize", ["completion", "selected"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_splitting_the_batch_changes_nothing(batch, objective, normalize, mask_kl):
    settings = make(objective, normalize=normalize, mask_kl=mask_kl)
    batch.weights[2] = 0.0
    whole, gradient = loss_and_gradient(batch, settings, batch.weights)
    parts = [slice(0, 1), slice(1, 4), slice(4, 6)]
    total = LossDenominators(0, 0, 0)
    for part in parts:
        total = total + count_denominators(batch.valid[part], batch.weights[part], settings)
    losses, gradients, metrics = 0.0, torch.zeros(6, 7), []
    for part in parts:
        output, part_gradient = loss_and_gradient(batch, settings, batch.weights, part, total)
        losses, gradients = losses + number(output.loss), gradients + part_gradient
        metrics.append(output.metrics)
    assert losses == pytest.approx(number(whole.loss), rel=1e-5, abs=1e-7)
    assert torch.allclose(gradients, gradient, rtol=1e-5, atol=1e-8)
    assert pooled_means(metrics) == pytest.approx(pooled_means([whole.metrics]), rel=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_ranks_that_average_give_the_loss_of_one_even_with_less_than_a_token_each(batch, objective):
    settings = make(objective, normalize="selected")
    weights = torch.zeros(6, 7)
    weights[0, 2] = 1.0
    whole, gradient = loss_and_gradient(batch, settings, weights)
    counts = count_denominators(batch.valid, weights, settings)
    shared = LossDenominators(counts.completions / 8, counts.policy_tokens / 8, counts.kl_tokens / 8)
    _, part_gradient = loss_and_gradient(batch, settings, weights, slice(0, 1), shared)
    assert torch.allclose(part_gradient / 8, gradient, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_weights_keep_the_gradient_off_the_other_tokens(batch, objective):
    _, gradient = loss_and_gradient(batch, make(objective), batch.weights)
    _, plain = loss_and_gradient(batch, make(objective))
    assert not gradient[(batch.weights == 0) | ~batch.valid].any()
    # with the completion's own denominator a kept token's gradient is that of the plain objective
    kept = (batch.weights > 0) & batch.valid
    assert torch.allclose(gradient[kept], plain[kept], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_weights_scale_the_policy_term_and_spare_the_kl_unless_asked(batch, objective):
    doubled = torch.full((6, 7), 2.0)
    plain, plain_gradient = loss_and_gradient(batch, make(objective))
    both, both_gradient = loss_and_gradient(batch, make(objective), doubled)
    spared, _ = loss_and_gradient(batch, make(objective, mask_kl=False), doubled)
    assert number(both.loss) == pytest.approx(2 * number(plain.loss), rel=1e-5)
    assert torch.allclose(both_gradient, 2 * plain_gradient, rtol=1e-5)
    assert number(spared.loss) == pytest.approx(number(plain.loss + plain.policy_loss), rel=1e-5)


def test_normalize_says_what_the_denominator_counts():
    logps, old, _, advantages, valid = golden_batch()
    weights = torch.tensor([[0.0, 1.0], [1.0, 1.0]])  # the last one is padding
    expected = {
        ("grpo", "completion"): -(1.0 / 2 - 0.8) / 2,
        ("grpo", "selected"): -(1.0 / 1 - 0.8) / 2,
        ("bnpo", "completion"): -(1.0 - 0.8) / 3,
        ("bnpo", "selected"): -(1.0 - 0.8) / 2,
        ("dr_grpo", "completion"): -(1.0 - 0.8) / (2 * LIMIT),
        ("dr_grpo", "selected"): -(1.0 - 0.8) / (2 * LIMIT),
        # the ratio stays that of both tokens, sqrt(2)
        ("gspo", "completion"): -(1.0004 / 2 - 0.9997) / 2,
        ("gspo", "selected"): -(1.0004 - 0.9997) / 2,
    }
    for (objective, normalize), value in expected.items():
        settings = make(objective, normalize=normalize, beta=0.0)
        output = policy_loss(logps, old, None, advantages, valid, weights, settings)
        assert number(output.loss) == pytest.approx(value, rel=1e-5, abs=1e-7), (objective, normalize)


@pytest.mark.parametrize("objective", ["grpo", "bnpo"])
def test_a_kl_term_that_is_not_masked_keeps_the_plain_denominator(batch, objective):
    batch.advantages = torch.zeros(6)
    plain, gradient = loss_and_gradient(batch, make(objective))
    spared, spared_gradient = loss_and_gradient(
        batch, make(objective, normalize="selected", mask_kl=False), batch.weights
    )
    assert number(spared.loss) == pytest.approx(number(plain.loss), rel=1e-6)
    assert torch.allclose(spared_gradient, gradient)


@pytest.mark.parametrize("normalize", ["completion", "selected"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nothing_selected_or_nothing_valid_is_zero_and_not_nan(batch, objective, normalize):
    settings = make(objective, normalize=normalize)
    nothing, gradient = loss_and_gradient(batch, settings, torch.zeros(6, 7))
    assert number(nothing.loss) == 0.0 and not gradient.any()
    batch.weights[0] = 0.0
    batch.valid[1] = False
    some, gradient = loss_and_gradient(batch, settings, batch.weights)
    assert math.isfinite(number(some.loss)) and bool(torch.isfinite(gradient).all())
    assert not gradient[:2].any() and bool(gradient[2].any())
    batch.valid[:] = False
    empty, gradient = loss_and_gradient(batch, settings, batch.weights)
    assert number(empty.loss) == 0.0 and not gradient.any()
    assert pooled_means([empty.metrics]) == {}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_metrics_do_not_see_the_weights(batch, objective):
    weighted, _ = loss_and_gradient(batch, make(objective), batch.weights)
    plain, _ = loss_and_gradient(batch, make(objective))
    assert pooled_means([weighted.metrics]) == pooled_means([plain.metrics])


@given(st.lists(st.floats(0.1, 3.0), min_size=7, max_size=7), st.sampled_from(OBJECTIVES), st.sampled_from([-1.0, 2.0]))
@settings(max_examples=60)
def test_gradient_is_that_of_the_value(weights, objective, advantage):
    """Against finite differences in float64, away from the clips. cispo's ratio is a constant, so it has its own."""
    generator = torch.Generator().manual_seed(1)
    logps = (-torch.rand(2, 7, generator=generator, dtype=torch.float64)).requires_grad_()
    noise = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    # equal weights in a completion: gspo's per-token gradient is the value's derivative only then
    weights_BC = torch.tensor([weights[:1] * 7, weights[1:2] * 7] if objective == "gspo" else [weights, weights[::-1]])
    valid = torch.arange(7) < torch.tensor([[7], [4]])
    settings = make(objective, epsilon_low=0.5, epsilon_high=0.5)
    old, ref = logps.detach() + 0.05 * noise, logps.detach() - 0.3 * noise
    advantages = torch.tensor([advantage, 0.5])

    def value(logps):
        return policy_loss(logps, old, ref, advantages, valid, weights_BC, settings).loss

    if objective == "cispo":
        kept = (logps.detach() - old).exp() * advantages.unsqueeze(1) * weights_BC * valid
        expected = -kept / valid.sum()
        settings = make(objective, beta=0.0)
        assert torch.allclose(torch.autograd.grad(value(logps), logps)[0], expected.to(torch.float64))
    else:
        assert torch.autograd.gradcheck(value, (logps,), atol=1e-6)


def test_gspo_sends_each_token_its_own_weight_through_the_whole_completions_ratio():
    """GSPO-token: the gradient of token t is w_t s A / n, with s over ALL tokens of the completion."""
    old = torch.tensor([[-1.0, -2.0, -0.5]])
    logps = (old + torch.tensor([[0.3, -0.1, 0.1]])).requires_grad_()
    weights = torch.tensor([[1.0, 0.0, 2.0]])
    settings = make("gspo", beta=0.0, epsilon_low=0.5, epsilon_high=0.5)
    output = policy_loss(logps, old, None, torch.tensor([2.0]), torch.ones(1, 3, dtype=torch.bool), weights, settings)
    (gradient,) = torch.autograd.grad(output.loss, logps)
    assert gradient[0].tolist() == pytest.approx([-w * math.exp(0.1) * 2.0 / 3 for w in (1.0, 0.0, 2.0)], rel=1e-5)


def test_gspo_clips_on_small_ratios_without_losing_them_to_rounding():
    """Ratios of 1.0002 must not drown in the rounding of log-probs near -20."""
    old = torch.full((1, 3), -20.0)
    logps = old + torch.tensor([[1e-4, 3e-4, 2e-4]])
    output = policy_loss(
        logps, old, None, torch.ones(1), torch.ones(1, 3, dtype=torch.bool), None, make("gspo", beta=0.0)
    )
    log_ratio = float((logps.double() - old.double()).mean())
    assert number(output.loss) == pytest.approx(-math.exp(log_ratio), abs=1.5e-7)


def test_clip_defaults_are_each_papers_and_can_be_set():
    assert ObjectiveSettings().clip == (0.2, 0.2)
    assert ObjectiveSettings(epsilon_low=0.1).clip == (0.1, 0.1)
    assert ObjectiveSettings("dapo").clip == (0.2, 0.28)
    assert ObjectiveSettings("gspo").clip == (3e-4, 4e-4)
    assert ObjectiveSettings("gspo", epsilon_low=0.2).clip == (0.2, 0.2)
    assert ObjectiveSettings("dapo", epsilon_high=0.3).clip == (0.2, 0.3)
    assert ObjectiveSettings("dapo", epsilon_low=0.1, epsilon_high=0.3).clip == (0.1, 0.3)


def test_pooled_means_weigh_by_count():
    one = {"kl": MaskedMean(torch.tensor(3.0), torch.tensor(3.0))}
    other = {"kl": MaskedMean(torch.tensor(0.0), torch.tensor(1.0)), "no": MaskedMean(torch.zeros(()), torch.zeros(()))}
    assert pooled_means([one, other]) == {"kl": 0.75}


def test_a_kl_term_needs_the_reference(batch):
    with pytest.raises(ValueError, match="beta=0"):
        policy_loss(batch.logps, None, None, batch.advantages, batch.valid, None, make("grpo", beta=0.04))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "ppo"}, "objective must be one of grpo"),
        ({"kl_estimator": "k4"}, "kl_estimator must be one of k1"),
        ({"normalize": "tokens"}, "normalize must be one of"),
        ({"objective": "dr_grpo"}, "max_completion_length"),
        ({"epsilon_low": -0.1}, "epsilon_low"),
        ({"beta": -1.0}, "beta"),
        ({"kl_clamp": 0.0}, "kl_clamp"),
        ({"cispo_cap": 0.0}, "cispo_cap"),
    ],
)
def test_impossible_settings_name_the_field(arguments, message):
    with pytest.raises(ValueError, match=message):
        ObjectiveSettings(**arguments)


def test_settings_import_no_torch():
    code = "import sys, ktr.training.objective_settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
