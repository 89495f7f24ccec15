"""Steps on rows of different kinds (video, image, text), on several ranks.

| `data.mixed_media` | a step |
|--------------------|--------|
| `blank`            | holds any rows; a forward is given blank media of the kinds it lacks, |
| `homogeneous`      | holds rows of one kind, on all ranks |
| `free`             | holds any rows; DDP waits for no one, ZeRO-3 and FSDP do |
| `auto`             | `blank` under ZeRO-3 and FSDP, `free` elsewhere |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from accelerate import Accelerator
from torch import nn
from transformers import TrainingArguments
from trl.models.utils import unwrap_model_for_generation

from ktr.data.rows import Row

AUTO, BLANK, HOMOGENEOUS, FREE = CHOICES = ("auto", "blank", "homogeneous", "free")


def shards_weights(arguments: TrainingArguments) -> bool:
    """Whether ranks hold parts of the weights and gather a module's together, whenever it runs (ZeRO-3, FSDP)."""
    plugin = arguments.deepspeed_plugin
    return bool(arguments.fsdp) or (plugin is not None and plugin.zero_stage == 3)


def needs_blank_media(setting: str, arguments: TrainingArguments) -> bool:
    if setting not in CHOICES:
        raise ValueError(f"data.mixed_media={setting!r} is unknown; choose one of {', '.join(CHOICES)}")
    return setting == BLANK or (setting == AUTO and shards_weights(arguments))


def step_kinds(setting: str, rows: Sequence[Row]) -> list[str] | None:
    """The kind of each row where a step's rows are to be of one kind."""
    return [row.modality for row in rows] if setting == HOMOGENEOUS else None


@contextmanager
def whole_weights(model: nn.Module | None, accelerator: Accelerator) -> Iterator[None]:
    """Inside, every rank holds all weights of a ZeRO-3 model, and no module waits for other ranks when it runs.

    So passes without gradient may differ between ranks in number and length: sampling, references, views. Elsewhere it
    does nothing. Collective: all ranks enter and leave.
    """
    plugin = accelerator.state.deepspeed_plugin
    if model is None or plugin is None or plugin.zero_stage != 3:
        yield
        return
    with unwrap_model_for_generation(model, accelerator), _without_step_hook(model):
        yield


@contextmanager
def _without_step_hook(engine: Any) -> Iterator[None]:
    """Leaves out the hook by which all ranks compare their modules' order whenever the whole model begins a forward.

    DeepSpeed adds it apart from the hooks that TRL takes away.
    """
    offload = getattr(engine.optimizer, "parameter_offload", engine.optimizer)
    if offload is None:
        yield
        return
    hooks, number = offload.module._forward_pre_hooks, offload.fwd_pre_hook.id
    hook = hooks.pop(number)
    try:
        yield
    finally:
        hooks[number] = hook
