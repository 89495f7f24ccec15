"""Our settings as the arguments of transformers' and TRL's trainers, in one place.

One optimizer step sees `batch_size` rows (SFT) or `groups_per_step` prompts (GRPO) a device, in `gradient_accumulation`
equal parts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig, SFTConfig

from ktr.config.schema_learning import GrpoConfig, OptimizationConfig, SftConfig


def sft_arguments(settings: SftConfig, output: Path, *, seed: int, workers: int, checkpointing: bool) -> SFTConfig:
    """Arguments of the supervised stage; the rows are prepared by our collator, not by TRL."""
    return SFTConfig(
        **_common(settings, output, seed=seed, workers=workers, checkpointing=checkpointing),
        per_device_train_batch_size=settings.batch_size // settings.gradient_accumulation,
        max_length=None,
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )


def grpo_arguments(
    settings: GrpoConfig,
    output: Path,
    *,
    seed: int,
    workers: int,
    checkpointing: bool,
    max_new_tokens: int,
    temperature: float,
    top_p: float,
    top_k: int,
) -> GRPOConfig:
    """Arguments of the RL stage; sampling is repeated here so that TRL's head divides by the same temperature."""
    return GRPOConfig(
        **_common(settings, output, seed=seed, workers=workers, checkpointing=checkpointing),
        per_device_train_batch_size=settings.groups_per_step // settings.gradient_accumulation * settings.group_size,
        steps_per_generation=settings.gradient_accumulation,
        num_generations=settings.group_size,
        num_iterations=settings.updates_per_batch,
        beta=settings.beta,
        max_completion_length=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        use_bias_correction_kl=False,
        log_completions=False,
        disable_dropout=True,
        shuffle_dataset=True,
    )


def distributed() -> bool:
    """Whether a launcher (torchrun, accelerate, srun) started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def _common(
    settings: OptimizationConfig, output: Path, *, seed: int, workers: int, checkpointing: bool
) -> dict[str, Any]:
    use_cpu = not torch.cuda.is_available()
    arguments: dict[str, Any] = {
        "output_dir": str(output),
        "seed": seed,
        "data_seed": seed,
        "max_steps": -1 if settings.max_steps is None else settings.max_steps,
        "num_train_epochs": settings.epochs,
        "gradient_accumulation_steps": settings.gradient_accumulation,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": settings.lr_scheduler,
        "warmup_steps": settings.warmup_steps,
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "bf16": settings.bf16,
        "logging_steps": settings.logging_steps,
        "logging_first_step": True,
        "save_strategy": "no" if settings.save_steps is None else "steps",
        "save_steps": settings.save_steps or 500,
        "save_total_limit": settings.save_total_limit,
        "gradient_checkpointing": checkpointing,
        "dataloader_num_workers": workers,
        "dataloader_pin_memory": not use_cpu,
        "remove_unused_columns": False,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": use_cpu,
        "optim": "adamw_torch",
    }
    if checkpointing:
        arguments["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    if distributed():
        # Buffers are constants here; broadcasting them would make ranks with fewer forwards wait.
        arguments["ddp_broadcast_buffers"] = False
        if use_cpu:
            arguments["ddp_backend"] = "gloo"
    return arguments
