"""Features of a frozen tower on disk: those of the tower, under a key that knows its weights."""

from __future__ import annotations

import pytest
import torch
from clips import write_clip

from ktr.data.disk_store import DiskStore
from ktr.data.media import FrameSampling
from ktr.data.prompts import PromptTemplate
from ktr.data.rows import Media, Row
from ktr.models.feature_store import FeatureStore, tower_digest
from ktr.models.loading import load_model
from ktr.models.prompt_encoder import PromptEncoder
from ktr.models.toy_model import build_toy_checkpoint


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl"])
def loaded(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    settings = {"family": request.param, "patch_size": 16 if request.param == "qwen3_vl" else 14}
    path = build_toy_checkpoint(folder / "model", max_pixels=4096, max_length=512, **settings)
    return load_model(path, freeze_vision=True)


@pytest.fixture
def prompts(loaded, tmp_path):
    sampling = FrameSampling(nframes=4, min_pixels=1024, max_pixels=4096)
    encoder = PromptEncoder(loaded.processor, loaded.family, PromptTemplate("t", "{question}"), sampling, tmp_path)
    for number in range(2):
        write_clip(tmp_path / f"{number}.mp4", 8 + number)
    media = [Media("video", "0.mp4"), None, Media("video", "1.mp4")]
    return [encoder.encode(Row(f"{i}", "what ?", one, "free-form", (), "red")) for i, one in enumerate(media)]


def same(found, expected) -> bool:
    if found is None or expected is None:
        return found is expected
    return torch.equal(found.pooled_MH, expected.pooled_MH) and all(
        torch.equal(a, b) for a, b in zip(found.deepstack, expected.deepstack, strict=True)
    )


def test_features_are_those_of_the_tower(loaded, prompts, tmp_path):
    store = DiskStore(tmp_path / "cache", 1 << 30)
    features = FeatureStore(store, loaded.model, loaded.family, loaded.processor)
    expected = [loaded.family.encode_vision(loaded.model, [prompt])[0] for prompt in prompts]
    for _ in range(2):
        assert all(map(same, features.encode(loaded.model, prompts), expected))
    assert (store.misses, store.hits) == (2, 2) and len(store.entries()) == 2
    assert not features.encode(loaded.model, prompts)[0].pooled_MH.requires_grad


def test_other_weights_and_other_precisions_have_other_keys(loaded, prompts, tmp_path):
    store = DiskStore(tmp_path / "cache", 1 << 30)
    FeatureStore(store, loaded.model, loaded.family, loaded.processor).encode(loaded.model, prompts)
    with torch.autocast("cpu", torch.bfloat16):
        FeatureStore(store, loaded.model, loaded.family, loaded.processor).encode(loaded.model, prompts)
    assert store.hits == 0
    parameter = next(loaded.model.model.visual.parameters())
    before, kept = tower_digest(loaded.model.model.visual), parameter.data.clone()
    parameter.data += 1e-3
    try:
        assert tower_digest(loaded.model.model.visual) != before
        FeatureStore(store, loaded.model, loaded.family, loaded.processor).encode(loaded.model, prompts)
        assert store.hits == 0 and len(store.entries()) == 6
    finally:
        parameter.data.copy_(kept)


def test_a_trained_tower_is_refused(loaded, tmp_path):
    parameter = next(loaded.model.model.visual.parameters())
    parameter.requires_grad_(True)
    try:
        with pytest.raises(ValueError, match="freeze_vision=true"):
            FeatureStore(DiskStore(tmp_path, 1 << 20), loaded.model, loaded.family, loaded.processor)
    finally:
        parameter.requires_grad_(False)
