"""A GRPO trainer over a few real files, small enough for a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from clips import write_clip
from PIL import Image

from ktr.attribution.settings import KeyTokenSettings
from ktr.config.schema_learning import GrpoConfig
from ktr.data.media import FrameSampling
from ktr.data.prompts import PromptTemplate
from ktr.data.rows import Media, Row
from ktr.models.loading import load_model
from ktr.models.prompt_encoder import PromptEncoder
from ktr.rewards.runner import RewardRunner
from ktr.rollout.engine import SamplingSettings
from ktr.rollout.transformers_engine import TransformersRollout
from ktr.training.arguments import grpo_arguments
from ktr.training.callbacks import MetricsFile
from ktr.training.grpo_trainer import KeyTokenGRPOTrainer
from ktr.training.objective_settings import ObjectiveSettings
from ktr.training.run_folder import RunFolder

SAMPLING = SamplingSettings(max_new_tokens=6)


def make_rows(root: Path, kinds=("video", "image", "text", "video")) -> list[Row]:
    rows = []
    for number, kind in enumerate(kinds):
        name = f"{number}.{'mp4' if kind == 'video' else 'png'}"
        if kind == "video":
            write_clip(root / name, 8 + number, size=(56, 56))
        elif kind == "image":
            pixels = np.random.default_rng(number).integers(0, 256, (60, 90, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name)
        media = None if kind == "text" else Media(kind, name)
        rows.append(Row(f"row-{number}", "what moved first ?", media, "free-form", (), "red"))
    return rows


def length_reward(completions: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
    """Differs between completions, so that groups have a spread."""
    return [float(sum(ids) % 7) for ids in completion_ids]


def make_trainer(checkpoint: Path, root: Path, rows: list[Row], **options: Any) -> KeyTokenGRPOTrainer:
    settings = GrpoConfig(
        **{
            "max_steps": 2, "groups_per_step": 2, "group_size": 3, "learning_rate": 1e-3, "log_completions_every": 1,
            "lr_scheduler": "constant", **options.pop("trainer", {}),
        }
    )  # fmt: skip
    loaded = load_model(checkpoint, freeze_vision=options.pop("freeze_vision", False))
    encoder = PromptEncoder(
        loaded.processor, loaded.family, PromptTemplate("test", "{question}"), FrameSampling(nframes=4), media_root=root
    )
    folder = RunFolder(root / options.pop("run", "run"))
    arguments = grpo_arguments(
        settings, folder.path / "steps", seed=0, workers=0, checkpointing=options.pop("checkpointing", False),
        max_new_tokens=SAMPLING.max_new_tokens, temperature=1.0, top_p=1.0, top_k=0,
    )  # fmt: skip
    defaults: dict[str, Any] = {
        "rollout": lambda model: TransformersRollout(model, loaded.processor.tokenizer, loaded.family),
        "sampling": SAMPLING,
        "rewards": RewardRunner({"length": (length_reward, 1.0)}),
        "key_tokens": KeyTokenSettings(),
        "objective": ObjectiveSettings(objective=settings.objective, beta=settings.beta),
        "folder": folder,
        "max_packed_tokens": 4096,
        "callbacks": [MetricsFile(folder, "rl")],
    }
    return KeyTokenGRPOTrainer(loaded.model, loaded.processor, encoder, rows, arguments, **(defaults | options))


def weights_of(trainer: KeyTokenGRPOTrainer) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}


