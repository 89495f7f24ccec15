"""A real small model on a real clip: batch size changes speed alone."""

from __future__ import annotations

import dataclasses

import pytest
from clips import write_clip
from small_models import SMALL

from ktr.data.media import FrameSampling
from ktr.data.prompts import PromptTemplate
from ktr.evaluation.runner import evaluate
from ktr.models.loading import load_model
from ktr.models.prompt_encoder import PromptEncoder
from ktr.models.toy_model import build_toy_checkpoint
from ktr.rollout.engine import SamplingSettings
from ktr.rollout.transformers_engine import TransformersRollout


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint")
    build_toy_checkpoint(path, seed=0, initializer_range=0.3, max_length=1024, size=SMALL)
    return load_model(path)


def test_batch_sizes_one_and_eight_give_identical_greedy_replies(loaded, row, tmp_path):
    write_clip(tmp_path / "clip.mp4")
    encoder = PromptEncoder(
        loaded.processor, loaded.family, PromptTemplate.load("direct"), FrameSampling(nframes=4, max_pixels=3136),
        media_root=tmp_path,
    )  # fmt: skip
    engine = TransformersRollout(loaded.model, loaded.processor.tokenizer, loaded.family)
    rows = [
        dataclasses.replace(row(str(i), path="clip.mp4" if i % 3 else ""), question="what moved " * i + "?")
        for i in range(1, 9)
    ]

    def replies(batch_size):
        records = evaluate(engine, encoder, rows, SamplingSettings(12, 0.0), batch_size=batch_size, progress=False)
        return [(record.reply, record.num_tokens, record.prompt_digest) for record in records]

    one = replies(1)
    assert len({reply for reply, _, _ in one}) > 4
    assert replies(8) == one
