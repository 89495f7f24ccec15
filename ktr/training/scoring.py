"""Log-probs and entropies of every completion token under a view of the prompt, one packed row a group.

The full view carries the policy's gradient; the reference, the blind view (no video) and the shuffled views (frames in
another order) run without. All views keep the prompt's positions. Vision features are computed once where that is
exact: given from outside for a frozen tower, captured from the policy's own forward for a trained one.

Shapes: N completions over all groups, C tokens of the longest completion, B rows, L row tokens, P prompt tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ktr.models.attention import text_attention
from ktr.models.blank_media import NO_MEDIA, blank_media
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.families import (
    MEDIA_INPUTS,
    Family,
    VisionFeatures,
    permute_patches,
    permute_pixel_patches,
    unwrap_model,
    zero_features,
)
from ktr.models.feature_store import FeatureStore
from ktr.models.prompt_encoder import PromptEncoder
from ktr.training.packing import PackedPrompt, RowPlan, batch_rows, pack_rows, plan_rows, row_length, unpack


@dataclass(frozen=True, eq=False)
class ScoringGroup:
    """A prompt and token ids of its completions; `features` where the prompt's vision is already encoded."""

    prompt: EncodedPrompt
    completions: tuple[tuple[int, ...], ...]
    features: VisionFeatures | None = None
    drop_visual: bool = False

    @property
    def packed_prompt(self) -> PackedPrompt:
        prompt = self.prompt
        packed = PackedPrompt(prompt.input_ids_P, prompt.position_ids_3P, prompt.next_position)
        return packed.without(prompt.visual_mask_P) if self.drop_visual else packed


@dataclass(frozen=True, eq=False)
class TokenScores:
    """`logps_NC` (with gradient in the policy's full view), `entropy_NC` (detached, None where not computed) and, where
    asked for, the detached vision features of each group that this very forward computed."""

    logps_NC: torch.Tensor
    entropy_NC: torch.Tensor | None
    features: tuple[VisionFeatures | None, ...] | None = None


class GroupScorer:
    """Scores groups through a model whose head was fused by TRL's `add_fused_lm_head` (tiles, no logits kept).

    `max_packed_tokens` bounds the padded tokens of one forward: longer groups are split into sub-groups that share
    nothing, with the same result. `packing=False` gives every completion a row and a prompt of its own. With
    `blank_media`, forwards with gradient are given blank ones of the kinds they lack (see `ktr.models.blank_media`).
    """

    def __init__(
        self,
        family: Family,
        *,
        pad_token_id: int,
        max_packed_tokens: int,
        packing: bool = True,
        blank_media: bool = False,
    ) -> None:
        self.family = family
        self.pad_token_id = pad_token_id
        self.max_packed_tokens = max_packed_tokens
        self.packing = packing
        self.blank_media = blank_media

    def score(self, model: nn.Module, groups: Sequence[ScoringGroup], *, capture_vision: bool = False) -> TokenScores:
        """Scores of all completions of all groups, in order; positions past a completion's end are 0."""
        device = next(model.parameters()).device
        attention = text_attention(unwrap_model(model))
        prompts = [group.packed_prompt for group in groups]
        completions = [group.completions for group in groups]
        counts = torch.tensor([len(group.completions) for group in groups])
        first_N = (counts.cumsum(0) - counts).to(device)
        longest = max(len(ids) for group in groups for ids in group.completions)
        logps_NC = torch.zeros(int(counts.sum()), longest, device=device)
        entropy_NC: torch.Tensor | None = None
        captured: list[VisionFeatures | None] = [group.features for group in groups]
        for rows in self.forwards(groups):
            seen = [groups[row.group] for row in rows]
            vision = self._vision_inputs(seen, device)
            blank = blank_media(self.family, vision) if self.blank_media and torch.is_grad_enabled() else NO_MEDIA
            batch = pack_rows(
                rows, prompts, completions, pad_token_id=self.pad_token_id, blank_ids=blank.token_ids, device=device
            )
            capture: AbstractContextManager[list[VisionFeatures]] = (
                tower_outputs_of(model) if capture_vision else nullcontext([])
            )
            with capture as tower_outputs:
                output = model(
                    input_ids=batch.input_ids_BL,
                    position_ids=batch.position_ids_3BL,
                    attention_mask=batch.attention_mask(attention),
                    shift_labels=batch.labels_BL,
                    fused_lm_head=True,
                    use_cache=False,
                    **vision,
                    **{name: value.to(device) for name, value in blank.inputs.items()},
                )
            if blank.inputs:
                kinds = zip(MEDIA_INPUTS, tower_outputs, strict=True) if capture_vision else ()
                tower_outputs = [encoded for (_, pixels_key, _), encoded in kinds if pixels_key in vision]
            if tower_outputs:
                features = split_tower_outputs(tower_outputs, [group.prompt for group in seen])
                for row, encoded in zip(batch.rows, features, strict=True):
                    captured[row.group] = encoded
            logps_NC = unpack(output.log_probs, batch, logps_NC, first_N)
            if output.entropy is not None:
                blank_NC = torch.zeros_like(logps_NC, requires_grad=False) if entropy_NC is None else entropy_NC
                entropy_NC = unpack(output.entropy.detach(), batch, blank_NC, first_N)
        return TokenScores(logps_NC, entropy_NC, tuple(captured) if capture_vision else None)

    def forwards(self, groups: Sequence[ScoringGroup]) -> list[list[RowPlan]]:
        """The rows of each forward that scoring the groups takes, every completion in one of them."""
        prompt_tokens = [len(group.packed_prompt.input_ids_P) for group in groups]
        completion_tokens = [[len(ids) for ids in group.completions] for group in groups]
        rows = plan_rows(prompt_tokens, completion_tokens, max_tokens=self.max_packed_tokens, packing=self.packing)
        lengths = [
            row_length(prompt_tokens[row.group], [completion_tokens[row.group][i] for i in row.completions])
            for row in rows
        ]
        return [[rows[i] for i in batch] for batch in batch_rows(lengths, max_tokens=self.max_packed_tokens)]

    def _vision_inputs(self, groups: Sequence[ScoringGroup], device: torch.device) -> dict[str, object]:
        """The forward's vision arguments for one group a row: encoded features where given, else pixels."""
        seen = [group for group in groups if group.prompt.modality != "text" and not group.drop_visual]
        if not seen:
            return {}
        prompts = [group.prompt for group in seen]
        if all(group.features is not None for group in seen):
            return {"mm_encoder_outputs": self.family.mm_encoder_outputs([group.features for group in seen], prompts)}
        assert all(group.features is None for group in seen), "vision features are given for all groups or for none"
        inputs = self.family.forward_inputs(prompts)
        return {name: value.to(device) for name, value in inputs.items()}


def valid_tokens(groups: Sequence[ScoringGroup], device: torch.device | str = "cpu") -> torch.Tensor:
    """`(N, C)` bool: True up to and including each completion's last token."""
    lengths_N = torch.tensor([len(ids) for group in groups for ids in group.completions], device=device)
    return torch.arange(int(lengths_N.max()), device=device)[None] < lengths_N[:, None]


def encode_once(
    family: Family, model: nn.Module, groups: Sequence[ScoringGroup], store: FeatureStore | None = None
) -> list[ScoringGroup]:
    """The groups with their vision encoded by `model` or read from `store`, without gradient.

    Exact for as long as the tower is frozen. Each prompt is encoded alone, so that its features are the same to the bit
    whichever prompts stand beside it, and whether they were read or computed.
    """
    prompts = [group.prompt for group in groups]
    with torch.no_grad():
        if store is None:
            features = [encoded for prompt in prompts for encoded in family.encode_vision(model, [prompt])]
        else:
            features = store.encode(model, prompts)
    return [replace(group, features=encoded) for group, encoded in zip(groups, features, strict=True)]


@contextmanager
def tower_outputs_of(model: nn.Module) -> Iterator[list[VisionFeatures]]:
    """Detached outputs of the vision tower's forwards inside the block, in call order (images, then videos)."""
    outputs: list[VisionFeatures] = []

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        # The tensors, not `output`: the model replaces its fields by per-image pieces.
        layers = getattr(output, "deepstack_features", None) or ()
        outputs.append(VisionFeatures(output.pooler_output.detach(), tuple(layer.detach() for layer in layers)))

    handle = unwrap_model(model).model.visual.register_forward_hook(keep)
    try:
        yield outputs
    finally:
        handle.remove()


def split_tower_outputs(
    outputs: Sequence[VisionFeatures], prompts: Sequence[EncodedPrompt]
) -> list[VisionFeatures | None]:
    """Each prompt's features, from the tower's outputs over all images and then all videos of a forward."""
    features: list[VisionFeatures | None] = [None] * len(prompts)
    kinds = [kind for kind in ("image", "video") if any(prompt.modality == kind for prompt in prompts)]
    for kind, output in zip(kinds, outputs, strict=True):
        indices = [i for i, prompt in enumerate(prompts) if prompt.modality == kind]
        sizes = [int(prompts[i].visual_mask_P.sum()) for i in indices]
        pooled = output.pooled_MH.split(sizes)
        layers = [layer.split(sizes) for layer in output.deepstack]
        for number, i in enumerate(indices):
            features[i] = VisionFeatures(pooled[number], tuple(layer[number] for layer in layers))
    return features


def blind_groups(groups: Sequence[ScoringGroup], mode: str) -> list[ScoringGroup]:
    """The groups without their video or image (Video-KTR, section 3).

    `drop_tokens`: visual tokens are not in the row and the others keep their positions, which equals switching off
    the attention to them. `zero_features`: visual tokens stay and carry zeros in the place of the groups' features.
    """
    if mode == "drop_tokens":
        return [replace(group, drop_visual=True, features=None) for group in groups]
    if mode != "zero_features":
        raise ValueError(f"blind mode {mode!r} is unknown: use drop_tokens or zero_features")
    blind = []
    for group in groups:
        assert group.features is not None, "without features the view would be encoded from pixels and see everything"
        blind.append(replace(group, features=zero_features(group.features)))
    return blind


def shuffled_groups(
    groups: Sequence[ScoringGroup], orders: Sequence[Sequence[int]], granularity: str, encoder: PromptEncoder
) -> list[ScoringGroup]:
    """The groups with time reordered: `orders[g]` lists temporal patches (`patch`) or frames (`frame`).

    `patch` permutes encoded features where there are some, bit for bit equal to encoding the permuted video. `frame`
    encodes the reordered frames again, so its groups carry pixels.
    """
    if granularity == "frame":
        return [
            replace(group, prompt=encoder.with_frame_order(group.prompt, order), features=None)
            for group, order in zip(groups, orders, strict=True)
        ]
    if granularity != "patch":
        raise ValueError(f"shuffle granularity {granularity!r} is unknown: use patch or frame")
    return [_shuffled_patches(group, order) for group, order in zip(groups, orders, strict=True)]


def _shuffled_patches(group: ScoringGroup, order: Sequence[int]) -> ScoringGroup:
    if group.features is None:
        return replace(group, prompt=permute_pixel_patches(group.prompt, order))
    assert group.prompt.grid_thw is not None, "features were encoded from a grid"
    return replace(group, features=permute_patches(group.features, group.prompt.grid_thw, order))
