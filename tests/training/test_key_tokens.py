"""The views behind the three signals, against scores of the views taken one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_models import FAMILIES, load_scored, make_encoder, make_groups, make_prompt, random_completions
from trainer_cases import Forwards

from ktr.attribution.settings import KeyTokenSettings
from ktr.attribution.views import permutations, shuffle_seed
from ktr.training.key_tokens import KeyTokenAttributor, num_grids
from ktr.training.scoring import GroupScorer, ScoringGroup, encode_once, valid_tokens

STEP, SEED = 4, 11


@pytest.fixture(scope="module", params=FAMILIES)
def setup(request, checkpoints):
    loaded = load_scored(checkpoints[request.param])
    encoder = make_encoder(loaded)
    scorer = GroupScorer(encoder.family, pad_token_id=0, max_packed_tokens=10_000)
    return loaded.model, encoder, scorer, make_groups(encoder)


def attribute(setup, groups=None, **settings):
    model, encoder, scorer, known = setup
    groups = known if groups is None else groups
    attributor = KeyTokenAttributor(scorer, encoder, KeyTokenSettings(**settings), seed=SEED)
    with torch.no_grad():
        full = scorer.score(model, groups, capture_vision=groups[0].features is None)
    return full, attributor.attribute(model, groups, full, valid_tokens(groups), step=STEP)


def alone(setup, group, **view) -> torch.Tensor:
    """Log-probs of one group whose prompt is shown in another way."""
    model, encoder, scorer, _ = setup
    with torch.no_grad():
        return scorer.score(model, [replace(group, **view)]).logps_NC


def assert_scores(found_GC, expected_GC):
    width = expected_GC.shape[1]
    torch.testing.assert_close(found_GC[:, :width], expected_GC, atol=2e-5, rtol=0)
    assert (found_GC[:, width:] == 0).all()


def test_each_prompt_has_the_signals_it_can_have(setup):
    _, found = attribute(setup)
    assert [list(one.scores) for one in found] == [
        ["entropy", "visual", "temporal"],
        ["entropy", "visual"],
        ["entropy"],
    ]
    _, found = attribute(setup, signals=("visual",))
    assert [list(one.scores) for one in found] == [["visual"], ["visual"], []]
    text_GC = valid_tokens(setup[3])[-len(setup[3][2].completions) :]
    assert torch.equal(found[2].weights.weights_GC, text_GC.float()), "no signal: every token"


@pytest.mark.parametrize("delta", ["absolute", "signed"])
def test_visual_and_entropy_scores(setup, delta):
    full, found = attribute(setup, delta=delta)
    group = setup[3][0]
    size = len(group.completions)
    width = max(len(ids) for ids in group.completions)
    difference = full.logps_NC[:size, :width] - alone(setup, group, drop_visual=True)
    assert_scores(found[0].scores["visual"], difference if delta == "signed" else difference.abs())
    assert_scores(found[0].scores["entropy"], full.entropy_NC[:size, :width])


def test_temporal_scores_are_a_mean_over_seeded_permutations(setup):
    full, found = attribute(setup, permutations=2)
    encoder, group = setup[1], setup[3][0]
    orders = permutations(num_grids(group.prompt), 2, shuffle_seed(SEED, STEP, group.prompt.row.id))
    assert len(orders) == 2 and [0, 1, 2] not in orders
    width = max(len(ids) for ids in group.completions)
    differences = [
        full.logps_NC[: len(group.completions), :width]
        - alone(setup, group, prompt=encoder.with_frame_order(group.prompt, [2 * g + f for g in order for f in (0, 1)]))
        for order in orders
    ]
    assert_scores(found[0].scores["temporal"], torch.stack(differences).abs().mean(0))
    _, single = attribute(setup, permutations=1)
    assert_scores(single[0].scores["temporal"], differences[0].abs())


def test_frames_move_one_by_one_where_asked(setup):
    full, found = attribute(setup, granularity="frame")
    encoder, group = setup[1], setup[3][0]
    (order,) = permutations(2 * num_grids(group.prompt), 1, shuffle_seed(SEED, STEP, group.prompt.row.id))
    width = max(len(ids) for ids in group.completions)
    moved = alone(setup, group, prompt=encoder.with_frame_order(group.prompt, order))
    assert_scores(found[0].scores["temporal"], (full.logps_NC[: len(group.completions), :width] - moved).abs())


@pytest.mark.parametrize("blind", ["drop_tokens", "zero_features"])
@pytest.mark.parametrize("granularity", ["patch", "frame"])
def test_captured_features_give_the_weights_of_encoded_ones(setup, blind, granularity):
    model, encoder, _, groups = setup
    settings = {"blind": blind, "granularity": granularity, "top_k": 0.4}
    _, captured = attribute(setup, **settings)
    _, encoded = attribute(setup, encode_once(encoder.family, model, groups), **settings)
    for one, other in zip(captured, encoded, strict=True):
        for name, scores in other.scores.items():
            torch.testing.assert_close(one.scores[name], scores, atol=2e-5, rtol=0)
        assert torch.equal(one.weights.weights_GC, other.weights.weights_GC)


def test_captured_features_save_the_tower_a_pass(setup):
    seen = Forwards(setup[0])
    attribute(setup)
    given = [kind for one in seen.seen for kind in one["vision"]]
    assert sorted(given) == ["mm_encoder_outputs", "pixel_values", "pixel_values_videos"]


def test_a_video_of_two_patches_has_one_other_order(checkpoints):
    loaded = load_scored(checkpoints["qwen2_5_vl"])
    encoder = make_encoder(loaded)
    scorer = GroupScorer(encoder.family, pad_token_id=0, max_packed_tokens=10_000)
    short = ScoringGroup(make_prompt(encoder, "video", 1, num_frames=4), random_completions((3, 2), 200, 1))
    long = ScoringGroup(make_prompt(encoder, "video", 2, num_frames=6), random_completions((3, 2), 200, 2))
    one_patch = ScoringGroup(make_prompt(encoder, "video", 3, num_frames=2), random_completions((3, 2), 200, 3))
    setup = loaded.model, encoder, scorer, [short, long, one_patch]
    seen = Forwards(loaded.model)
    _, found = attribute(setup, signals=("temporal",), permutations=3)
    assert [one["rows"] for one in seen.seen] == [3, 2, 1, 1]
    assert [list(one.scores) for one in found] == [["temporal"], ["temporal"], []]
