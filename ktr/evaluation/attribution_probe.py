"""How well the visual and temporal signals find the tokens that do depend on seeing and on order.

The toy world knows for each word of a reference rationale whether it is visual or temporal. The reference is scored
teacher-forced under the full, blind and shuffled views, and each signal is measured by its area under the ROC curve.

Shapes: C tokens of a reference, each group holding one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from tqdm.auto import tqdm
from trl.trainer.utils import add_fused_lm_head

from ktr.attribution.auroc import auroc
from ktr.attribution.settings import KeyTokenSettings
from ktr.data.rows import Row
from ktr.data.toy_world import TokenTruth
from ktr.models.loading import LoadedModel
from ktr.models.prompt_encoder import PromptEncoder
from ktr.training.key_tokens import KeyTokenAttributor
from ktr.training.scoring import GroupScorer, ScoringGroup, encode_once, valid_tokens


def attribution_aurocs(
    loaded: LoadedModel,
    encoder: PromptEncoder,
    rows: Sequence[Row],
    truth: Callable[[Row, Sequence[int]], TokenTruth],
    *,
    seed: int,
    settings: KeyTokenSettings | None = None,
    batch_rows: int = 32,
    progress: bool = True,
) -> dict[str, float | None]:
    """`visual_auroc` and `temporal_auroc` over all reference tokens of `rows`; None where one class is empty.

    Args:
        truth: labels of a row's reference, given its token ids.
        seed: of the shuffles.
        settings: views to score; by default dropped tokens and shuffled temporal patches.
    """
    settings = settings or KeyTokenSettings(signals=("visual", "temporal"))
    scorer = GroupScorer(encoder.family, pad_token_id=loaded.processor.tokenizer.pad_token_id, max_packed_tokens=16384)
    attributor = KeyTokenAttributor(scorer, encoder, settings, seed=seed)
    scores: dict[str, list[float]] = {signal: [] for signal in settings.signals}
    labels: dict[str, list[bool]] = {signal: [] for signal in settings.signals}
    fuse_head(loaded.model)
    loaded.model.eval()
    for start in tqdm(range(0, len(rows), batch_rows), desc="attribution", unit="batch", disable=not progress):
        batch = rows[start : start + batch_rows]
        groups = [ScoringGroup(encoder.encode(row), (tuple(encoder.target_ids(row)),)) for row in batch]
        groups = encode_once(encoder.family, loaded.model, groups)
        with torch.no_grad():
            full = scorer.score(loaded.model, groups)
        found = attributor.attribute(loaded.model, groups, full, valid_tokens(groups, full.logps_NC.device), step=0)
        for row, group, attribution in zip(batch, groups, found, strict=True):
            known = truth(row, group.completions[0])
            for signal, score_GC in attribution.scores.items():
                scores[signal] += score_GC[0, : len(group.completions[0])].tolist()
                labels[signal] += getattr(known, signal)
    return {
        f"{signal}_auroc": auroc(torch.tensor(scores[signal]), torch.tensor(labels[signal])) if scores[signal] else None
        for signal in settings.signals
    }


def fuse_head(model: nn.Module) -> None:
    """Gives a freshly loaded model TRL's tiled head, which trainers add by themselves; once is enough."""
    if "forward" not in vars(model):
        add_fused_lm_head(model, temperature=1.0, outputs=("log_probs", "entropy"))
