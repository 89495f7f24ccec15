"""Small checkpoints of the three families, rows and frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ktr.data.media import Frames, FrameSampling
from ktr.data.rows import Media, Row
from ktr.models.families import FAMILIES
from ktr.models.loading import LoadedModel, load_model
from ktr.models.prompt_encoder import PromptEncoder
from ktr.models.toy_model import ToySize, build_toy_checkpoint

PATCH_SIZES = {"qwen2_vl": 14, "qwen2_5_vl": 14, "qwen3_vl": 16}


class QuestionOnly:
    """A template that asks the bare question."""

    def render(self, row: Row, duration: float | None = None) -> str:
        return row.question

    def target(self, row: Row) -> str:
        return f"<think>{row.rationale}</think><answer>{row.answer}</answer>"


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    size = ToySize(hidden_size=64, intermediate_size=96, num_layers=3, num_kv_heads=1, vision_depth=3)
    return {
        name: build_toy_checkpoint(folder / name, family=name, size=size, patch_size=PATCH_SIZES[name])
        for name in FAMILIES
    }


@pytest.fixture(scope="session")
def loaded_models(checkpoints: dict[str, Path]) -> dict[str, LoadedModel]:
    return {name: load_model(path) for name, path in checkpoints.items()}


@pytest.fixture(params=list(FAMILIES))
def loaded(request: pytest.FixtureRequest, loaded_models: dict[str, LoadedModel]) -> LoadedModel:
    return loaded_models[request.param]


@pytest.fixture
def encoder(loaded: LoadedModel) -> PromptEncoder:
    return make_encoder(loaded)


def make_encoder(loaded: LoadedModel, **settings: object) -> PromptEncoder:
    sampling = FrameSampling(nframes=8)
    return PromptEncoder(loaded.processor, loaded.family, QuestionOnly(), sampling, **settings)


@pytest.fixture
def new_encoder() -> Callable[..., PromptEncoder]:
    return make_encoder


@pytest.fixture
def new_frames() -> Callable[..., Frames]:
    return make_frames


@pytest.fixture
def new_row() -> Callable[..., Row]:
    return make_row


def make_row(kind: str | None = "video", question: str = "which colour came first?", row_id: str = "r1") -> Row:
    media = None if kind is None else Media(kind, f"{row_id}.bin")
    return Row(row_id, question, media, "free-form", (), "red", rationale="the disc is red")


def make_frames(
    factor: int,
    *,
    kind: str = "video",
    count: int = 8,
    grid: tuple[int, int] = (3, 4),
    step: int = 10,
    fps: float = 10.0,
    seed: int = 0,
) -> Frames:
    """Random frames of `grid` visual tokens, every `step`-th of a clip at `fps`."""
    count = count if kind == "video" else 1
    generator = torch.Generator().manual_seed(seed)
    shape = (count, 3, grid[0] * factor, grid[1] * factor)
    indices = tuple(range(0, count * step, step))
    return Frames(
        pixels_T3HW=torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8),
        indices=indices,
        times=tuple(index / fps for index in indices),
        second_per_grid=2 * step / fps,
        digest=f"{kind}-{seed}",
        kind=kind,
        source_size=shape[2:],
        duration=count * step / fps,
        total_frames=count * step,
        fps=fps,
        backend="test",
        repeated=False,
        clamped=False,
    )
