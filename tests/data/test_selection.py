"""Filters, draws and mixes of rows."""

from __future__ import annotations

from collections import Counter

import pytest

from ktr.data.rows import Media, Row
from ktr.data.selection import Keep, draw_subset, keep_rows, mix_rows, shares


def rows(count, prefix="", **values):
    defaults = {"media": Media("video", "x.mp4"), "problem_type": "free-form", "options": (), "answer": "red"}
    return [Row(f"{prefix}{number}", "what ?", **(defaults | values)) for number in range(count)]


def test_each_filter_keeps_what_it_names():
    mixed = [
        *rows(1, "v", duration=5.0, source="a"),
        *rows(1, "i", media=Media("image", "x.png"), source="b"),
        *rows(1, "t", media=None, problem_type="numerical", answer="3"),
        *rows(1, "long", duration=50.0, source="b"),
    ]

    def kept(**settings):
        return [row.id for row in keep_rows(mixed, Keep(**settings), "rows")]

    assert kept(modality=("video",)) == ["v0", "long0"]
    assert kept(modality=("image", "text")) == ["i0", "t0"]
    assert kept(problem_type=("numerical",)) == ["t0"]
    assert kept(source=("b",)) == ["i0", "long0"]
    assert kept(max_seconds=10.0) == ["v0", "i0", "t0"]
    assert kept(min_seconds=10.0, source=("a", "b"), modality=("video",)) == ["long0"]
    assert kept() == [row.id for row in mixed]
    with pytest.raises(ValueError, match="lets none of 4 rows through"):
        kept(source=("c",))


def test_a_length_that_is_not_known_is_not_guessed():
    with pytest.raises(ValueError, match="row '0' does not state how long.*job=doctor"):
        keep_rows(rows(2), Keep(max_seconds=10.0), "rows")


def test_a_subset_is_fixed_by_its_seed_and_keeps_the_order():
    pool = rows(100)
    first = draw_subset(pool, 10, 0)
    assert first == draw_subset(pool, 10, 0) != draw_subset(pool, 10, 1)
    assert [int(row.id) for row in first] == sorted(int(row.id) for row in first) and len(set(first)) == 10
    assert set(first) < set(draw_subset(pool, 20, 0))
    assert draw_subset(pool, None, 0) == draw_subset(pool, 200, 0) == pool


def test_shares_follow_the_weights():
    assert shares([3, 1], [90, 1000], None) == [90, 30]
    assert shares([1, 1, 1], [50, 50, 50], 100) == [34, 33, 33]
    assert shares([0.7, 0.3], [1000, 1000], 10) == [7, 3]
    for total in range(1, 50):
        assert sum(shares([0.1, 2.5, 0.4], [9, 9, 9], total)) == total


def test_a_mix_holds_its_shares_everywhere():
    mixed = mix_rows([("a", rows(90, "a"), 3.0), ("b", rows(1000, "b"), 1.0)], seed=1)
    assert Counter(row.id[0] for row in mixed) == {"a": 90, "b": 30}
    assert len({row.id for row in mixed}) == 120
    for start in range(0, 120, 20):
        assert Counter(row.id[0] for row in mixed[start : start + 20])["a"] == 15
    assert mixed == mix_rows([("a", rows(90, "a"), 3.0), ("b", rows(1000, "b"), 1.0)], seed=1)
    other = mix_rows([("a", rows(90, "a"), 3.0), ("b", rows(1000, "b"), 1.0)], seed=2)
    assert {row.id for row in other} != {row.id for row in mixed}


def test_a_total_may_repeat_rows_and_says_so(caplog):
    mixed = mix_rows([("a", rows(4, "a"), 1.0), ("b", rows(100, "b"), 1.0)], 20, seed=0)
    assert sorted(Counter(row.id for row in mixed if row.id[0] == "a").values()) == [2, 2, 3, 3]
    assert "4 rows of a fill 10 places" in caplog.text


def test_without_weights_sources_follow_each_other():
    first, second = rows(2, "a"), rows(3, "b")
    assert mix_rows([("a", first, None), ("b", second, None)]) == first + second


def test_ids_that_two_sources_share_are_refused():
    with pytest.raises(ValueError, match="one and two both have a row '0'"):
        mix_rows([("one", rows(2), 1.0), ("two", rows(2), 1.0)])
    with pytest.raises(ValueError, match="two holds no rows"):
        mix_rows([("one", rows(2), 1.0), ("two", [], 1.0)])
