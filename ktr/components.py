"""The objects of a run, built from its typed config: every entry and stage takes them from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from peft import PeftConfig
from torch import nn

from ktr.attribution.settings import KeyTokenSettings
from ktr.config.fields import ConfigError
from ktr.config.instantiate import build
from ktr.config.schema_eval import EvalConfig
from ktr.config.schema_inputs import DataConfig, ModelConfig
from ktr.config.schema_learning import GrpoConfig, KtrConfig, RewardConfig
from ktr.config.schema_running import RolloutConfig
from ktr.data.disk_store import DiskStore
from ktr.data.frame_store import FrameStore
from ktr.data.media import FrameSampling
from ktr.data.prefetch import affordable_workers, rows_kept
from ktr.data.prompts import PromptTemplate
from ktr.models.loading import LoadedModel, PromptParts, load_model
from ktr.models.lora import lora_config
from ktr.models.prompt_encoder import PromptEncoder
from ktr.rewards.runner import RewardRunner
from ktr.rollout.engine import RolloutEngine, SamplingSettings
from ktr.training.objective_settings import ObjectiveSettings


def policy_model(settings: ModelConfig, path: str | Path, *, device: str | None = None) -> LoadedModel:
    """The checkpoint at `path`, loaded as `settings` say."""
    return load_model(
        path,
        dtype=settings.dtype,
        attn_implementation=settings.attn_implementation,
        freeze_vision=settings.freeze_vision,
        device=device,
    )


def adapters(settings: ModelConfig) -> PeftConfig | None:
    """PEFT's LoRA config, or None where the whole model trains."""
    lora = settings.lora
    if lora.rank == 0:
        return None
    return lora_config(rank=lora.rank, alpha=lora.alpha, dropout=lora.dropout, target_modules=lora.target_modules)


def prompt_encoder(
    settings: DataConfig, loaded: LoadedModel | PromptParts, media_root: str | Path | None
) -> PromptEncoder:
    """The one source of prompts, positions and frames for training, rollouts and evaluation."""
    return PromptEncoder(
        loaded.processor,
        loaded.family,
        PromptTemplate.load(settings.prompt),
        FrameSampling(**asdict(settings.sampling)),
        media_root=media_root,
        decoder=settings.decoder,
        max_prompt_tokens=settings.max_prompt_tokens,
        frame_cache_bytes=frame_cache_bytes(settings),
        frame_store=frame_store(settings),
    )


def frame_store(settings: DataConfig) -> FrameStore | None:
    """Decoded media on disk, where `data.cache` names a folder."""
    if settings.cache is None:
        return None
    return FrameStore(DiskStore(settings.cache, int(settings.cache_gb * 2**30)))


def frame_cache_bytes(settings: DataConfig) -> int:
    """Memory for decoded media in each process that decodes: together half of `data.memory_gb`."""
    processes = 1 if settings.on_error == "skip" else settings.workers + 1
    return int(settings.memory_gb * 2**30) // (2 * processes)


def rows_ahead(settings: DataConfig, step_rows: int) -> int:
    """Rows that threads try before their turn: those of two steps over all ranks, as far as memory keeps them."""
    if settings.workers == 0:
        return 0
    kept = rows_kept(FrameSampling(**asdict(settings.sampling)), frame_cache_bytes(settings))
    return max(0, min(2 * step_rows, kept - step_rows))


def decoding_workers(settings: DataConfig, rows_per_batch: int) -> int:
    """Processes that decode ahead of training: `data.workers`, as far as `data.memory_gb` allows.

    None with `data.on_error=skip`: there threads try the rows ahead of their turn, and what they decode is used.
    """
    if settings.on_error == "skip":
        return 0
    return affordable_workers(
        settings.workers,
        rows_per_batch=rows_per_batch,
        sampling=FrameSampling(**asdict(settings.sampling)),
        memory_bytes=int(settings.memory_gb * 2**30) // 2,
    )


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def rollout_engine(
    settings: RolloutConfig, model: nn.Module, loaded: LoadedModel, *, plugins: Sequence[str] = ()
) -> RolloutEngine:
    """The engine of `rollout._target_` around `model` (the trained policy, adapters included)."""
    return build(
        {"_target_": settings._target_, "max_batch_tokens": settings.max_batch_tokens},
        plugins=plugins,
        model=model,
        tokenizer=loaded.processor.tokenizer,
        family=loaded.family,
    )


def training_sampling(settings: RolloutConfig) -> SamplingSettings:
    return SamplingSettings(settings.max_new_tokens, settings.temperature, settings.top_p, settings.top_k)


def evaluation_sampling(settings: EvalConfig) -> SamplingSettings:
    return SamplingSettings(settings.max_new_tokens, settings.temperature, settings.top_p)


def reward_runner(settings: RewardConfig, plugins: Sequence[str] = ()) -> RewardRunner:
    """Weighted reward components; `weight` belongs to the runner, the other keys to the component."""
    components = {}
    for name, node in settings.components.items():
        arguments = {key: value for key, value in node.items() if key != "weight"}
        try:
            components[name] = (build(arguments, plugins=plugins), float(node.get("weight", 1.0)))
        except ConfigError as error:
            raise error.under(f"reward.components.{name}") from None
        except ValueError as error:
            raise ConfigError(f"reward.components.{name}", str(error)) from error
    return RewardRunner(components, settings.max_error_share)


def key_token_settings(settings: KtrConfig) -> KeyTokenSettings:
    return KeyTokenSettings(
        signals=settings.signals,
        top_k=settings.ratios if settings.signals else settings.top_k,
        delta=settings.delta,
        scope=settings.scope,
        combine=settings.combine,
        weights=settings.weights,
        normalize=settings.normalize,
        mask_kl=settings.mask_kl,
        blind=settings.visual.blind,
        granularity=settings.temporal.granularity,
        permutations=settings.temporal.permutations,
    )


def objective_settings(trainer: GrpoConfig, ktr: KtrConfig, *, max_new_tokens: int) -> ObjectiveSettings:
    return ObjectiveSettings(
        objective=trainer.objective,
        epsilon_low=trainer.epsilon,
        epsilon_high=trainer.epsilon_high,
        cispo_cap=trainer.cispo_cap,
        beta=trainer.beta,
        kl_estimator=trainer.kl_estimator,
        kl_clamp=trainer.kl_clamp,
        normalize=ktr.normalize,
        mask_kl=ktr.mask_kl,
        max_completion_length=max_new_tokens,
    )
