"""From scores to the weights of completion tokens: the only thing attribution hands to the objective.

Shapes: G completions of one prompt, C completion tokens (right padded), S signals.

Lengths, rewards and their metrics never see these weights: they belong to the full completions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from ktr.attribution.selection import combine_selections, select
from ktr.attribution.settings import SIGNALS, WEIGHT_FORMS, KeyTokenSettings

EXPONENTIAL_CAP = 5.0


@dataclass(frozen=True, eq=False)
class TokenWeights:
    """Weights of one prompt's completions.

    Attributes:
        weights_GC: float32, 0 outside the valid tokens.
        selected: for each signal that was scored, its own selection, bool (G, C).
        counts: numbers of tokens behind the metrics; add those of several prompts and pass them to `share_metrics`.
    """

    weights_GC: Tensor
    selected: dict[str, Tensor]
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def metrics(self) -> dict[str, float]:
        """`share_metrics` of this prompt alone."""
        return share_metrics([self.counts])


def token_weights(scores: Mapping[str, Tensor], valid_GC: Tensor, settings: KeyTokenSettings) -> TokenWeights:
    """Weights of a prompt's completion tokens from the signals that exist for it.

    A signal that a prompt cannot have is simply absent from `scores` (no video: no visual one; an image or a
    one-patch video: no temporal one), and neither the union nor the intersection is taken over it. With no score at
    all, because no signal is wanted or the prompt has none of the wanted ones, every valid token weighs 1: the prompt
    trains as in plain policy optimisation.

    ``binary`` gives key tokens 1 and the others 0. The soft forms weigh every valid token, and each completion's
    weights have mean 1 over its valid tokens; the selections are then only counted.

    Args:
        scores: float (G, C) for each signal among ``settings.signals``, finite on valid tokens.
        valid_GC: True up to and including the first end token.
        settings: ratios, scope, combination and form of the weights.

    Raises:
        ValueError: when a score is not finite on a valid token, or a signal is not among the settings'.
    """
    valid_GC = valid_GC.bool()
    for signal, score_GC in scores.items():
        if signal not in settings.signals:
            raise ValueError(f"a {signal} score was given, but the signals are {list(settings.signals)}")
        assert score_GC.shape == valid_GC.shape, f"{signal}: {tuple(score_GC.shape)} against {tuple(valid_GC.shape)}"
        if not bool(torch.isfinite(score_GC[valid_GC]).all()):
            raise ValueError(f"the {signal} score of a valid token is not finite: its log-probs overflowed")
    names = [signal for signal in SIGNALS if signal in scores]
    selected = {name: select(scores[name], valid_GC, settings.ratio(name), settings.scope) for name in names}
    key_GC = combine_selections(list(selected.values()), settings.combine) if names else valid_GC
    if settings.weights == "binary" or not names:
        weights_GC = key_GC.float()
    else:
        weights_GC = soft_weights([scores[name] for name in names], valid_GC, settings.weights)
    return TokenWeights(weights_GC, selected, _count(selected, key_GC, valid_GC))


def soft_weights(scores: Iterable[Tensor], valid_GC: Tensor, form: str) -> Tensor:
    """Soft weights of every valid token, averaged over the signals and scaled to mean 1 in each completion.

    Each signal's scores are standardised within a completion (population standard deviation; equal scores give 0).
    Of the standardised score z and the n valid tokens: ``softmax`` is n softmax(z), ``sigmoid`` is sigmoid(z),
    ``linear`` is rank / n (1 for the lowest score, n for the highest, ties share their mean rank), ``exponential`` is
    exp(z), at most 5. The paper compares these four forms without giving their formulas; these are ours.

    Returns:
        float32 (G, C), 0 outside `valid_GC`.
    """
    if form not in WEIGHT_FORMS or form == "binary":
        raise ValueError(f"weights must be one of {', '.join(WEIGHT_FORMS[1:])}; got {form!r}")
    mean_GC = torch.stack([_soft(score_GC, valid_GC.bool(), form) for score_GC in scores]).mean(dim=0)
    num_valid_G1 = valid_GC.sum(dim=1, keepdim=True)
    total_G1 = mean_GC.sum(dim=1, keepdim=True)
    return torch.where(valid_GC.bool(), mean_GC * num_valid_G1 / total_G1.clamp(min=1e-12), 0.0).float()


def _soft(score_GC: Tensor, valid_GC: Tensor, form: str) -> Tensor:
    num_valid_G1 = valid_GC.sum(dim=1, keepdim=True).clamp(min=1)
    score_GC = torch.where(valid_GC, score_GC.double(), 0.0)
    if form == "linear":
        weights_GC = _mean_rank(score_GC, valid_GC) / num_valid_G1
    else:
        centred_GC = torch.where(valid_GC, score_GC - score_GC.sum(dim=1, keepdim=True) / num_valid_G1, 0.0)
        deviation_G1 = (centred_GC.square().sum(dim=1, keepdim=True) / num_valid_G1).sqrt()
        z_GC = torch.where(deviation_G1 > 0, centred_GC / deviation_G1, 0.0)
        if form == "softmax":
            weights_GC = num_valid_G1 * z_GC.masked_fill(~valid_GC, -torch.inf).softmax(dim=1)
        elif form == "sigmoid":
            weights_GC = z_GC.sigmoid()
        else:
            weights_GC = z_GC.exp().clamp(max=EXPONENTIAL_CAP)
    return torch.where(valid_GC, weights_GC, 0.0)


def _mean_rank(score_GC: Tensor, valid_GC: Tensor) -> Tensor:
    """Rank among the valid scores of a row, 1 for the lowest; ties share the mean of their ranks."""
    ranked_GC = score_GC.masked_fill(~valid_GC, torch.inf)
    ascending_GC = ranked_GC.sort(dim=1).values
    lower_GC = torch.searchsorted(ascending_GC, ranked_GC.contiguous(), right=False)
    not_higher_GC = torch.searchsorted(ascending_GC, ranked_GC.contiguous(), right=True)
    return (lower_GC + 1 + not_higher_GC).double() / 2


def _count(selected: Mapping[str, Tensor], key_GC: Tensor, valid_GC: Tensor) -> Counter[str]:
    num_valid = int(valid_GC.sum())
    counts = Counter({"valid": num_valid, "key": int(key_GC.sum())})
    counts["plain"] = 0 if selected else num_valid
    for name, chosen_GC in selected.items():
        counts[f"kept/{name}"] = int(chosen_GC.sum())
        counts[f"of/{name}"] = num_valid
    if selected:
        counts["kept/union"] = int(combine_selections(list(selected.values())).sum())
        counts["of/union"] = num_valid
    for (first, first_GC), (second, second_GC) in combinations(selected.items(), 2):
        counts[f"both/{first}_{second}"] = int((first_GC & second_GC).sum())
        counts[f"either/{first}_{second}"] = int((first_GC | second_GC).sum())
    return counts


def share_metrics(counts: Iterable[Mapping[str, int]]) -> dict[str, float]:
    """Shares pooled over the tokens of several prompts.

    ``kept/<signal>`` and ``kept/union``: kept tokens of the valid ones, over prompts that have the signal (any signal).
    ``kept/key``: tokens in the final combination (all, for prompts without a signal). ``kept/plain``: valid tokens of
    prompts without a signal. ``overlap/<a>_<b>``: tokens kept by both signals, of those kept by either. A share of
    nothing is left out.

    Args:
        counts: the `TokenWeights.counts` of each prompt; those of several processes may be added before.
    """
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    metrics: dict[str, float] = {}
    if total["valid"]:
        metrics["kept/key"] = total["key"] / total["valid"]
        metrics["kept/plain"] = total["plain"] / total["valid"]
    for name, amount in sorted(total.items()):
        kind, _, rest = name.partition("/")
        if kind == "of" and amount:
            metrics[f"kept/{rest}"] = total[f"kept/{rest}"] / amount
        elif kind == "either" and amount:
            metrics[f"overlap/{rest}"] = total[f"both/{rest}"] / amount
    return metrics
