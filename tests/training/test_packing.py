"""Packed rows on paper: what stands where, who sees whom, and how groups are cut and batched."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ktr.training.packing import (
    PackedPrompt,
    RowPlan,
    batch_rows,
    group_mask,
    pack_rows,
    plan_rows,
    row_length,
    unpack,
)

PROMPT = PackedPrompt(torch.tensor([10, 11, 12]), torch.tensor([[0, 1, 5], [0, 2, 5], [0, 3, 5]]), 6)
SHORT = PackedPrompt(torch.tensor([20, 21]), torch.tensor([[0, 1]] * 3), 2)


def test_a_row_holds_the_prompt_once_and_a_segment_a_completion():
    batch = pack_rows([RowPlan(0, (0, 1))], [PROMPT], [[[1, 2, 3], [4]]], pad_token_id=0)
    assert batch.input_ids_BL.tolist() == [[10, 11, 12, 1, 2, 12]]
    assert batch.labels_BL.tolist() == [[-100, -100, 1, 2, 3, 4]]
    assert batch.segments_BL.tolist() == [[0, 0, 1, 1, 1, 2]]
    assert batch.position_ids_3BL[:, 0].tolist() == [[0, 1, 5, 6, 7, 5], [0, 2, 5, 6, 7, 5], [0, 3, 5, 6, 7, 5]]
    assert batch.sources_S.tolist() == [2, 3, 4, 5]
    assert batch.targets_S3.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0]]


def test_shorter_rows_are_padded_on_the_right():
    batch = pack_rows([RowPlan(1, (0,)), RowPlan(0, (1,))], [PROMPT, SHORT], [[[9], [1, 2]], [[5]]], pad_token_id=7)
    assert batch.input_ids_BL.tolist() == [[20, 21, 7, 7], [10, 11, 12, 1]]
    assert batch.segments_BL.tolist() == [[0, 1, -1, -1], [0, 0, 1, 1]]
    assert batch.labels_BL.tolist() == [[-100, 5, -100, -100], [-100, -100, 1, 2]]
    assert batch.attention_mask().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]], "one completion a row needs no 4D mask"


def test_a_completion_sees_the_prompt_and_itself():
    mask = group_mask(torch.tensor([[0, 0, 1, 1, 2, -1]]))[0, 0].int().tolist()
    assert mask == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]


def test_dropped_tokens_keep_the_positions_of_the_others():
    kept = PROMPT.without(torch.tensor([False, True, False]))
    assert kept.input_ids_P.tolist() == [10, 12] and kept.position_ids_3P.tolist() == [[0, 5]] * 3
    assert kept.next_position == 6
    with pytest.raises(AssertionError, match="last prompt token"):
        PROMPT.without(torch.tensor([False, False, True]))


def test_groups_are_cut_where_the_budget_ends():
    assert plan_rows([3, 2], [[3, 1, 4], [2]], max_tokens=100) == [RowPlan(0, (0, 1, 2)), RowPlan(1, (0,))]
    assert plan_rows([3], [[3, 1, 4]], max_tokens=6) == [RowPlan(0, (0, 1)), RowPlan(0, (2,))]
    assert plan_rows([3], [[30, 1, 1]], max_tokens=6) == [RowPlan(0, (0,)), RowPlan(0, (1, 2))]
    assert plan_rows([3], [[1, 1]], max_tokens=100, packing=False) == [RowPlan(0, (0,)), RowPlan(0, (1,))]


def test_rows_of_like_length_are_forwarded_together():
    assert batch_rows([5, 8, 7], max_tokens=24) == [[1, 2, 0]]
    assert batch_rows([5, 8, 7], max_tokens=16) == [[1, 2], [0]]
    assert batch_rows([30, 8, 30], max_tokens=20) == [[0], [2], [1]]
    assert batch_rows([100, 49, 50], max_tokens=1000) == [[0, 2], [1]], "more than half would be padding"


@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.lists(st.integers(1, 12), min_size=1, max_size=6)), min_size=1, max_size=5
    ),
    st.integers(1, 80),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_every_token_comes_back_from_where_it_was_put(groups, budget, packing):
    prompts = [PackedPrompt(torch.arange(1000, 1000 + p), torch.arange(p).expand(3, -1), p) for p, _ in groups]
    token = iter(range(1, 10_000))
    completions = [[[next(token) for _ in range(n)] for n in lengths] for _, lengths in groups]
    rows = plan_rows([p for p, _ in groups], [lengths for _, lengths in groups], max_tokens=budget, packing=packing)
    assert sorted((row.group, i) for row in rows for i in row.completions) == [
        (g, i) for g, (_, lengths) in enumerate(groups) for i in range(len(lengths))
    ]
    lengths = [row_length(groups[row.group][0], [groups[row.group][1][i] for i in row.completions]) for row in rows]
    assert all(length <= budget or len(row.completions) == 1 for row, length in zip(rows, lengths, strict=True))
    counts = torch.tensor([len(group) for group in completions])
    first_N = counts.cumsum(0) - counts
    width = max(len(ids) for group in completions for ids in group)
    found_NC = torch.zeros(int(counts.sum()), width)
    batches = batch_rows(lengths, max_tokens=budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(rows)))
    for indices in batches:
        longest = max(lengths[i] for i in indices)
        assert longest * len(indices) <= budget or len(indices) == 1
        assert 2 * sum(lengths[i] for i in indices) >= longest * len(indices)
        batch = pack_rows([rows[i] for i in indices], prompts, completions, pad_token_id=0)
        found_NC = unpack(batch.labels_BL.float(), batch, found_NC, first_N)
    expected = [ids + [0] * (width - len(ids)) for group in completions for ids in group]
    assert found_NC.tolist() == expected
