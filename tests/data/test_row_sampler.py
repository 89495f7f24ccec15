from __future__ import annotations

import threading

import pytest
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler

from ktr.data.media import MediaError
from ktr.data.row_sampler import ReadableRows, RowSampler
from ktr.data.rows import Media, Row


def make_rows(count: int) -> list[Row]:
    return [Row(f"row-{i}", "q", Media("video", f"{i}.mp4"), "free-form", (), "a") for i in range(count)]


def test_every_row_is_read_once_an_epoch_in_an_order_of_its_own():
    sampler = RowSampler(10, seed=3)
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(10)) and len(sampler) == 10
    assert first != second and first != list(range(10))
    assert list(RowSampler(10, seed=3)) == first and list(RowSampler(10, seed=4)) != first


def test_an_epoch_can_be_chosen():
    sampler = RowSampler(10, seed=3)
    _, second = list(sampler), list(sampler)
    again = RowSampler(10, seed=3)
    again.set_epoch(1)
    assert list(again) == second


def test_groups_are_whole_and_batches_are_repeated():
    sampler = RowSampler(7, seed=0, batch_rows=2, group_size=3, passes=2)
    indices = list(sampler)
    assert len(indices) == len(sampler) == 3 * 2 * 3 * 2
    seen = []
    for start in range(0, len(indices), 12):
        once, twice = indices[start : start + 6], indices[start + 6 : start + 12]
        assert once == twice
        assert once[:3] == [once[0]] * 3 and once[3:] == [once[3]] * 3
        seen += [once[0], once[3]]
    assert len(set(seen)) == 6


def test_ranks_share_a_batch_in_whole_groups():
    """As accelerate shards it: each rank's batch holds the groups of one generation batch that are its own."""

    def of_rank(rank: int) -> list[list[int]]:
        sampler = RowSampler(8, seed=5, batch_rows=4, group_size=3, passes=2)
        return list(BatchSamplerShard(BatchSampler(sampler, batch_size=6, drop_last=True), 2, rank))

    first, second = of_rank(0), of_rank(1)
    assert len(first) == len(second) == 4
    assert first[0] == first[1] != first[2] and second[0] == second[1]
    assert len({*first[0], *second[0], *first[2], *second[2]}) == 8


def test_the_next_row_takes_the_place_of_an_unreadable_one():
    order = list(RowSampler(9, seed=2))
    broken = set(order[1:3])
    asked = []

    def readable(index: int) -> bool:
        asked.append(index)
        return index not in broken

    sampler = RowSampler(9, seed=2, batch_rows=3, readable=readable)
    found = list(sampler)
    assert found[:7] == [index for index in order if index not in broken]
    assert len(found) == len(sampler) == 9 and not broken & set(found), "later rows fill the epoch"
    assert asked[:9] == order, "each row is tried in its turn"


@pytest.mark.parametrize(("rows", "unreadable"), [(2, ()), (6, (0, 1, 2, 3, 4))])
def test_fewer_rows_than_a_batch_are_repeated_to_fill_it(rows, unreadable):
    sampler = RowSampler(rows, seed=0, batch_rows=5, group_size=2, readable=lambda index: index not in unreadable)
    found = list(sampler)
    assert len(found) == len(sampler) == 10
    assert set(found) == set(range(rows)) - set(unreadable)


def test_nothing_to_read_is_an_error_and_no_endless_search():
    with pytest.raises(ValueError, match="no rows"):
        RowSampler(0, seed=0)
    with pytest.raises(ValueError, match="none of 4 rows can be read"):
        list(RowSampler(4, seed=0, batch_rows=2, readable=lambda index: False))


def test_unreadable_rows_are_counted_and_told_about_once(caplog):
    rows = make_rows(4)
    told, loads = [], []

    def load(row: Row) -> None:
        loads.append(row.id)
        if row.id in ("row-1", "row-2"):
            raise MediaError(row.media.path, "missing", "no such file", row.id)

    readable = ReadableRows(rows, load, lambda row, error: told.append((row.id, error.reason)))
    assert [readable(i) for i in (0, 1, 2, 3, 1, 0)] == [True, False, False, True, False, True]
    assert readable.num_skipped == 2 and told == [("row-1", "missing"), ("row-2", "missing")]
    assert loads == ["row-0", "row-1", "row-2", "row-3"], "a verdict is kept"
    assert "row-1" in caplog.text and "no such file" in caplog.text


def test_an_error_that_is_not_about_media_is_not_skipped():
    def load(row: Row) -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        ReadableRows(make_rows(1), load)(0)


def test_media_are_read_before_their_turn_with_the_same_verdicts():
    rows = make_rows(20)
    read, told = [], []

    def load(row: Row) -> None:
        read.append(row.id)
        if int(row.id.partition("-")[2]) % 3 == 0:
            raise MediaError(row.id, "missing", "no such file")

    def order(ahead: int) -> list[int]:
        told.clear()
        readable = ReadableRows(rows, load, lambda row, error: told.append(row.id), ahead=ahead)
        return list(RowSampler(20, seed=1, batch_rows=4, readable=readable)) + told

    at_once = order(0)
    read.clear()
    assert order(6) == at_once
    assert sorted(read) == sorted(row.id for row in rows), "every row is read once, whichever thread does it"


def test_reading_ahead_is_done_while_the_step_works():
    started = threading.Event()

    def load(row: Row) -> None:
        if row.id == "row-1":
            started.set()

    readable = ReadableRows(make_rows(3), load, ahead=2)
    readable.look_ahead([0, 1, 2])
    assert readable(0) and started.wait(5), "row 1 is read although its turn has not come"


def test_batches_of_one_kind_hold_every_row_whose_kind_fills_them(caplog):
    kinds = ["video"] * 7 + ["image"] * 4 + ["text"]
    sampler = RowSampler(12, seed=1, batch_rows=2, kinds=kinds)
    indices = list(sampler)
    batches = [indices[start : start + 2] for start in range(0, len(indices), 2)]
    assert len(indices) == len(sampler) == 2 * (3 + 2)
    assert all(kinds[first] == kinds[second] for first, second in batches)
    assert len(set(indices)) == len(indices)
    assert len({kinds[first] for first, _ in batches[:3]}) == 2, "kinds take turns by chance"
    assert "1 text rows are fewer than the 2 of one step" in caplog.text


def test_unreadable_rows_leave_batches_of_one_kind_whole():
    kinds = ["video", "image"] * 4
    sampler = RowSampler(8, seed=1, batch_rows=2, kinds=kinds, readable=lambda index: index != 0)
    indices = list(sampler)
    assert len(indices) == 8 and 0 not in indices
    assert all(kinds[a] == kinds[b] for a, b in zip(indices[::2], indices[1::2], strict=True))
