"""Completions of held-out rows with their tokens' signals, for the report and for `predict.py tokens=true`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ktr.attribution.settings import KeyTokenSettings
from ktr.data.rows import Row
from ktr.evaluation.attribution_probe import fuse_head
from ktr.evaluation.predict import split_reply
from ktr.evaluation.records import Record
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.loading import LoadedModel
from ktr.models.prompt_encoder import PromptEncoder
from ktr.reporting.tokens import TokenPage, frame_images, token_strings
from ktr.training.key_tokens import Attribution, KeyTokenAttributor
from ktr.training.scoring import GroupScorer, ScoringGroup, encode_once, valid_tokens

EXAMPLE_TOKENS = 32768


def example_pages(
    loaded: LoadedModel,
    encoder: PromptEncoder,
    rows: Sequence[Row],
    records: Sequence[Record],
    settings: KeyTokenSettings,
    *,
    seed: int,
) -> list[TokenPage]:
    """One page for each row that has a recorded reply; the reply is scored again under every view."""
    replies = {record.id: record for record in records}
    pages = []
    for row in rows:
        record = replies.get(row.id)
        if record is None or not record.reply:
            continue
        prompt = encoder.encode(row)
        token_ids = tuple(loaded.processor.tokenizer(record.reply, add_special_tokens=False)["input_ids"])
        if token_ids:
            found = completion_signals(loaded, encoder, prompt, token_ids, settings, seed=seed)
            rewards = {"accuracy": record.accuracy, "format": record.format}
            pages.append(token_page(loaded, prompt, token_ids, record.reply, found, gold=row.answer, rewards=rewards))
    return pages


def completion_signals(
    loaded: LoadedModel,
    encoder: PromptEncoder,
    prompt: EncodedPrompt,
    token_ids: tuple[int, ...],
    settings: KeyTokenSettings,
    *,
    seed: int,
) -> Attribution:
    """Signals `(1, C)` of one completion; without any signal in `settings` all three are shown."""
    if not settings.signals:
        settings = KeyTokenSettings()
    fuse_head(loaded.model)
    loaded.model.eval()
    pad = loaded.processor.tokenizer.pad_token_id
    scorer = GroupScorer(encoder.family, pad_token_id=pad, max_packed_tokens=EXAMPLE_TOKENS)
    groups = encode_once(encoder.family, loaded.model, [ScoringGroup(prompt, (token_ids,))])
    with torch.no_grad():
        full = scorer.score(loaded.model, groups)
    attributor = KeyTokenAttributor(scorer, encoder, settings, seed=seed)
    return attributor.attribute(loaded.model, groups, full, valid_tokens(groups, full.logps_NC.device), step=0)[0]


def token_page(
    loaded: LoadedModel,
    prompt: EncodedPrompt,
    token_ids: tuple[int, ...],
    reply: str,
    found: Attribution,
    *,
    gold: str | None = None,
    rewards: dict[str, float | None] | None = None,
) -> TokenPage:
    """What the report shows of one completion."""
    frames = () if prompt.frames is None else frame_images(prompt.frames.pixels_T3HW, prompt.frames.times)
    return TokenPage(
        heading=prompt.row.category or prompt.row.problem_type,
        prompt=prompt.row.question,
        tokens=token_strings(loaded.processor.tokenizer, token_ids),
        scores={signal: score_GC[0].tolist() for signal, score_GC in found.scores.items()},
        selected={signal: chosen_GC[0].tolist() for signal, chosen_GC in found.weights.selected.items()},
        weights=found.weights.weights_GC[0].tolist(),
        frames=frames,
        gold=gold,
        answer=split_reply(reply)[1],
        rewards=rewards or {},
    )
