from __future__ import annotations

import pytest

from ktr.attribution.settings import KeyTokenSettings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"signals": ("entropy", "motion")}, "signals"),
        ({"signals": ("entropy", "entropy")}, "signals"),
        ({"delta": "squared"}, "delta must be one of absolute, signed"),
        ({"scope": "batch"}, "scope must be one of"),
        ({"combine": "xor"}, "combine must be one of"),
        ({"weights": "hard"}, "weights must be one of"),
        ({"normalize": "tokens"}, "normalize must be one of"),
        ({"blind": "noise"}, "blind must be one of"),
        ({"granularity": "clip"}, "granularity must be one of"),
        ({"permutations": 0}, "permutations"),
        ({"top_k": 0.0}, "top_k of entropy"),
        ({"top_k": 1.5}, "top_k of entropy"),
        ({"top_k": {"entropy": 0.2, "visual": 0.2}}, "top_k needs one ratio"),
        ({"signals": ("entropy",), "top_k": {"entropy": 0.2, "motion": 0.1}}, "top_k needs one ratio"),
    ],
)
def test_impossible_settings_name_the_field(arguments, message):
    with pytest.raises(ValueError, match=message):
        KeyTokenSettings(**arguments)


def test_one_ratio_serves_every_signal_and_a_mapping_each_its_own():
    assert KeyTokenSettings(top_k=0.3).ratio("visual") == 0.3
    assert KeyTokenSettings(top_k={"entropy": 0.1, "visual": 0.2, "temporal": 0.5}).ratio("temporal") == 0.5
