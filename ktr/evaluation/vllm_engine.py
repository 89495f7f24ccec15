"""Evaluation with vLLM in this process: the frames and prompts are the project's own, vLLM only decodes tokens.

Frames go in resized and sampled (`do_sample_frames` off) with their metadata, so prompts hold the same placeholders as
everywhere else; a prompt that vLLM reads as other tokens is refused. vLLM is imported when the engine is built.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ktr.rollout.engine import Completion, SamplingSettings

if TYPE_CHECKING:
    from ktr.models.encoded_prompt import EncodedPrompt
    from ktr.models.families import Family

_VIDEO = "<|video_pad|>"
_MARKED_VIDEO = f"<|vision_start|>{_VIDEO}<|vision_end|>"
_NORMALIZE_ON_DEVICE = "mm_device_do_normalize"
_ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}


class VllmEngine:
    """Generates with vLLM.

    Args:
        path: checkpoint folder or hub name.
        family: for the ids that must not be drawn.
        tokenizer: decodes completions.
        dtype: `float32`, `bfloat16` or `float16`.
        max_model_len: longest prompt and completion together, in tokens; at most the model's own, which None is.
        options: further arguments of `vllm.LLM`, such as `kv_cache_memory_bytes`.

    Raises:
        ValueError: vLLM is not installed.
    """

    def __init__(
        self,
        path: str,
        *,
        family: Family,
        tokenizer: Any,
        dtype: str = "bfloat16",
        max_model_len: int | None = None,
        **options: Any,
    ) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from transformers import AutoConfig

        try:
            from vllm import LLM
            from vllm.engine.arg_utils import EngineArgs
        except ImportError as error:
            raise ValueError("eval.engine=vllm needs vLLM: pip install 'ktr[vllm]', or use transformers") from error
        if _NORMALIZE_ON_DEVICE in {field.name for field in dataclasses.fields(EngineArgs)}:
            # On the device vLLM normalises videos with the mean of the image processor, which need not be theirs.
            options.setdefault(_NORMALIZE_ON_DEVICE, False)
        self.family = family
        self.tokenizer = tokenizer
        if max_model_len is not None:
            max_model_len = min(
                max_model_len, AutoConfig.from_pretrained(path).get_text_config().max_position_embeddings
            )
        self.llm = LLM(
            path,
            dtype=dtype,
            max_model_len=max_model_len,
            limit_mm_per_prompt={"video": 1, "image": 1},
            **options,
        )

    def generate(
        self,
        prompts: Sequence[EncodedPrompt],
        num_completions: int,
        settings: SamplingSettings,
        seed: int,
        progress: bool = False,
    ) -> list[list[Completion]]:
        """`num_completions` completions of every prompt; see `RolloutEngine.generate`.

        Raises:
            ValueError: vLLM expands a prompt to other tokens than the project's own encoder.
        """
        from vllm import SamplingParams

        sampling = SamplingParams(
            n=num_completions,
            max_tokens=settings.max_new_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k or -1,
            seed=None if settings.greedy else seed,
            logit_bias={token: -100.0 for token in self.family.placeholder_ids},
        )
        timestamps = self.family.splits_video_by_timestamp
        requests = [vllm_prompt(prompt, timestamps=timestamps) for prompt in prompts]
        outputs = self.llm.generate(requests, sampling, use_tqdm=progress)
        for prompt, output in zip(prompts, outputs, strict=True):
            ours, theirs = prompt.input_ids_P.tolist(), list(output.prompt_token_ids)
            if ours != theirs:
                raise ValueError(
                    f"row {prompt.row.id!r}: vLLM reads the prompt as {len(theirs)} tokens and the project as "
                    f"{len(ours)} others; the versions of vLLM and transformers do not fit each other"
                )
        return [[self._completion(one) for one in output.outputs] for output in outputs]

    def _completion(self, output: Any) -> Completion:
        ids = tuple(output.token_ids)
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return Completion(ids, text, None, output.finish_reason == "length")


def vllm_prompt(prompt: EncodedPrompt, *, timestamps: bool = False) -> dict[str, Any]:
    """A prompt as vLLM takes it: chat text, and frames `(T, H, W, 3)` with the facts of their video.

    With `timestamps` (Qwen3-VL) the metadata count frames in seconds, so that the processor writes the presentation
    time of each grid, whatever the source's frame rate does; otherwise they hold the rate that gives the prompt's own
    seconds a grid.
    """
    # Where every grid has markers and a timestamp of its own, those that the chat template writes around the video go.
    text = prompt.text.replace(_MARKED_VIDEO, _VIDEO) if timestamps else prompt.text
    request: dict[str, Any] = {"prompt": text}
    frames = prompt.frames
    if frames is None:
        return request
    pixels_THW3 = frames.pixels_T3HW.permute(0, 2, 3, 1).contiguous().numpy()
    if frames.kind == "image":
        request["multi_modal_data"] = {"image": pixels_THW3[0]}
        request["mm_processor_kwargs"] = {"do_resize": False}
        return request
    fps, total = frames.fps, frames.total_frames
    indices: list[float] = list(frames.indices)
    if timestamps:
        fps, indices = 1.0, list(frames.times)
    elif prompt.second_per_grid:
        # The processor takes len(frames) / total * fps as the rate of the frames shown: two of them fill a grid.
        fps = 2.0 / prompt.second_per_grid * total / len(indices)
    metadata = {
        "fps": fps,
        "total_num_frames": total,
        "duration": total / fps if fps else frames.duration,
        "frames_indices": indices,
        "video_backend": "numpy",
        "do_sample_frames": False,
    }
    request["multi_modal_data"] = {"video": [(pixels_THW3, metadata)]}
    request["mm_processor_kwargs"] = {"do_resize": False, "do_sample_frames": False}
    return request
