"""LoRA (arXiv 2106.09685) on the language model. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peft import LoraConfig

# Every linear layer of the language model's blocks, the same in all families.
LANGUAGE_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def lora_config(
    *,
    rank: int = 16,
    alpha: float = 32,
    dropout: float = 0.0,
    target_modules: Sequence[str] = LANGUAGE_PROJECTIONS,
) -> LoraConfig:
    """PEFT's config of adapters on the language model's projections, for the trainer to apply.

    Args:
        rank, alpha, dropout: of the adapters.
        target_modules: some of `LANGUAGE_PROJECTIONS`. Layers of the vision tower that go by the same names (the MLP of
            Qwen2.5-VL's) get no adapters.

    Raises:
        ValueError: the rank is not positive, or a projection is unknown.
    """
    from peft import LoraConfig

    if rank < 1:
        raise ValueError(f"a LoRA rank must be at least 1, got {rank}")
    if unknown := [name for name in target_modules if name not in LANGUAGE_PROJECTIONS]:
        raise ValueError(f"target_modules may hold {', '.join(LANGUAGE_PROJECTIONS)}; got {', '.join(unknown)}")
    return LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=rf".*language_model.*\.({'|'.join(target_modules)})",
        task_type="CAUSAL_LM",
    )
