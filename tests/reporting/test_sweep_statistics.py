"""Means over seeds and main effects, against values by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktr.reporting.run_figures import Figure
from ktr.reporting.sweep_statistics import (
    FAILED,
    FINISHED,
    RUNNING,
    SweptRun,
    axes_of,
    main_effects,
    numeric_points,
    settings_of,
    spread,
)


def run(number: int, settings: dict, value: float | None, state: str = FINISHED) -> SweptRun:
    figures = {} if value is None else {"accuracy": Figure(value, share=True)}
    text = {key: str(value) for key, value in settings.items()}
    return SweptRun(number, text, Path(str(number)), state, figures=figures)


def grid(values: dict[tuple, float | None]) -> list[SweptRun]:
    """Runs of (k, model, seed); None is a failed one, which left a figure from before it failed."""
    return [
        run(number, {"k": k, "model": model, "seed": seed}, 9.0 if value is None else value,
            FAILED if value is None else FINISHED)
        for number, ((k, model, seed), value) in enumerate(values.items())
    ]  # fmt: skip


def test_a_mean_has_students_interval():
    """t(0.975, 2) = 4.302653 (any table of Student's t), s = 0.1: half a width of 4.302653 * 0.1 / sqrt(3)."""
    found = spread([0.5, 0.7, 0.6])
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert found.mean == pytest.approx(0.6) and found.std == pytest.approx(0.1)
    assert (found.low, found.high) == (pytest.approx(0.6 - half, abs=1e-7), pytest.approx(0.6 + half, abs=1e-7))


def test_one_run_has_neither_deviation_nor_interval():
    found = spread([0.5])
    assert (found.mean, found.std, found.low, found.high) == (0.5, None, None, None)
    assert spread([]) is None


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9), st.floats(-10, 10))
def test_an_interval_moves_with_the_values_and_holds_their_mean(values, shift):
    found, moved = spread(values), spread([value + shift for value in values])
    assert found.low <= found.mean <= found.high
    assert moved.mean == pytest.approx(found.mean + shift, abs=1e-6)
    assert moved.high - moved.low == pytest.approx(found.high - found.low, abs=1e-6)


def test_failed_and_unfinished_runs_are_in_no_mean():
    runs = [
        run(0, {"k": 1, "seed": 0}, 0.5), run(1, {"k": 1, "seed": 1}, 9.0, FAILED), run(2, {"k": 1, "seed": 2}, 0.7),
        run(3, {"k": 2, "seed": 0}, 9.0, RUNNING), run(4, {"k": 2, "seed": 1}, None),
    ]  # fmt: skip
    one, two = settings_of(runs, ["seed"])
    assert one.values == {"k": "1"} and one.spread("accuracy").values == (0.5, 0.7)
    assert dict(one.left_out) == {FAILED: 1} and dict(two.left_out) == {RUNNING: 1}
    assert two.spread("accuracy") is None


def test_axes_are_the_keys_that_differ_and_a_missing_key_is_a_value():
    runs = [run(0, {"lr": 1, "k": 1}, 0.5), run(1, {"lr": 1, "k": 2, "extra": 3}, 0.5)]
    assert axes_of(runs) == ["k", "extra"]
    assert [setting.values for setting in settings_of(runs, ["seed"])] == [
        {"k": "1", "extra": "-"}, {"k": "2", "extra": "3"},
    ]  # fmt: skip
    assert [setting.values for setting in settings_of(runs[:1], ["seed"])] == [{}]


def test_a_main_effect_is_what_a_value_adds_within_blocks():
    """y = 0.5 + 0.1 [k=2] + 0.2 [model=b] + seed/100: k adds +-0.05 to its blocks' mean and model +-0.1, exactly."""
    runs = grid({
        (k, model, seed): 0.5 + 0.1 * (k == 2) + 0.2 * (model == "b") + seed / 100
        for k in (1, 2) for model in "ab" for seed in (0, 1, 2)
    })  # fmt: skip
    k, model = main_effects(runs, "accuracy", ["seed"])
    assert (k.axis, k.blocks, k.unpaired) == ("k", 6, 0) and (model.axis, model.blocks) == ("model", 6)
    assert [(one.value, one.effect.mean, one.mean) for one in k.effects] == [
        ("1", pytest.approx(-0.05), pytest.approx(0.61)), ("2", pytest.approx(0.05), pytest.approx(0.71)),
    ]  # fmt: skip
    assert all(one.effect.high - one.effect.low == pytest.approx(0, abs=1e-9) for one in (*k.effects, *model.effects))


def test_a_block_that_lost_a_run_is_left_out_and_counted():
    """Without blocks, k=2 would look worse than k=1: its run with the good seed failed."""
    runs = grid({(1, "a", 0): 0.5, (1, "a", 1): 0.9, (2, "a", 0): 0.6, (2, "a", 1): None})
    (k,) = main_effects(runs, "accuracy", ["seed"])
    assert (k.blocks, k.unpaired) == (1, 1)
    assert [one.effect.mean for one in k.effects] == [pytest.approx(-0.05), pytest.approx(0.05)]


def test_a_search_has_no_whole_block_and_no_effect():
    runs = [run(number, {"k": number / 7, "lr": number / 3}, 0.5) for number in range(4)]
    assert [(one.effects, one.blocks, one.unpaired) for one in main_effects(runs, "accuracy", [])] == [([], 0, 4)] * 2
    assert numeric_points(runs, "k", "accuracy") == [(number / 7, 0.5) for number in range(4)]
    assert numeric_points([run(0, {"k": "none"}, 0.5), *runs], "k", "accuracy") == []
