"""Packed rows: a prompt once, then every completion of it, in one sequence.

A row is `[prompt without its last token][segment 1] ... [segment k]`. Each segment opens with a copy of the prompt's
last token and goes on with the completion without its last token, so position `j` of a segment predicts completion
token `j` and ordinary shifted labels hold inside a segment. Every segment sees the prompt and itself, and its
positions restart after the prompt, so each completion gets exactly the log-probs of a row of its own.

Shapes: B rows, L tokens of the longest row, N completions over all groups, C tokens of the longest completion,
P prompt tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from ktr.models.attention import GROUP_SDPA, PAD_SEGMENT, PROMPT_SEGMENT

IGNORED_LABEL = -100


@dataclass(frozen=True, eq=False)
class PackedPrompt:
    """What packing needs of a prompt: ids `(P,)`, mRoPE positions `(3, P)`, the position after it."""

    input_ids_P: torch.Tensor
    position_ids_3P: torch.Tensor
    next_position: int

    def without(self, dropped_P: torch.Tensor) -> PackedPrompt:
        """The prompt without the tokens marked in `dropped_P` (bool); the others keep their positions.

        Equal to masking the attention to the dropped tokens, at the cost of a shorter row.
        """
        kept_P = ~dropped_P
        assert bool(kept_P[-1]), "the last prompt token opens every segment and cannot be dropped"
        return PackedPrompt(self.input_ids_P[kept_P], self.position_ids_3P[:, kept_P], self.next_position)


@dataclass(frozen=True)
class RowPlan:
    """One packed row: a group and the completions of it (indices within the group) that the row holds."""

    group: int
    completions: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """Padded packed rows, ready for the model's top-level forward.

    `labels_BL` are already shifted. `segments_BL` is 0 in the prompt, 1..k in the completions, -1 in padding. The S
    labelled positions of the flattened rows are `sources_S`; `targets_S3` says (group, completion, token) of each.
    """

    rows: tuple[RowPlan, ...]
    input_ids_BL: torch.Tensor
    position_ids_3BL: torch.Tensor
    segments_BL: torch.Tensor
    labels_BL: torch.Tensor
    sources_S: torch.Tensor
    targets_S3: torch.Tensor

    def attention_mask(self, implementation: str = "sdpa") -> torch.Tensor | BlockMask:
        """What the rows may attend to, in the form of the model's attention `implementation`.

        `(B, L)` where every row holds one completion; else the segments, `(B, 1, 1, L)`, for `group_sdpa`, a block mask
        for `flex_attention`, which skips the blocks that no segment sees, or the group mask, `(B, 1, L, L)`, boolean
        for `sdpa` and added to the scores by `eager`.

        Raises:
            ValueError: the implementation takes no mask of pairs, so several completions cannot share a row.
        """
        if all(len(row.completions) == 1 for row in self.rows):
            return (self.segments_BL != PAD_SEGMENT).long()
        if implementation == GROUP_SDPA:
            return self.segments_BL[:, None, None]
        if implementation == "flex_attention":
            return group_block_mask(self.segments_BL)
        if implementation == "sdpa":
            return group_mask(self.segments_BL)
        if implementation == "eager":
            blank = torch.zeros((), device=self.segments_BL.device)
            return torch.where(group_mask(self.segments_BL), blank, torch.finfo(blank.dtype).min)
        raise ValueError(
            f"attention {implementation!r} cannot read packed rows: set model.attn_implementation to sdpa, "
            "flex_attention or eager, or trainer.packing=false"
        )


def group_mask(segments_BL: torch.Tensor) -> torch.Tensor:
    """`(B, 1, L, L)` boolean mask: causal, and a key is seen if it is the prompt's or of the query's own segment.

    Padding sees itself only, so that no query attends to nothing.
    """
    length = segments_BL.shape[1]
    place_L = torch.arange(length, device=segments_BL.device)
    return _sees(segments_BL[:, :, None], segments_BL[:, None, :], place_L[:, None], place_L[None])[:, None]


def group_block_mask(segments_BL: torch.Tensor) -> BlockMask:
    """`group_mask` as FlexAttention's block mask."""

    def sees(b: torch.Tensor, h: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return _sees(segments_BL[b, query], segments_BL[b, key], query, key)

    rows, length = segments_BL.shape
    return create_block_mask(sees, rows, None, length, length, device=segments_BL.device)


def _sees(
    query_segment: torch.Tensor, key_segment: torch.Tensor, query: torch.Tensor, key: torch.Tensor
) -> torch.Tensor:
    token = (query_segment != PAD_SEGMENT) & (key_segment != PAD_SEGMENT)
    related = (key_segment == PROMPT_SEGMENT) | (key_segment == query_segment)
    return (token & related & (key <= query)) | (query == key)


def row_length(prompt_tokens: int, completion_tokens: Sequence[int]) -> int:
    """Tokens of a packed row: the prompt but its last token, then one token per completion token."""
    return prompt_tokens - 1 + sum(completion_tokens)


def plan_rows(
    prompt_tokens: Sequence[int],
    completion_tokens: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    packing: bool = True,
) -> list[RowPlan]:
    """Rows for the groups, each of at most `max_tokens` tokens; a group that does not fit is split.

    A completion that alone with its prompt exceeds the budget gets a row of its own (it cannot be split). With
    `packing=False` every completion has its own row, as trainers do that repeat the prompt.
    """
    rows: list[RowPlan] = []
    for group, (prompt_length, lengths) in enumerate(zip(prompt_tokens, completion_tokens, strict=True)):
        current: list[int] = []
        used = prompt_length - 1
        for index, length in enumerate(lengths):
            full = used + length > max_tokens or not packing
            if current and full:
                rows.append(RowPlan(group, tuple(current)))
                current, used = [], prompt_length - 1
            current.append(index)
            used += length
        rows.append(RowPlan(group, tuple(current)))
    return rows


def batch_rows(lengths: Sequence[int], *, max_tokens: int) -> list[list[int]]:
    """Indices of rows forwarded together, longest first: padded size at most `max_tokens` (one row at least), and no
    row shorter than half of the longest, so that less than half of a forward is padding."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        longest = lengths[batches[-1][0]] if batches else 0
        if batches and longest * (len(batches[-1]) + 1) <= max_tokens and 2 * lengths[index] >= longest:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def pack_rows(
    rows: Sequence[RowPlan],
    prompts: Sequence[PackedPrompt],
    completions: Sequence[Sequence[Sequence[int]]],
    *,
    pad_token_id: int,
    blank_ids: Sequence[int] = (),
    device: torch.device | str = "cpu",
) -> PackedBatch:
    """Tensors of the rows. `completions[g][i]` are the token ids of completion `i` of group `g` (never empty).

    `blank_ids` stand past the end of the first row, as padding that has an id (see `ktr.models.blank_media`).
    """
    lengths = [
        row_length(len(prompts[row.group].input_ids_P), [len(completions[row.group][i]) for i in row.completions])
        for row in rows
    ]
    batch, longest = len(rows), max(lengths) + len(blank_ids)
    input_ids_BL = torch.full((batch, longest), pad_token_id, dtype=torch.long)
    position_ids_3BL = torch.zeros(3, batch, longest, dtype=torch.long)
    segments_BL = torch.full((batch, longest), PAD_SEGMENT, dtype=torch.long)
    labels_BL = torch.full((batch, longest), IGNORED_LABEL, dtype=torch.long)
    if blank_ids:
        input_ids_BL[0, -len(blank_ids) :] = torch.tensor(blank_ids)
    sources: list[torch.Tensor] = []
    targets: list[torch.Tensor] = []
    for b, row in enumerate(rows):
        prompt = prompts[row.group]
        start = len(prompt.input_ids_P) - 1
        input_ids_BL[b, :start] = prompt.input_ids_P[:-1]
        position_ids_3BL[:, b, :start] = prompt.position_ids_3P[:, :-1]
        segments_BL[b, :start] = PROMPT_SEGMENT
        for segment, index in enumerate(row.completions, start=1):
            token_ids = torch.as_tensor(completions[row.group][index], dtype=torch.long)
            steps = torch.arange(len(token_ids))
            end = start + len(token_ids)
            input_ids_BL[b, start] = prompt.input_ids_P[-1]
            input_ids_BL[b, start + 1 : end] = token_ids[:-1]
            position_ids_3BL[:, b, start] = prompt.position_ids_3P[:, -1]
            position_ids_3BL[:, b, start + 1 : end] = prompt.next_position + steps[:-1]
            segments_BL[b, start:end] = segment
            labels_BL[b, start:end] = token_ids
            sources.append(b * longest + start + steps)
            targets.append(torch.stack([torch.full_like(steps, row.group), torch.full_like(steps, index), steps], -1))
            start = end
    return PackedBatch(
        tuple(rows),
        input_ids_BL.to(device),
        position_ids_3BL.to(device),
        segments_BL.to(device),
        labels_BL.to(device),
        torch.cat(sources).to(device),
        torch.cat(targets).to(device),
    )


def unpack(values_BL: torch.Tensor, batch: PackedBatch, into_NC: torch.Tensor, first_N: torch.Tensor) -> torch.Tensor:
    """`into_NC` with the values of the packed rows' labelled positions put in place (differentiable).

    `first_N[g]` is the index in N of group `g`'s first completion.
    """
    group_S, completion_S, token_S = batch.targets_S3.unbind(-1)
    flat_S = (first_N[group_S] + completion_S) * into_NC.shape[1] + token_S
    picked_S = values_BL.reshape(-1)[batch.sources_S].to(into_NC.dtype)
    return into_NC.reshape(-1).index_put((flat_S,), picked_S).view_as(into_NC)
