"""Plans, masks and tensors of packed rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import BlockMask, create_mask, flex_attention

from ktr.training.packing import (
    IGNORED_LABEL,
    PackedPrompt,
    RowPlan,
    batch_rows,
    group_block_mask,
    group_mask,
    pack_rows,
    plan_rows,
    row_length,
    unpack,
)

SEGMENTS_BL = torch.tensor([[0, 0, 1, 1, 2, 2, 2, -1], [0, 1, 2, 2, 3, -1, -1, -1]])


def make_prompt(length: int, start: int = 100) -> PackedPrompt:
    return PackedPrompt(torch.arange(start, start + length), torch.arange(length).expand(3, -1), length + 2)


def test_a_completion_sees_the_prompt_and_itself():
    mask = group_mask(SEGMENTS_BL)[0, 0]
    expected = torch.tensor(
        [
            [1, 0, 0, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0, 0, 0],
            [1, 1, 1, 0, 0, 0, 0, 0],
            [1, 1, 1, 1, 0, 0, 0, 0],
            [1, 1, 0, 0, 1, 0, 0, 0],
            [1, 1, 0, 0, 1, 1, 0, 0],
            [1, 1, 0, 0, 1, 1, 1, 0],
            [0, 0, 0, 0, 0, 0, 0, 1],
        ]
    ).bool()
    assert torch.equal(mask, expected)


def test_the_block_mask_is_the_boolean_mask():
    block = group_block_mask(SEGMENTS_BL)
    assert torch.equal(create_mask(block.mask_mod, 2, 1, 8, 8, device="cpu"), group_mask(SEGMENTS_BL))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_under_the_block_mask_equals_sdpa_under_the_boolean_one():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 2, 8, 32, generator=generator) for _ in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=group_mask(SEGMENTS_BL))
    found = flex_attention(query, key, value, block_mask=group_block_mask(SEGMENTS_BL))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@given(
    lengths=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4),
    budget=st.integers(1, 60),
    packing=st.booleans(),
)
def test_plans_hold_each_completion_once_within_the_budget(lengths, budget, packing):
    prompts = [5 + g for g in range(len(lengths))]
    rows = plan_rows(prompts, lengths, max_tokens=budget, packing=packing)
    placed = [(row.group, i) for row in rows for i in row.completions]
    assert placed == [(g, i) for g, of_group in enumerate(lengths) for i in range(len(of_group))]
    for row in rows:
        used = row_length(prompts[row.group], [lengths[row.group][i] for i in row.completions])
        assert used <= budget or len(row.completions) == 1
        assert packing or len(row.completions) == 1
    row_lengths = [row_length(prompts[row.group], [lengths[row.group][i] for i in row.completions]) for row in rows]
    batches = batch_rows(row_lengths, max_tokens=budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(rows)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(row_lengths[i] for i in batch) <= budget


def test_a_row_repeats_the_last_prompt_token_and_drops_the_last_completion_token():
    batch = pack_rows(
        [RowPlan(0, (0, 1)), RowPlan(1, (0,))],
        [make_prompt(3), make_prompt(2, start=200)],
        [[[7, 8, 9], [4]], [[5, 6]]],
        pad_token_id=0,
    )
    assert batch.input_ids_BL.tolist() == [[100, 101, 102, 7, 8, 102], [200, 201, 5, 0, 0, 0]]
    assert batch.labels_BL.tolist() == [
        [IGNORED_LABEL, IGNORED_LABEL, 7, 8, 9, 4],
        [IGNORED_LABEL, 5, 6, IGNORED_LABEL, IGNORED_LABEL, IGNORED_LABEL],
    ]
    assert batch.position_ids_3BL[0].tolist() == [[0, 1, 2, 5, 6, 2], [0, 1, 4, 0, 0, 0]]
    assert batch.segments_BL.tolist() == [[0, 0, 1, 1, 1, 2], [0, 1, 1, -1, -1, -1]]
    values_BL = torch.arange(12.0).view(2, 6)
    found_NC = unpack(values_BL, batch, torch.zeros(3, 3), torch.tensor([0, 2]))
    assert found_NC.tolist() == [[2.0, 3.0, 4.0], [5.0, 0.0, 0.0], [7.0, 8.0, 0.0]]


def test_dropped_tokens_leave_the_positions_of_the_others():
    prompt = make_prompt(5).without(torch.tensor([False, True, True, False, False]))
    assert prompt.input_ids_P.tolist() == [100, 103, 104]
    assert prompt.position_ids_3P[0].tolist() == [0, 3, 4]
    assert prompt.next_position == 7
    with pytest.raises(AssertionError, match="last prompt token"):
        make_prompt(3).without(torch.tensor([False, False, True]))


def test_the_mask_takes_the_form_of_the_attention():
    batch = pack_rows([RowPlan(0, (0, 1))], [make_prompt(3)], [[[1, 2], [3]]], pad_token_id=7)
    assert batch.attention_mask("group_sdpa").tolist() == [[[[0, 0, 1, 1, 2]]]]
    assert torch.equal(batch.attention_mask("sdpa"), group_mask(batch.segments_BL))
    added = batch.attention_mask("eager")
    assert torch.equal(added == 0, group_mask(batch.segments_BL)) and added.min() == torch.finfo(torch.float32).min
    assert isinstance(batch.attention_mask("flex_attention"), BlockMask)
    with pytest.raises(ValueError, match=r"'flash_attention_2' cannot read packed rows.*trainer\.packing=false"):
        batch.attention_mask("flash_attention_2")


def test_rows_of_one_completion_need_no_mask_of_their_own():
    batch = pack_rows(
        [RowPlan(1, (0,)), RowPlan(0, (1,))], [make_prompt(3), make_prompt(2)], [[[9], [1, 2]], [[5]]], pad_token_id=7
    )
    assert batch.attention_mask().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch.input_ids_BL[0].tolist() == [100, 101, 7, 7]


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
    lengths=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4),
    budget=st.integers(1, 60),
    packing=st.booleans(),
)
@settings(max_examples=50)
def test_every_token_comes_back_from_where_it_was_put(lengths, budget, packing):
    prompts = [make_prompt(2 + 3 * g) for g in range(len(lengths))]
    token = iter(range(1, 10_000))
    completions = [[[next(token) for _ in range(n)] for n in of_group] for of_group in lengths]
    sizes = [len(prompt.input_ids_P) for prompt in prompts]
    rows = plan_rows(sizes, lengths, max_tokens=budget, packing=packing)
    row_lengths = [row_length(sizes[row.group], [lengths[row.group][i] for i in row.completions]) for row in rows]
    counts = torch.tensor([len(group) for group in completions])
    width = max(len(ids) for group in completions for ids in group)
    found_NC = torch.zeros(int(counts.sum()), width)
    for indices in batch_rows(row_lengths, max_tokens=budget):
        batch = pack_rows([rows[i] for i in indices], prompts, completions, pad_token_id=0)
        found_NC = unpack(batch.labels_BL.float(), batch, found_NC, counts.cumsum(0) - counts)
    expected = [ids + [0] * (width - len(ids)) for group in completions for ids in group]
    assert found_NC.tolist() == expected
