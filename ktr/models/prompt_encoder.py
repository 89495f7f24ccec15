"""From a row to the tensors of its prompt: chat text, token ids, positions, and pixels cut into patches.

P prompt tokens; N visual patches, D values of a patch; T frames, H and W pixels of a frame.

Frames come resized and sampled, so the processor's own resizing and sampling never run: its normalisation and
patchifying are called directly. Placeholders are expanded here, one for each merged patch. For Qwen3-VL every temporal
grid gets its timestamp from the frames' real times, and the markers that the chat template writes around the video are
replaced by those around each grid, as in the model's original processor and in vLLM (transformers 5 keeps both).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ktr.data.media import Frames, FrameSampling, load_frames, reorder_frames
from ktr.data.paths import MediaError, resolve_media
from ktr.data.prompts import PromptTemplate
from ktr.data.rows import Row, UnusableRowError
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.families import Family
from ktr.models.frame_cache import FrameCache
from ktr.models.positions import VisionSpan

if TYPE_CHECKING:
    from transformers import ProcessorMixin

    from ktr.data.frame_store import FrameStore

END_OF_TURN = "<|im_end|>"
_PADS = {"image": "<|image_pad|>", "video": "<|video_pad|>"}
_VISION_START, _VISION_END = "<|vision_start|>", "<|vision_end|>"


class PromptTooLongError(UnusableRowError):
    """A prompt has more tokens than allowed; nothing is ever cut off it."""


class PromptEncoder:
    """Encodes rows for one checkpoint.

    Args:
        processor: the checkpoint's processor; only its tokenizer, chat template, normalisation and patchifying serve.
        family: the checkpoint's family.
        template: writes the user message and the SFT target.
        sampling: which frames are read and how large they become.
        media_root: folder that relative media paths start from.
        decoder: video backend, `auto` for the first that works.
        max_prompt_tokens: longer prompts are refused; None for no limit.
        frame_cache_bytes: memory for decoded media.
        frame_store: decoded media on disk, read and filled; None decodes.

    Raises:
        ValueError: the processor cuts patches of another size than the model's.
    """

    def __init__(
        self,
        processor: ProcessorMixin,
        family: Family,
        template: PromptTemplate,
        sampling: FrameSampling,
        media_root: str | Path | None = None,
        decoder: str = "auto",
        max_prompt_tokens: int | None = None,
        frame_cache_bytes: int = 512 << 20,
        frame_store: FrameStore | None = None,
    ) -> None:
        for part in (processor.image_processor, processor.video_processor):
            sizes = (part.patch_size, part.merge_size, part.temporal_patch_size)
            expected = (family.patch_size, family.merge_size, family.temporal_patch_size)
            if sizes != expected:
                raise ValueError(
                    f"{type(part).__name__} cuts patches of (size, merge, frames) {sizes} and the model takes "
                    f"{expected}: load processor and model from the same checkpoint"
                )
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.family = family
        self.template = template
        self.sampling = sampling
        self.media_root = media_root
        self.decoder = decoder
        self.max_prompt_tokens = max_prompt_tokens
        self.frame_cache = FrameCache(frame_cache_bytes)
        self.frame_store = frame_store
        self._reserved = tuple(self.tokenizer.all_special_tokens)

    def encode(self, row: Row) -> EncodedPrompt:
        """The row's prompt with its media, read through the frame cache.

        Raises:
            MediaError: the media cannot be read.
            PromptTooLongError: more than `max_prompt_tokens` tokens.
            ValueError: the question holds one of the tokenizer's special tokens.
        """
        return self.encode_frames(row, self.load_frames(row))

    def load_frames(self, row: Row) -> Frames | None:
        """Decoded, sampled and resized media of a row, None for a text row. Raises MediaError, naming the row."""
        if row.media is None:
            return None
        frames = self.frame_cache.get(row.media)
        if frames is None:
            load = load_frames if self.frame_store is None else self.frame_store.load
            try:
                frames = load(
                    resolve_media(row.media, self.media_root),
                    row.media,
                    self.sampling,
                    factor=self.family.resize_factor,
                    decoder=self.decoder,
                )
            except MediaError as error:
                raise error.of_row(row.id) from error
            self.frame_cache.put(row.media, frames)
        return frames

    def encode_frames(self, row: Row, frames: Frames | None) -> EncodedPrompt:
        """The row's question about other frames than its own, or about none. Raises like `encode`."""
        user_text = self.template.render(row, frames.duration if frames is not None else None)
        for token in self._reserved:
            if token in user_text:
                raise ValueError(
                    f"row {row.id!r}: the prompt's text holds the special token {token!r}, which the model would read "
                    "as structure; remove it from the question or its options"
                )
        content = [{"type": "text", "text": user_text}]
        if frames is not None:
            content.insert(0, {"type": frames.kind})
        text = self.processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )
        if frames is None:
            input_ids_P = self._tokenize(text)
            self._check_length(row, len(input_ids_P))
            return EncodedPrompt(
                row=row,
                text=text,
                input_ids_P=input_ids_P,
                position_ids_3P=self.family.positions(input_ids_P, ()),
                visual_mask_P=torch.zeros(len(input_ids_P), dtype=torch.bool),
                modality="text",
            )
        pixel_values_ND, grid_thw = self._patchify(frames)
        placeholder_id = self.family.placeholder_id(frames.kind)
        second_per_grid = frames.second_per_grid if frames.kind == "video" else None
        span = VisionSpan(placeholder_id, grid_thw, second_per_grid)
        input_ids_P = self._expand(self._tokenize(self._with_timestamps(text, frames, grid_thw)), span)
        self._check_length(row, len(input_ids_P))
        return EncodedPrompt(
            row=row,
            text=text,
            input_ids_P=input_ids_P,
            position_ids_3P=self.family.positions(input_ids_P, [span]),
            visual_mask_P=input_ids_P == placeholder_id,
            modality=frames.kind,
            pixel_values_ND=pixel_values_ND,
            grid_thw=grid_thw,
            second_per_grid=second_per_grid,
            frames=frames,
        )

    def with_frame_order(self, prompt: EncodedPrompt, order: Sequence[int]) -> EncodedPrompt:
        """The prompt with its frames in another order, cut into patches again; ids, positions and times stay.

        Raises:
            ValueError: the prompt shows no video, or `order` is not a permutation of its frames.
        """
        if prompt.frames is None or prompt.modality != "video":
            raise ValueError(f"row {prompt.row.id!r} shows no video whose frames could change places")
        frames = reorder_frames(prompt.frames, order)
        pixel_values_ND, grid_thw = self._patchify(frames)
        assert grid_thw == prompt.grid_thw, "an order of frames cannot change the grid"
        return replace(prompt, pixel_values_ND=pixel_values_ND, frames=frames)

    def target_ids(self, row: Row) -> list[int]:
        """Tokens of the row's target completion for SFT, end of turn included.

        Raises:
            ValueError: the row has no target, or the target holds a special token.
        """
        target = self.template.target(row)
        for token in self._reserved:
            if token in target:
                raise ValueError(f"row {row.id!r}: the target holds the special token {token!r}; remove it")
        return self._tokenize(target + END_OF_TURN).tolist()

    def _tokenize(self, text: str) -> torch.Tensor:
        return torch.tensor(self.tokenizer(text, add_special_tokens=False)["input_ids"], dtype=torch.long)

    def _check_length(self, row: Row, length: int) -> None:
        if self.max_prompt_tokens is not None and length > self.max_prompt_tokens:
            raise PromptTooLongError(
                f"row {row.id!r}: the prompt has {length} tokens and data.max_prompt_tokens is "
                f"{self.max_prompt_tokens}; raise it, or lower the number of frames or pixels"
            )

    def _patchify(self, frames: Frames) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """Patches `(N, D)` and the grid of frames that are already at their final size."""
        part = self.processor.video_processor if frames.kind == "video" else self.processor.image_processor
        num_frames, _, height, width = frames.pixels_T3HW.shape
        if height % self.family.resize_factor or width % self.family.resize_factor:
            raise ValueError(
                f"frames of {height}x{width} pixels do not divide into patches: both must be multiples of "
                f"{self.family.resize_factor} for this model"
            )
        sizes = {
            "patch_size": self.family.patch_size,
            "merge_size": self.family.merge_size,
            "temporal_patch_size": self.family.temporal_patch_size,
        }
        shown = frames.pixels_T3HW if frames.kind == "video" else frames.pixels_T3HW[:1]
        pixels = part.rescale_and_normalize(
            shown,
            part.do_rescale,
            part.rescale_factor,
            part.do_normalize,
            tuple(part.image_mean),
            tuple(part.image_std),
        )
        rows, columns = height // self.family.patch_size, width // self.family.patch_size
        if frames.kind == "image":
            patches, grid_h, grid_w = part.patchify(pixels, **sizes)
            grid_thw = (1, grid_h, grid_w)
        else:
            assert num_frames % self.family.temporal_patch_size == 0, "videos hold whole temporal patches"
            patches, *grid = part.patchify(pixels[None], **sizes)
            grid_thw = (grid[0], grid[1], grid[2])
            assert grid_thw[0] == num_frames // self.family.temporal_patch_size
        assert grid_thw[1:] == (rows, columns), f"grid {grid_thw} for frames of {height}x{width}"
        return patches[0], grid_thw

    def _with_timestamps(self, text: str, frames: Frames, grid_thw: tuple[int, int, int]) -> str:
        """Chat text with one placeholder a span: for Qwen3-VL videos one timestamped span a temporal grid."""
        if frames.kind != "video" or not self.family.splits_video_by_timestamp:
            return text
        video = _VISION_START + _PADS["video"] + _VISION_END
        assert text.count(video) == 1, "the chat template writes one marked placeholder for the video"
        size = self.family.temporal_patch_size
        patches = [frames.times[first : first + size] for first in range(0, len(frames.times), size)]
        assert len(patches) == grid_thw[0], "one timestamp for each temporal grid"
        return text.replace(video, "".join(f"<{(times[0] + times[-1]) / 2:.1f} seconds>{video}" for times in patches))

    def _expand(self, input_ids_P: torch.Tensor, span: VisionSpan) -> torch.Tensor:
        """Repeats each placeholder once for every visual token of its span."""
        is_pad_P = input_ids_P == span.placeholder_id
        pads = int(is_pad_P.sum())
        tokens = span.num_tokens(self.family.merge_size)
        assert pads and tokens % pads == 0, f"{pads} placeholders in the chat text for {tokens} visual tokens"
        repeats_P = torch.where(is_pad_P, tokens // pads, 1)
        return input_ids_P.repeat_interleave(repeats_P)
