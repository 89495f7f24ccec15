"""Runs the counterfactual views of scored groups and turns them into token weights (Video-KTR, arXiv 2601.19686).

The arithmetic is `ktr.attribution`'s; here are the passes: one blind view and K shuffled views for the groups that can
have them, without gradient, through the same (wrapped) model and packed rows as the policy's own pass.

Shapes: N completions over all groups, G completions of one group, C tokens of the longest completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from ktr.attribution.scores import entropy_score, temporal_score, visual_score
from ktr.attribution.settings import KeyTokenSettings
from ktr.attribution.views import available_signals, permutations, shuffle_seed
from ktr.attribution.weights import TokenWeights, token_weights
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.prompt_encoder import PromptEncoder
from ktr.training.scoring import GroupScorer, ScoringGroup, TokenScores, blind_groups, shuffled_groups


@dataclass(frozen=True, eq=False)
class Attribution:
    """One group's signals `(G, C)` by name, and the weights they give its tokens."""

    scores: dict[str, torch.Tensor]
    weights: TokenWeights


class KeyTokenAttributor:
    """Scores the views that `settings` asks for.

    Args:
        seed: of the run; with a step and a prompt's id it seeds that prompt's shuffles.
    """

    def __init__(self, scorer: GroupScorer, encoder: PromptEncoder, settings: KeyTokenSettings, *, seed: int) -> None:
        self.scorer = scorer
        self.encoder = encoder
        self.settings = settings
        self.seed = seed

    @torch.no_grad()
    def attribute(
        self,
        model: nn.Module,
        groups: Sequence[ScoringGroup],
        full: TokenScores,
        valid_NC: torch.Tensor,
        *,
        step: int,
    ) -> list[Attribution]:
        """Signals and weights of each group, from the policy's full view and passes of the other views.

        Args:
            full: the policy's scores of the same groups; its captured vision features serve the views.
            step: at which the completions were sampled; it seeds the shuffles.
        """
        settings = self.settings
        if full.features is not None:
            groups = [replace(group, features=f) for group, f in zip(groups, full.features, strict=True)]
        spans = _spans(groups)
        wanted = [
            available_signals(group.prompt.modality, num_grids(group.prompt), settings.signals) for group in groups
        ]
        full_NC = full.logps_NC.detach().float()
        scores: list[dict[str, torch.Tensor]] = [{} for _ in groups]
        for g, (start, end) in enumerate(spans):
            if "entropy" in wanted[g]:
                assert full.entropy_NC is not None, "the policy's head was fused without entropies"
                scores[g]["entropy"] = entropy_score(full.entropy_NC[start:end].float(), valid_NC[start:end])
        seen = [g for g in range(len(groups)) if "visual" in wanted[g]]
        if seen:
            blind = self._logps(model, blind_groups([groups[g] for g in seen], settings.blind), full_NC.shape[1])
            for g, blind_GC in zip(seen, blind, strict=True):
                start, end = spans[g]
                scores[g]["visual"] = visual_score(full_NC[start:end], blind_GC, valid_NC[start:end], settings.delta)
        moving = [g for g in range(len(groups)) if "temporal" in wanted[g]]
        if moving:
            shuffles = self._shuffles(model, [groups[g] for g in moving], step, full_NC.shape[1])
            for g, shuffled_KGC in zip(moving, shuffles, strict=True):
                start, end = spans[g]
                scores[g]["temporal"] = temporal_score(
                    full_NC[start:end], shuffled_KGC, valid_NC[start:end], settings.delta
                )
        return [
            Attribution(found, token_weights(found, valid_NC[start:end], settings))
            for found, (start, end) in zip(scores, spans, strict=True)
        ]

    def _shuffles(self, model: nn.Module, groups: Sequence[ScoringGroup], step: int, width: int) -> list[torch.Tensor]:
        """Log-probs `(K, G, C)` of each group under its shuffles; short videos have fewer than K of them."""
        settings = self.settings
        orders = [self._orders(group.prompt, step) for group in groups]
        found: list[list[torch.Tensor]] = [[] for _ in groups]
        for k in range(max(len(of_group) for of_group in orders)):
            active = [g for g, of_group in enumerate(orders) if k < len(of_group)]
            view = shuffled_groups(
                [groups[g] for g in active], [orders[g][k] for g in active], settings.granularity, self.encoder
            )
            for g, logps_GC in zip(active, self._logps(model, view, width), strict=True):
                found[g].append(logps_GC)
        return [torch.stack(of_group) for of_group in found]

    def _orders(self, prompt: EncodedPrompt, step: int) -> list[list[int]]:
        grids = num_grids(prompt)
        size = grids if self.settings.granularity == "patch" else grids * self.encoder.family.temporal_patch_size
        return permutations(size, self.settings.permutations, shuffle_seed(self.seed, step, prompt.row.id))

    def _logps(self, model: nn.Module, groups: Sequence[ScoringGroup], width: int) -> list[torch.Tensor]:
        logps_NC = self.scorer.score(model, groups).logps_NC.float()
        padded_NC = torch.nn.functional.pad(logps_NC, (0, width - logps_NC.shape[1]))
        return [padded_NC[start:end] for start, end in _spans(groups)]


def num_grids(prompt: EncodedPrompt) -> int:
    """Temporal patches of a prompt's media; 0 for text."""
    return 0 if prompt.grid_thw is None else prompt.grid_thw[0]


def _spans(groups: Sequence[ScoringGroup]) -> list[tuple[int, int]]:
    spans, start = [], 0
    for group in groups:
        spans.append((start, start + len(group.completions)))
        start += len(group.completions)
    return spans
