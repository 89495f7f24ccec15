from __future__ import annotations

import pytest
import torch
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicSlidingWindowLayer

from ktr.rollout.group_cache import ROOM, expand_cache


def prompt_cache(rows: int, length: int) -> DynamicCache:
    torch.manual_seed(0)
    cache = DynamicCache()
    for layer in range(2):
        cache.update(torch.randn(rows, 2, length, 4), torch.randn(rows, 2, length, 4), layer)
    return cache


def test_rows_grow_and_leave_like_transformers_own_cache() -> None:
    ours, theirs = prompt_cache(3, 5), prompt_cache(3, 5)
    prompt_of_row = torch.tensor([0, 0, 1, 2, 2])
    ours = expand_cache(ours, prompt_of_row)
    theirs.batch_select_indices(prompt_of_row)
    keep = torch.tensor([1, 3, 4])
    for step in range(2 * ROOM + 3):
        if step == 7:
            ours.batch_select_indices(keep)
            theirs.batch_select_indices(keep)
        rows = 5 if step < 7 else 3
        for layer in range(2):
            states = torch.randn(rows, 2, 1, 4), torch.randn(rows, 2, 1, 4)
            for mine, expected in zip(ours.update(*states, layer), theirs.update(*states, layer), strict=True):
                assert torch.equal(mine, expected)
        assert ours.get_seq_length() == theirs.get_seq_length()


def test_the_prompts_cache_stays_usable() -> None:
    prompts = prompt_cache(2, 4)
    before = prompts.layers[0].keys.clone()
    expanded = expand_cache(prompts, torch.tensor([0, 1]))
    expanded.update(torch.ones(2, 2, 1, 4), torch.ones(2, 2, 1, 4), 0)
    expanded.layers[0].keys.zero_()
    assert torch.equal(prompts.layers[0].keys, before)


def test_sliding_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="sliding-window"):
        expand_cache(Cache(layers=[DynamicSlidingWindowLayer(4)]), torch.tensor([0]))
