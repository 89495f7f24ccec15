"""Packed rows give what one ordinary forward a completion gives, in every family, view and arrangement."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from small_models import FAMILIES, load_scored, make_encoder, make_groups, make_prompt, random_completions

from ktr.models.attention import set_text_attention
from ktr.models.families import unwrap_model
from ktr.training.scoring import (
    GroupScorer,
    ScoringGroup,
    blind_groups,
    encode_once,
    shuffled_groups,
    valid_tokens,
)


@pytest.fixture(scope="module", params=FAMILIES)
def setup(request, checkpoints):
    loaded = load_scored(checkpoints[request.param])
    encoder = make_encoder(loaded)
    return loaded.model, encoder, make_groups(encoder)


def make_scorer(encoder, **options) -> GroupScorer:
    return GroupScorer(encoder.family, pad_token_id=0, **{"max_packed_tokens": 100_000, **options})


def plain_scores(model, encoder, groups, attention=None):
    """Log-probs and entropies by the model's own forward and full logits, one completion at a time."""
    everything = []
    for group in groups:
        prompt = group.prompt
        for ids in group.completions:
            tokens = torch.tensor(ids)
            following = prompt.next_position + torch.arange(len(ids))
            length = len(prompt) + len(ids)
            mask = torch.ones(1, length, dtype=torch.long)
            if attention is not None:
                mask[0, : len(prompt)] = attention(prompt)
            logits = model(
                input_ids=torch.cat([prompt.input_ids_P, tokens])[None],
                position_ids=torch.cat([prompt.position_ids_3P, following.expand(3, -1)], 1)[:, None],
                attention_mask=mask,
                **encoder.family.forward_inputs([prompt]),
            ).logits[0, len(prompt) - 1 : -1]
            log_probs = logits.log_softmax(-1)
            everything.append((log_probs.gather(1, tokens[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(-1)))
    return everything


def assert_rows_equal(scores_NC, expected, tolerance=1e-5):
    for row, values in zip(scores_NC, expected, strict=True):
        torch.testing.assert_close(row[: len(values)], values, atol=tolerance, rtol=0)
        assert (row[len(values) :] == 0).all()


@pytest.mark.parametrize("packing", [True, False])
def test_packed_rows_equal_one_forward_a_completion(setup, packing):
    model, encoder, groups = setup
    expected = plain_scores(model, encoder, groups)
    scores = make_scorer(encoder, packing=packing).score(model, groups)
    assert_rows_equal(scores.logps_NC.detach(), [logps.detach() for logps, _ in expected])
    assert_rows_equal(scores.entropy_NC, [entropy.detach() for _, entropy in expected])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["sdpa", "eager", pytest.param("flex_attention", marks=pytest.mark.slow)])
def test_every_attention_gives_the_same_scores(checkpoints, family, attention):
    loaded = load_scored(checkpoints[family])
    set_text_attention(loaded.model, attention)
    encoder = make_encoder(loaded)
    groups = make_groups(encoder)
    with torch.no_grad():
        expected = plain_scores(load_scored(checkpoints[family]).model, encoder, groups)
        scores = make_scorer(encoder).score(loaded.model, groups)
    assert_rows_equal(scores.logps_NC, [logps for logps, _ in expected])


@pytest.mark.parametrize("budget", [1, 40, 60, 90])
def test_splitting_groups_by_a_token_budget_changes_nothing(setup, budget):
    model, encoder, groups = setup
    whole = make_scorer(encoder).score(model, groups)
    split = make_scorer(encoder, max_packed_tokens=budget).score(model, groups)
    torch.testing.assert_close(split.logps_NC, whole.logps_NC, atol=1e-5, rtol=0)
    torch.testing.assert_close(split.entropy_NC, whole.entropy_NC, atol=1e-5, rtol=0)


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_gradients_equal_plain_ones(checkpoints, family, lora, checkpointing):
    loaded = load_scored(checkpoints[family])
    encoder = make_encoder(loaded)
    groups = make_groups(encoder)
    model = loaded.model
    if lora:
        model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"]))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    weights_NC = torch.rand(valid_tokens(groups).shape, generator=torch.Generator().manual_seed(0))

    def gradients(loss):
        model.zero_grad()
        loss.backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    plain = torch.stack(
        [
            (logps * weights_NC[i, : len(logps)]).sum()
            for i, (logps, _) in enumerate(plain_scores(model, encoder, groups))
        ]
    ).sum()
    expected = gradients(plain)
    if checkpointing:
        unwrap_model(model).gradient_checkpointing_enable({"use_reentrant": False})
        if lora:
            model.enable_input_require_grads()
        model.train()
    found = gradients((make_scorer(encoder).score(model, groups).logps_NC * weights_NC).sum())
    assert expected.keys() <= found.keys() and len(expected) > (5 if lora else 20)
    for name, gradient in expected.items():
        scale = max(gradient.abs().max().item(), 1e-3)
        assert (found[name] - gradient).abs().max().item() <= 1e-4 * scale, name


def test_dropping_visual_tokens_equals_masking_the_attention_to_them(setup):
    model, encoder, groups = setup
    expected = plain_scores(model, encoder, groups, attention=lambda prompt: (~prompt.visual_mask_P).long())
    with torch.no_grad():
        blind = make_scorer(encoder).score(model, blind_groups(groups, "drop_tokens"))
    assert_rows_equal(blind.logps_NC, [logps.detach() for logps, _ in expected])
    seen = groups[0].completions[0]
    assert not torch.allclose(
        blind.logps_NC[0, : len(seen)], make_scorer(encoder).score(model, groups).logps_NC[0, : len(seen)]
    )


def test_encoded_features_stand_for_pixels(setup):
    model, encoder, groups = setup
    scorer = make_scorer(encoder)
    with torch.no_grad():
        pixels = scorer.score(model, groups)
        features = scorer.score(model, encode_once(encoder.family, model, groups))
    torch.testing.assert_close(features.logps_NC, pixels.logps_NC, atol=1e-6, rtol=0)


def test_captured_features_are_those_of_the_tower(setup):
    model, encoder, groups = setup
    captured = make_scorer(encoder, max_packed_tokens=60).score(model, groups, capture_vision=True).features
    for found, group in zip(captured, encode_once(encoder.family, model, groups), strict=True):
        if group.features is None:
            assert found is None
        else:
            torch.testing.assert_close(found.pooled_MH, group.features.pooled_MH, atol=1e-6, rtol=0)
            assert not found.pooled_MH.requires_grad
            assert len(found.deepstack) == len(group.features.deepstack)


def test_zero_features_equal_a_tower_that_returns_zeros(setup):
    model, encoder, groups = setup
    groups = encode_once(encoder.family, model, groups[:2])
    tower = unwrap_model(model).model.visual

    def silence(module, inputs, output):
        output.pooler_output = torch.zeros_like(output.pooler_output)
        if getattr(output, "deepstack_features", None):
            output.deepstack_features = [torch.zeros_like(layer) for layer in output.deepstack_features]
        return output

    handle = tower.register_forward_hook(silence)
    expected = plain_scores(model, encoder, groups)
    handle.remove()
    with torch.no_grad():
        found = make_scorer(encoder).score(model, blind_groups(groups, "zero_features"))
    with pytest.raises(AssertionError, match="see everything"):
        blind_groups([replace(group, features=None) for group in groups], "zero_features")
    assert_rows_equal(found.logps_NC, [logps.detach() for logps, _ in expected])


@pytest.mark.parametrize("encoded", [True, False])
def test_shuffled_patches_equal_a_video_whose_frames_moved_in_pairs(setup, encoded):
    model, encoder, groups = setup
    video = groups[:1]
    moved = [replace(video[0], prompt=encoder.with_frame_order(video[0].prompt, [4, 5, 0, 1, 2, 3]))]
    expected = plain_scores(model, encoder, moved)
    if encoded:
        video = encode_once(encoder.family, model, video)
    with torch.no_grad():
        found = make_scorer(encoder).score(model, shuffled_groups(video, [[2, 0, 1]], "patch", encoder))
        frames = make_scorer(encoder).score(model, shuffled_groups(video, [[4, 5, 0, 1, 2, 3]], "frame", encoder))
    assert_rows_equal(found.logps_NC, [logps.detach() for logps, _ in expected])
    torch.testing.assert_close(frames.logps_NC, found.logps_NC, atol=1e-5, rtol=0)


def test_left_over_pads_in_a_completion_are_text(setup):
    """A sampled end-of-text or pad id is a token like any other: only placeholders are banned."""
    model, encoder, groups = setup
    pad = encoder.tokenizer.pad_token_id
    group = ScoringGroup(make_prompt(encoder, "video", 7), ((11, pad, pad, 12), *random_completions((2,), 200, 1)))
    expected = plain_scores(model, encoder, [group])
    found = make_scorer(encoder).score(model, [group])
    assert_rows_equal(found.logps_NC.detach(), [logps.detach() for logps, _ in expected])
