"""Loading a checkpoint: model, processor and family, the same way for a toy and for a released model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors import SafetensorError

from ktr.models.families import Family, family_of, unwrap_model

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, ProcessorMixin

logger = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Attention of the language model alone: the tower beside it runs on SDPA.
TEXT_ONLY = {"sdpa": "group_sdpa", "flex_attention": "flex_attention"}


class LoadedModel(NamedTuple):
    """A model in evaluation mode with what belongs to it."""

    model: PreTrainedModel
    processor: ProcessorMixin
    family: Family


class PromptParts(NamedTuple):
    """What encoding prompts needs of a checkpoint, for an engine that loads the weights itself."""

    processor: ProcessorMixin
    family: Family


def load_prompt_parts(path: str | Path) -> PromptParts:
    """Processor and family of a checkpoint without its weights. Raises ValueError like `load_model`."""
    from transformers import AutoProcessor

    name = str(path)
    config = _read_config(name)
    try:
        return PromptParts(AutoProcessor.from_pretrained(name, trust_remote_code=False), family_of(config))
    except (OSError, SafetensorError) as error:
        raise ValueError(f"checkpoint {name!r} is incomplete or damaged: {_first_line(error)}") from error


def load_model(
    path: str | Path,
    *,
    dtype: str = "float32",
    attn_implementation: str = "sdpa",
    freeze_vision: bool = True,
    device: str | torch.device | None = None,
) -> LoadedModel:
    """Loads a Qwen2-VL, Qwen2.5-VL or Qwen3-VL checkpoint; code in the checkpoint is never run.

    Args:
        path: a folder, or a name `owner/model` on the Hugging Face Hub.
        dtype: `float32`, `bfloat16` or `float16`.
        attn_implementation: `sdpa` (in the language model its equal that skips what packed rows mask, see
            `ktr.models.attention`), `flex_attention` (in the language model, on CUDA), `eager`, or another attention
            function of transformers.
        freeze_vision: no gradient for the vision tower (its merger included).
        device: where to put the model; None leaves it on the CPU.

    Raises:
        ValueError: the checkpoint is missing or incomplete, its family or the dtype unknown.
    """
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from ktr.models.attention import set_text_attention

    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is unknown: use one of {', '.join(DTYPES)}")
    if attn_implementation == "flex_attention" and not torch.cuda.is_available():
        raise ValueError("model.attn_implementation=flex_attention learns on CUDA only: use sdpa")
    name = str(path)
    config = _read_config(name)
    family = family_of(config)
    try:
        processor = AutoProcessor.from_pretrained(name, trust_remote_code=False)
        model = AutoModelForImageTextToText.from_pretrained(
            name,
            config=config,
            dtype=DTYPES[dtype],
            attn_implementation="sdpa" if attn_implementation in TEXT_ONLY else attn_implementation,
            trust_remote_code=False,
        )
    except (OSError, SafetensorError) as error:
        raise ValueError(f"checkpoint {name!r} is incomplete or damaged: {_first_line(error)}") from error
    _check_tokenizer(name, processor, family)
    if attn_implementation in TEXT_ONLY:
        set_text_attention(model, TEXT_ONLY[attn_implementation])
    if freeze_vision:
        freeze_vision_tower(model)
    if device is not None:
        model.to(device)
    model.eval()
    logger.info("loaded %s (%s, %s parameters, %s)", name, family.name, f"{model.num_parameters():,}", dtype)
    return LoadedModel(model, processor, family)


def _check_tokenizer(name: str, processor: ProcessorMixin, family: Family) -> None:
    """Raises ValueError where the tokenizer is not the model's: its placeholders would be ordinary text."""
    tokens = {"<|image_pad|>": family.image_token_id, "<|video_pad|>": family.video_token_id}
    vocabulary = processor.tokenizer.get_vocab()
    wrong = [token for token, expected in tokens.items() if vocabulary.get(token) != expected]
    if wrong:
        raise ValueError(
            f"checkpoint {name!r}: its tokenizer does not know {', '.join(wrong)} as the model does; copy the "
            "tokenizer files of the checkpoint that the model was trained from"
        )


def load_processor(path: str | Path) -> tuple[ProcessorMixin, Family]:
    """Processor and family of a checkpoint, without its weights: enough to write and count prompts.

    Raises:
        ValueError: the checkpoint is missing or incomplete, or its family unknown.
    """
    from transformers import AutoConfig, AutoProcessor

    name = str(path)
    _check_exists(name)
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        processor = AutoProcessor.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"checkpoint {name!r} has no readable processor: {_first_line(error)}") from error
    return processor, family_of(config)


def freeze_vision_tower(model: torch.nn.Module) -> None:
    """Turns off gradients of the vision tower, so that its features can be computed once and shared."""
    unwrap_model(model).model.visual.requires_grad_(False)


def vision_is_frozen(model: torch.nn.Module) -> bool:
    """True where no parameter of the vision tower is trained."""
    return not any(parameter.requires_grad for parameter in unwrap_model(model).model.visual.parameters())


def _read_config(name: str) -> PreTrainedConfig:
    from transformers import AutoConfig

    _check_exists(name)
    try:
        return AutoConfig.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"checkpoint {name!r} has no readable config: {_first_line(error)}") from error


def _check_exists(name: str) -> None:
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ValueError(f"{name!r} is a folder without a config.json, so it is no checkpoint")
        return
    if folder.exists():
        raise ValueError(f"{name!r} is a file; give the checkpoint's folder")
    on_hub = name.count("/") == 1 and not name.startswith(("/", ".", "~"))
    if not on_hub:
        raise ValueError(f"no checkpoint at {name!r}: give an existing folder or a name owner/model on the Hub")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
