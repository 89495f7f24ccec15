"""Encoding the rows of a data set with a frozen tower, into the cache that training reads."""

from __future__ import annotations

from pathlib import Path

import torch
from tqdm import tqdm

from ktr import components
from ktr.config.schema_prepare import PrepareConfig
from ktr.data.importers import iter_rows
from ktr.data.run_rows import media_root
from ktr.models.feature_store import FeatureStore


def cache_features(config: PrepareConfig, verified: Path) -> int:
    """Encodes every row of `verified` (a file of the doctor's) that shows media; returns how many."""
    assert config.model.path is not None, "the schema requires a checkpoint"
    loaded = components.policy_model(config.model, config.model.path, device=components.default_device())
    encoder = components.prompt_encoder(config.data, loaded, media_root(config.data))
    assert encoder.frame_store is not None, "the schema requires data.cache"
    features = FeatureStore(encoder.frame_store.store, loaded.model, loaded.family, loaded.processor)
    rows = {row.media: row for row in iter_rows("plain", verified) if row.media is not None}
    device = components.default_device()
    with torch.autocast(device, torch.bfloat16, enabled=config.job.bf16):
        for row in tqdm(rows.values(), desc="features", unit="file", dynamic_ncols=True):
            features.encode(loaded.model, [encoder.encode(row)])
    return len(rows)
