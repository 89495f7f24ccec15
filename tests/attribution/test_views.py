from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktr.attribution.views import available_signals, frames_of_grids, permutations, shuffle_seed, shuffled_orders


@given(st.integers(0, 40), st.integers(1, 8), st.integers(0, 2**64 - 1))
def test_orders_are_distinct_permutations_and_never_the_identity(num_grids, count, seed):
    orders = permutations(num_grids, count, seed)
    assert len({tuple(order) for order in orders}) == len(orders)
    for order in orders:
        assert sorted(order) == list(range(num_grids))
        assert order != list(range(num_grids))
    assert orders == permutations(num_grids, count, seed)
    assert orders[:1] == permutations(num_grids, 1, seed)


@pytest.mark.parametrize(("num_grids", "count", "expected"), [(0, 3, 0), (1, 3, 0), (2, 3, 1), (3, 9, 5), (4, 3, 3)])
def test_as_many_orders_as_asked_or_as_there_are(num_grids, count, expected):
    assert len(permutations(num_grids, count, seed=1)) == expected


def test_every_order_is_reached():
    seen = {tuple(permutations(3, 1, seed)[0]) for seed in range(200)}
    assert len(seen) == 5


def test_no_order_is_asked_for():
    with pytest.raises(ValueError, match="permutations"):
        permutations(4, 0, seed=0)


def test_shuffle_seed_golden():
    assert shuffle_seed(3, 17, "clip-\u03b1/1") == 3624385884018331585


def test_settings_and_views_import_no_torch():
    code = "import sys, ktr.attribution.settings, ktr.attribution.views; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_shuffle_seed_depends_on_each_part_and_on_where_they_part():
    keys = [(1, 2, "3"), (1, 3, "3"), (2, 2, "3"), (1, 2, "4"), (12, 2, "3"), (1, 22, "3")]
    assert len({shuffle_seed(*key) for key in keys}) == len(keys)


def test_patch_orders_move_whole_temporal_patches():
    orders = shuffled_orders(4, 2, seed=5, granularity="patch")
    assert orders == [frames_of_grids(order) for order in permutations(4, 2, seed=5)]
    assert frames_of_grids([1, 0]) == [2, 3, 0, 1]


def test_frame_orders_move_single_frames():
    assert shuffled_orders(4, 2, seed=5, granularity="frame") == permutations(8, 2, seed=5)


@pytest.mark.parametrize("granularity", ["frame", "patch"])
@pytest.mark.parametrize("num_grids", [0, 1])
def test_one_patch_has_no_order(granularity, num_grids):
    assert shuffled_orders(num_grids, 1, seed=0, granularity=granularity) == []


def test_unknown_granularity_names_the_choices():
    with pytest.raises(ValueError, match="frame, patch"):
        shuffled_orders(4, 1, seed=0, granularity="clip")


@pytest.mark.parametrize(
    ("modality", "num_grids", "expected"),
    [
        ("text", 0, ("entropy",)),
        ("image", 1, ("entropy", "visual")),
        ("video", 1, ("entropy", "visual")),
        ("video", 2, ("entropy", "visual", "temporal")),
    ],
)
def test_signals_a_prompt_can_have(modality, num_grids, expected):
    assert available_signals(modality, num_grids) == expected


def test_only_wanted_signals_are_available():
    assert available_signals("video", 8, ("temporal", "entropy")) == ("entropy", "temporal")
    assert available_signals("image", 1, ("temporal",)) == ()
    with pytest.raises(ValueError, match="text, image or video"):
        available_signals("audio", 1)
