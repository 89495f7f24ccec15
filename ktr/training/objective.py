"""The policy objective: token weights, advantages and log-ratios become one loss.

Shapes: B completions (of one or several prompts), C completion tokens (right padded).

Objectives and their sources: ``grpo`` (DeepSeekMath, arXiv 2402.03300, eq. 3), ``bnpo`` (token mean of one device's
batch, as named in TRL), ``dr_grpo`` (arXiv 2503.20783, section 3.2), ``dapo`` (arXiv 2503.14476, sections 3.1 and 3.3),
``gspo`` (arXiv 2507.18071, sections 4.1 and 4.3), ``cispo`` (MiniMax-M1, arXiv 2506.13585, section 3.1). With weights
of 1 each equals TRL's loss of that name in value and gradient (``gspo``: TRL's sequence-level ratio and ``grpo`` mean).

The loss is a sum over completions divided by counts that do not depend on how the batch is cut: a caller that scores
a step in pieces passes the whole step's `LossDenominators` with each piece and adds the losses up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ktr.training.objective_settings import ObjectiveSettings


@dataclass(frozen=True)
class LossDenominators:
    """Counts over everything that shares one optimizer step; those of its parts add up (``+``).

    ``grpo`` and ``gspo`` divide by the completions, ``dr_grpo`` by completions x its constant, the others by tokens.
    Where W ranks average their gradients, give each the global counts divided by W. ``bnpo`` differs from ``dapo``
    in its clipping and in whose tokens a caller counts: its own device's batch instead of all ranks'.
    """

    completions: float
    policy_tokens: float
    kl_tokens: float

    def __add__(self, other: LossDenominators) -> LossDenominators:
        return LossDenominators(
            self.completions + other.completions,
            self.policy_tokens + other.policy_tokens,
            self.kl_tokens + other.kl_tokens,
        )


class MaskedMean(NamedTuple):
    """A mean as total and number, so that the means of several calls pool without bias."""

    total: Tensor
    number: Tensor


@dataclass(frozen=True, eq=False)
class ObjectiveOutput:
    """The loss and what to log of it.

    Attributes:
        loss: scalar with gradient.
        policy_loss: scalar without gradient, the loss without its KL term.
        metrics: over ALL valid tokens (gspo's clip ratios: over completions), whatever the weights.
    """

    loss: Tensor
    policy_loss: Tensor
    metrics: dict[str, MaskedMean]


def count_denominators(valid_BC: Tensor, weights_BC: Tensor | None, settings: ObjectiveSettings) -> LossDenominators:
    """What these completions add to the step's denominators."""
    policy_BC, kl_BC = _counted(valid_BC.bool(), weights_BC, settings)
    return LossDenominators(float(valid_BC.shape[0]), float(policy_BC.sum()), float(kl_BC.sum()))


def policy_loss(
    logps_BC: Tensor,
    old_logps_BC: Tensor | None,
    ref_logps_BC: Tensor | None,
    advantages_B: Tensor,
    valid_BC: Tensor,
    weights_BC: Tensor | None,
    settings: ObjectiveSettings,
    *,
    denominators: LossDenominators | None = None,
    entropies_BC: Tensor | None = None,
) -> ObjectiveOutput:
    """Loss of B completions, to be minimised.

    Args:
        logps_BC: the policy's log-probs, with gradient.
        old_logps_BC: those of the policy that sampled; None when no update came between (the ratio is 1).
        ref_logps_BC: those of the reference; may be None when ``settings.beta`` is 0.
        advantages_B: one advantage for each completion.
        valid_BC: True up to and including the first end token; a row may have none.
        weights_BC: token weights, 0 or more; None for 1 everywhere. They multiply each token's objective. In gspo the
            ratio itself is always that of all valid tokens, and a weight scales the gradient that reaches its token.
        settings: the objective.
        denominators: of the whole optimizer step; None when these B completions are all of it. A completion is never
            cut in two.
        entropies_BC: only for the metric.

    Values outside `valid_BC` are never used, be they inf or nan.
    """
    assert logps_BC.shape == valid_BC.shape and advantages_B.shape == valid_BC.shape[:1]
    valid_BC = valid_BC.bool()
    logps_BC = torch.where(valid_BC, logps_BC, 0.0)
    old_logps_BC = logps_BC.detach() if old_logps_BC is None else torch.where(valid_BC, old_logps_BC, 0.0)
    weights_BC = torch.ones_like(logps_BC) if weights_BC is None else torch.where(valid_BC, weights_BC, 0.0)
    weights_BC = weights_BC.to(logps_BC.dtype) * valid_BC
    if denominators is None:
        denominators = count_denominators(valid_BC, weights_BC, settings)
    counted_BC, kl_counted_BC = _counted(valid_BC, weights_BC, settings)

    token_BC, metrics = _token_objective(logps_BC, old_logps_BC, advantages_B.unsqueeze(1), valid_BC, settings)
    policy = _reduce(-token_BC * weights_BC, counted_BC, denominators.policy_tokens, denominators, settings)
    loss = policy
    if settings.beta:
        if ref_logps_BC is None:
            raise ValueError(f"beta is {settings.beta}: the KL term needs the reference's log-probs (or set beta=0)")
        kl_BC = _kl(torch.where(valid_BC, ref_logps_BC, 0.0) - logps_BC, settings)
        weighted_BC = kl_BC * (weights_BC if settings.mask_kl else valid_BC)
        kl = _reduce(weighted_BC, kl_counted_BC, denominators.kl_tokens, denominators, settings)
        loss = loss + settings.beta * kl
        metrics["kl"] = _masked_mean(kl_BC, valid_BC)
    if entropies_BC is not None:
        metrics["entropy"] = _masked_mean(torch.where(valid_BC, entropies_BC, 0.0), valid_BC)
    return ObjectiveOutput(loss, policy.detach(), metrics)


def pooled_means(metrics: Iterable[Mapping[str, MaskedMean]]) -> dict[str, float]:
    """Means over several calls together; a metric that counted nothing is left out."""
    pooled: dict[str, MaskedMean] = {}
    for one in metrics:
        for name, mean in one.items():
            before = pooled.get(name)
            pooled[name] = (
                mean if before is None else MaskedMean(before.total + mean.total, before.number + mean.number)
            )
    return {name: float(mean.total / mean.number) for name, mean in pooled.items() if float(mean.number)}


def _token_objective(
    logps_BC: Tensor, old_logps_BC: Tensor, advantages_B1: Tensor, valid_BC: Tensor, settings: ObjectiveSettings
) -> tuple[Tensor, dict[str, MaskedMean]]:
    """Each token's objective, to be maximised, and the clip ratios."""
    log_ratio_BC = logps_BC - old_logps_BC
    if settings.objective == "cispo":
        ratio_BC = log_ratio_BC.exp().detach()
        clipped_BC = (ratio_BC > settings.cispo_cap) & (advantages_B1 > 0)
        objective_BC = ratio_BC.clamp(max=settings.cispo_cap) * advantages_B1 * logps_BC
        return objective_BC, {"cispo_clip_ratio": _masked_mean(clipped_BC, valid_BC)}
    if settings.objective == "gspo":
        # GSPO-token (section 4.3): the value of the sequence's ratio on each token, the gradient through that token
        sequence_B1 = (log_ratio_BC.sum(dim=1) / valid_BC.sum(dim=1).clamp(min=1)).unsqueeze(1)
        log_ratio_BC = sequence_B1.detach() + (logps_BC - logps_BC.detach())
    ratio_BC = log_ratio_BC.exp()
    low, high = settings.clip
    objective_BC = torch.min(ratio_BC * advantages_B1, ratio_BC.clamp(1 - low, 1 + high) * advantages_B1)
    low_BC = (ratio_BC < 1 - low) & (advantages_B1 < 0)
    high_BC = (ratio_BC > 1 + high) & (advantages_B1 > 0)
    counted_BC = valid_BC
    if settings.objective == "gspo":
        low_BC, high_BC, counted_BC = low_BC[:, :1], high_BC[:, :1], valid_BC.any(dim=1, keepdim=True)
    return objective_BC, {
        "clip_ratio/low_mean": _masked_mean(low_BC, counted_BC),
        "clip_ratio/high_mean": _masked_mean(high_BC, counted_BC),
        "clip_ratio/region_mean": _masked_mean(low_BC | high_BC, counted_BC),
    }


def _kl(difference_BC: Tensor, settings: ObjectiveSettings) -> Tensor:
    if settings.kl_clamp is not None:
        difference_BC = difference_BC.clamp(-settings.kl_clamp, settings.kl_clamp)
    if settings.kl_estimator == "k1":
        return -difference_BC
    if settings.kl_estimator == "k2":
        return difference_BC.square() / 2
    return difference_BC.exp() - difference_BC - 1


def _counted(valid_BC: Tensor, weights_BC: Tensor | None, settings: ObjectiveSettings) -> tuple[Tensor, Tensor]:
    """Tokens in the denominators of the policy term and of the KL term."""
    if settings.normalize == "completion" or weights_BC is None:
        return valid_BC, valid_BC
    selected_BC = valid_BC & (weights_BC > 0)
    return selected_BC, selected_BC if settings.mask_kl else valid_BC


def _reduce(
    terms_BC: Tensor, counted_BC: Tensor, tokens: float, denominators: LossDenominators, settings: ObjectiveSettings
) -> Tensor:
    """Sum of the terms over the objective's denominator; nothing counted gives 0, not 0/0."""
    if settings.objective in ("grpo", "gspo"):
        per_completion_B = terms_BC.sum(dim=1) / counted_BC.sum(dim=1).clamp(min=1)
        return _divide(per_completion_B.sum(), denominators.completions)
    if settings.objective == "dr_grpo":
        assert settings.max_completion_length is not None
        return _divide(terms_BC.sum(), denominators.completions * settings.max_completion_length)
    return _divide(terms_BC.sum(), tokens)


def _divide(total: Tensor, count: float) -> Tensor:
    # no clamp to 1: a count shared out over ranks may be a fraction
    return total / count if count > 0 else total * 0.0


def _masked_mean(values_BC: Tensor, mask_BC: Tensor) -> MaskedMean:
    return MaskedMean((values_BC.detach().float() * mask_BC).sum(), mask_BC.sum().float())
