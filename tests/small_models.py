"""Small checkpoints of every family, and prompts and groups made of random frames and tokens."""

from __future__ import annotations

import torch
from trl.trainer.utils import add_fused_lm_head

from ktr.data.media import Frames, FrameSampling
from ktr.data.prompts import PromptTemplate
from ktr.data.rows import Media, Row
from ktr.models.loading import load_model
from ktr.models.prompt_encoder import PromptEncoder
from ktr.models.toy_model import ToySize
from ktr.training.scoring import ScoringGroup

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
SMALL = ToySize(
    hidden_size=64, intermediate_size=96, num_layers=2, num_kv_heads=1, vision_hidden_size=64, vision_depth=2
)


def load_scored(path, **options):
    """A checkpoint whose head is fused as TRL's trainers fuse it."""
    loaded = load_model(path, **{"freeze_vision": False, **options})
    add_fused_lm_head(loaded.model, temperature=1.0, outputs=("log_probs", "entropy"))
    return loaded


def make_encoder(loaded) -> PromptEncoder:
    return PromptEncoder(
        loaded.processor, loaded.family, PromptTemplate(name="test", text="{question}"), FrameSampling(nframes=6)
    )


def random_frames(kind: str, num_frames: int, factor: int, seed: int, *, rows: int = 2, columns: int = 3) -> Frames:
    generator = torch.Generator().manual_seed(seed)
    shape = (num_frames, 3, rows * factor, columns * factor)
    return Frames(
        pixels_T3HW=torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator),
        indices=tuple(range(num_frames)),
        times=tuple(float(i) for i in range(num_frames)),
        second_per_grid=0.0 if kind == "image" else 2.0,
        digest=f"{kind}{seed}",
        kind=kind,
        source_size=shape[2:],
        duration=None if kind == "image" else float(num_frames),
        total_frames=num_frames,
        fps=0.0 if kind == "image" else 1.0,
        backend="made",
        repeated=False,
        clamped=False,
    )


def make_prompt(
    encoder: PromptEncoder, kind: str, seed: int, *, question: str = "what moved first ?", num_frames: int = 6
):
    media = None if kind == "text" else Media(kind, f"{seed}.mp4")
    row = Row(f"{kind}-{seed}", question, media, "free-form", (), "red")
    if kind == "text":
        return encoder.encode_frames(row, None)
    frames = random_frames(kind, num_frames if kind == "video" else 1, encoder.family.resize_factor, seed)
    return encoder.encode_frames(row, frames)


def random_completions(lengths, vocabulary: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Token ids that never are one of the tokenizer's last, special ones."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(tuple(torch.randint(10, vocabulary, (n,), generator=generator).tolist()) for n in lengths)


def make_groups(encoder: PromptEncoder, kinds=("video", "image", "text"), lengths=(5, 1, 9, 3)) -> list[ScoringGroup]:
    return [
        ScoringGroup(
            make_prompt(encoder, kind, seed, question="what moved " + "first " * seed + "?"),
            random_completions(lengths[seed % 2 :], 200, seed),
        )
        for seed, kind in enumerate(kinds)
    ]
