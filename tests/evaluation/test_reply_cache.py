"""Replies found again only under the same weights, prompt, frames and decoding."""

from __future__ import annotations

import dataclasses

import pytest

from ktr.evaluation.reply_cache import CachedEngine
from ktr.rollout.engine import SamplingSettings

SAMPLED = SamplingSettings(8, 1.0)


@pytest.fixture
def prompts(encoder, row, frames):
    rows = [dataclasses.replace(row(name), question=f"What is {name}?") for name in "abc"]
    return [encoder.encode_frames(asked, frames(8)) for asked in rows]


def test_what_was_asked_before_is_not_asked_again(engine, prompts, greedy, tmp_path):
    first = CachedEngine(engine, tmp_path, "weights").generate(prompts[:2], 1, greedy, 0)
    later = CachedEngine(engine, tmp_path, "weights")
    assert later.generate(prompts, 1, greedy, 5)[:2] == first
    assert [ids for ids, _, _ in engine.calls] == [("a", "b"), ("c",)]
    assert later.hits == 2


@pytest.mark.parametrize("change", ["weights", "question", "frames", "decoding"])
def test_nothing_old_is_reused(engine, encoder, row, frames, greedy, tmp_path, change):
    CachedEngine(engine, tmp_path, "weights").generate([encoder.encode_frames(row("a"), frames(8))], 1, greedy, 0)
    asked = dataclasses.replace(row("a"), question="Which one?") if change == "question" else row("a")
    prompt = encoder.encode_frames(asked, frames(6 if change == "frames" else 8))
    settings = SamplingSettings(9, 0.0) if change == "decoding" else greedy
    cached = CachedEngine(engine, tmp_path, "other" if change == "weights" else "weights")
    cached.generate([prompt], 1, settings, 0)
    assert (len(engine.calls), cached.hits) == (2, 0)


def test_sampled_replies_belong_to_their_seed_and_batch(engine, prompts, tmp_path):
    cached = CachedEngine(engine, tmp_path, "weights")
    first = cached.generate(prompts, 2, SAMPLED, 3)
    assert cached.generate(prompts, 2, SAMPLED, 3) == first
    assert len(engine.calls) == 1
    cached.generate(prompts, 2, SAMPLED, 4)
    cached.generate(prompts[:2], 2, SAMPLED, 3)
    assert len(engine.calls) == 3


def test_a_torn_line_is_left_out_and_ended(engine, prompts, greedy, tmp_path, caplog):
    cached = CachedEngine(engine, tmp_path, "weights")
    cached.generate(prompts[:2], 1, greedy, 0)
    data = cached.path.read_bytes()
    cached.path.write_bytes(data[:-20])
    again = CachedEngine(engine, tmp_path, "weights")
    replies = again.generate(prompts, 1, greedy, 0)
    assert again.hits == 1 and "no cached reply" in caplog.text
    assert CachedEngine(engine, tmp_path, "weights").generate(prompts, 1, greedy, 0) == replies
    assert len(engine.calls) == 2
