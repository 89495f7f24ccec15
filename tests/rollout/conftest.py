"""Small checkpoints of the three families and mixed prompts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ktr.data.media import Frames, FrameSampling
from ktr.data.prompts import PromptTemplate
from ktr.data.rows import Media, Row
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.families import FAMILIES
from ktr.models.loading import LoadedModel, load_model
from ktr.models.prompt_encoder import PromptEncoder
from ktr.models.toy_model import ToySize, build_toy_checkpoint
from ktr.rollout.transformers_engine import TransformersRollout


@pytest.fixture(scope="session")
def loaded_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    folder = tmp_path_factory.mktemp("checkpoints")
    size = ToySize(hidden_size=64, intermediate_size=96, num_layers=2, num_kv_heads=1)
    models = {}
    for name in FAMILIES:
        patch_size = 16 if name == "qwen3_vl" else 14
        path: Path = build_toy_checkpoint(folder / name, family=name, size=size, patch_size=patch_size)
        models[name] = load_model(path)
    return models


@pytest.fixture(params=list(FAMILIES))
def loaded(request: pytest.FixtureRequest, loaded_models: dict[str, LoadedModel]) -> LoadedModel:
    return loaded_models[request.param]


@pytest.fixture
def engine(loaded: LoadedModel) -> TransformersRollout:
    return TransformersRollout(loaded.model, loaded.processor.tokenizer, loaded.family)


@pytest.fixture
def new_prompt() -> Callable[..., EncodedPrompt]:
    return make_prompt


@pytest.fixture
def prompts(loaded: LoadedModel) -> list[EncodedPrompt]:
    """Video, text, image and a long slow video: unequal lengths, every kind."""
    return [
        make_prompt(loaded, "video", row_id="a"),
        make_prompt(loaded, "text", row_id="b", question="what is two and two?"),
        make_prompt(loaded, "image", row_id="c", grid=(2, 3)),
        make_prompt(loaded, "video", row_id="d", count=12, grid=(1, 2), step=40),
    ]


def make_prompt(
    loaded: LoadedModel,
    kind: str = "video",
    *,
    row_id: str = "r",
    question: str = "which colour came first?",
    count: int = 8,
    grid: tuple[int, int] = (2, 2),
    step: int = 10,
    seed: int = 0,
) -> EncodedPrompt:
    """A prompt about random frames of `grid` visual tokens."""
    template = PromptTemplate(name="bare", text="{question}")
    encoder = PromptEncoder(loaded.processor, loaded.family, template, FrameSampling(nframes=8))
    media = None if kind == "text" else Media(kind, "clip.bin")
    row = Row(row_id, question, media, "free-form", (), "red")
    if kind == "text":
        return encoder.encode_frames(row, None)
    count = count if kind == "video" else 1
    factor = loaded.family.resize_factor
    generator = torch.Generator().manual_seed(seed)
    shape = (count, 3, grid[0] * factor, grid[1] * factor)
    indices = tuple(range(0, count * step, step))
    frames = Frames(
        pixels_T3HW=torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8),
        indices=indices,
        times=tuple(index / 10 for index in indices),
        second_per_grid=2 * step / 10,
        digest="random",
        kind=kind,
        source_size=shape[2:],
        duration=count * step / 10,
        total_frames=count * step,
        fps=10.0,
        backend="test",
        repeated=False,
        clamped=False,
    )
    return encoder.encode_frames(row, frames)
