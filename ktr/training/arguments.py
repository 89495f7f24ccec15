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
from ktr.data.prefetch import BATCHES_AHEAD
from ktr.rollout.engine import SamplingSettings
from ktr.training.objective_settings import ObjectiveSettings

# TRL options that act in methods which the GRPO trainer replaces, with the value that leaves them off.
UNSUPPORTED = {
    "use_vllm": False,
    "use_transformers_continuous_batching": False,
    "generation_kwargs": None,
    "repetition_penalty": 1.0,
    "min_p": None,
    "cache_implementation": None,
    "chat_template_kwargs": None,
    "num_generations_eval": None,
    "shuffle_dataset": True,
    "remove_unused_columns": False,
    "reward_weights": None,
    "scale_rewards": "group",
    "multi_objective_aggregation": "sum_then_normalize",
    "mask_truncated_completions": False,
    "loss_type": "dapo",
    "epsilon": 0.2,
    "epsilon_high": None,
    "delta": None,
    "importance_sampling_level": "token",
    "off_policy_mask_threshold": None,
    "use_bias_correction_kl": False,
    "top_entropy_quantile": 1.0,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "router_aux_loss_coef": None,
    "log_completions": False,
}


def sft_arguments(
    settings: SftConfig,
    output: Path,
    *,
    seed: int,
    workers: int,
    checkpointing: bool,
    deepspeed: str | None = None,
) -> SFTConfig:
    """Arguments of the supervised stage; the rows are prepared by our collator, not by TRL."""
    return SFTConfig(
        **_common(settings, output, seed=seed, workers=workers, checkpointing=checkpointing, deepspeed=deepspeed),
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
    deepspeed: str | None = None,
    max_new_tokens: int,
    temperature: float,
    top_p: float,
    top_k: int,
) -> GRPOConfig:
    """Arguments of the RL stage; sampling is repeated here so that TRL's head divides by the same temperature."""
    return GRPOConfig(
        **_common(settings, output, seed=seed, workers=workers, checkpointing=checkpointing, deepspeed=deepspeed),
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


def refuse_unsupported(arguments: GRPOConfig, objective: ObjectiveSettings, sampling: SamplingSettings) -> None:
    """Raises ValueError for an option of TRL that the GRPO trainer would silently ignore or contradict."""
    for name, off in UNSUPPORTED.items():
        value = getattr(arguments, name)
        if value != off:
            raise ValueError(
                f"TRL's option {name}={value!r} has no effect in packed group training: leave it at {off!r} (the "
                "objective, its clipping, the sampling and the rewards are arguments of the trainer)"
            )
    if sampling.greedy:
        raise ValueError("training samples with a temperature above 0: greedy completions of a prompt are all the same")
    for name, ours in (("beta", objective.beta), ("temperature", sampling.temperature)):
        if getattr(arguments, name) != ours:
            raise ValueError(f"TRL's option {name}={getattr(arguments, name)} contradicts the trainer's {name}={ours}")
    if arguments.steps_per_generation != arguments.gradient_accumulation_steps:
        raise ValueError(
            f"steps_per_generation={arguments.steps_per_generation} must equal "
            f"gradient_accumulation_steps={arguments.gradient_accumulation_steps}: completions are sampled for whole "
            "optimizer steps (num_iterations reuses them)"
        )
    if arguments.per_device_train_batch_size % arguments.num_generations:
        raise ValueError(
            f"per_device_train_batch_size={arguments.per_device_train_batch_size} must hold whole groups of "
            f"num_generations={arguments.num_generations}"
        )


def distributed() -> bool:
    """Whether a launcher (torchrun, accelerate, srun) started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def _common(
    settings: OptimizationConfig,
    output: Path,
    *,
    seed: int,
    workers: int,
    checkpointing: bool,
    deepspeed: str | None,
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
        "logging_nan_inf_filter": False,  # A broken loss is to be seen, not replaced by the last good one.
        "save_strategy": "no" if settings.save_steps is None else "steps",
        "save_steps": settings.save_steps or 500,
        "save_total_limit": settings.save_total_limit,
        "gradient_checkpointing": checkpointing,
        "dataloader_num_workers": workers,
        "dataloader_prefetch_factor": BATCHES_AHEAD if workers else None,
        "dataloader_persistent_workers": workers > 0,
        "dataloader_pin_memory": not use_cpu,
        "remove_unused_columns": False,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": use_cpu,
        "optim": "adamw_torch",
    }
    if checkpointing:
        arguments["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    if deepspeed is not None and not distributed():
        raise ValueError("model.deepspeed is for several processes: start them with torchrun, or leave it out")
    if distributed():
        # Buffers are constants here; broadcasting them would make ranks with fewer forwards wait.
        arguments["ddp_broadcast_buffers"] = False
        if deepspeed is not None:
            arguments["deepspeed"] = _deepspeed(deepspeed, use_cpu)
        if use_cpu:
            arguments["ddp_backend"] = "gloo"
    return arguments


def _deepspeed(path: str, use_cpu: bool) -> str:
    """The settings file, once DeepSpeed's own communication is up, which transformers leaves to it on a CPU."""
    try:
        from deepspeed import init_distributed
    except ImportError as error:
        raise ValueError("model.deepspeed needs the package deepspeed: pip install 'ktr[deepspeed]'") from error
    if use_cpu:
        init_distributed(dist_backend="gloo")
    return path
