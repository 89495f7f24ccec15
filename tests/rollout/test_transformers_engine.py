from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from peft import get_peft_model
from torch.utils.flop_counter import FlopCounterMode

from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.loading import LoadedModel
from ktr.models.lora import lora_config
from ktr.rollout.engine import Completion, RolloutEngine, SamplingSettings
from ktr.rollout.transformers_engine import TransformersRollout

GREEDY = SamplingSettings(12, temperature=0)
SAMPLED = SamplingSettings(12)


def tokens_of(groups: list[list[Completion]]) -> list[list[tuple[int, ...]]]:
    return [[completion.token_ids for completion in group] for group in groups]


def banned(loaded: LoadedModel) -> list[int]:
    return list(loaded.family.placeholder_ids)


def teacher_forced_logps(loaded: LoadedModel, prompt: EncodedPrompt, ids: tuple[int, ...]) -> torch.Tensor:
    """Log-probs of a completion by one plain forward over prompt and completion."""
    completion = torch.tensor(ids)
    positions = prompt.next_position + torch.arange(len(ids))
    with torch.no_grad():
        logits = loaded.model(
            input_ids=torch.cat([prompt.input_ids_P, completion])[None],
            position_ids=torch.cat([prompt.position_ids_3P, positions.expand(3, -1)], dim=1)[:, None],
            use_cache=False,
            **loaded.family.forward_inputs([prompt]),
        ).logits[0]
    return logits[len(prompt.input_ids_P) - 1 : -1].log_softmax(-1).gather(1, completion[:, None])[:, 0]


def test_it_is_a_rollout_engine(engine: TransformersRollout) -> None:
    assert isinstance(engine, RolloutEngine)


def test_greedy_is_generate_at_the_same_positions(
    loaded: LoadedModel, engine: TransformersRollout, prompts: list[EncodedPrompt]
) -> None:
    groups = engine.generate(prompts, 1, GREEDY, seed=0)
    for prompt, (completion,) in zip(prompts, groups, strict=True):
        text_positions = torch.arange(len(prompt.input_ids_P))[None]
        loaded.model.model.rope_deltas = torch.tensor([[prompt.next_position - len(prompt.input_ids_P)]])
        expected = loaded.model.generate(
            input_ids=prompt.input_ids_P[None],
            attention_mask=torch.ones(1, len(prompt.input_ids_P), dtype=torch.long),
            position_ids=torch.cat([text_positions, prompt.position_ids_3P])[:, None],
            max_new_tokens=GREEDY.max_new_tokens,
            do_sample=False,
            suppress_tokens=banned(loaded),
            **loaded.family.forward_inputs([prompt]),
        )
        assert list(completion.token_ids) == expected[0, len(prompt.input_ids_P) :].tolist()


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED, SamplingSettings(12, top_p=0.9, top_k=40)])
def test_logps_are_those_of_a_teacher_forced_forward(
    loaded: LoadedModel, engine: TransformersRollout, prompts: list[EncodedPrompt], settings: SamplingSettings
) -> None:
    for prompt, group in zip(prompts, engine.generate(prompts, 3, settings, seed=1), strict=True):
        for completion in group:
            expected = teacher_forced_logps(loaded, prompt, completion.token_ids)
            torch.testing.assert_close(torch.tensor(completion.logps), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED])
def test_batching_does_not_change_completions(
    loaded: LoadedModel, engine: TransformersRollout, prompts: list[EncodedPrompt], settings: SamplingSettings
) -> None:
    expected = tokens_of(engine.generate(prompts, 4, settings, seed=2))
    longest = max(len(prompt.input_ids_P) for prompt in prompts) + settings.max_new_tokens
    for max_batch_tokens in (1, 3 * longest, 9 * longest):
        small = TransformersRollout(
            loaded.model, loaded.processor.tokenizer, loaded.family, max_batch_tokens=max_batch_tokens
        )
        assert tokens_of(small.generate(prompts, 4, settings, seed=2)) == expected


def test_seeds_are_honoured_and_completions_of_a_group_differ(
    engine: TransformersRollout, prompts: list[EncodedPrompt]
) -> None:
    first = tokens_of(engine.generate(prompts, 8, SAMPLED, seed=3))
    assert tokens_of(engine.generate(prompts, 8, SAMPLED, seed=3)) == first
    other = tokens_of(engine.generate(prompts, 8, SAMPLED, seed=4))
    for group, others in zip(first, other, strict=True):
        assert len(set(group)) == 8
        assert not set(group) & set(others)


def test_the_same_prompt_twice_is_drawn_independently(
    engine: TransformersRollout, prompts: list[EncodedPrompt]
) -> None:
    first, second = tokens_of(engine.generate([prompts[0], prompts[0]], 4, SAMPLED, seed=5))
    assert not set(first) & set(second)


def end_after(engine: TransformersRollout, monkeypatch: pytest.MonkeyPatch, ids: set[int]) -> None:
    monkeypatch.setattr(TransformersRollout, "end_ids", property(lambda self: tuple(sorted(ids))))


def test_ended_rows_stop_and_the_others_go_on(
    loaded: LoadedModel,
    engine: TransformersRollout,
    prompts: list[EncodedPrompt],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any token from a tenth of the vocabulary ends a row: rows leave at all times, the batch is compacted."""
    settings = SamplingSettings(30)
    end_after(engine, monkeypatch, set())
    endless = engine.generate(prompts, 8, settings, seed=6)
    assert all(len(c.token_ids) == 30 and c.truncated for group in endless for c in group)
    ends = set(range(0, loaded.model.config.get_text_config().vocab_size, 10))
    end_after(engine, monkeypatch, ends)
    lengths = set()
    for group, unended in zip(engine.generate(prompts, 8, settings, seed=6), endless, strict=True):
        for completion, whole in zip(group, unended, strict=True):
            end = next((place for place, token in enumerate(whole.token_ids) if token in ends), None)
            assert completion.truncated == (end is None)
            assert completion.token_ids == (whole.token_ids if end is None else whole.token_ids[: end + 1])
            assert completion.logps == pytest.approx(whole.logps[: len(completion.token_ids)], abs=1e-5)
            lengths.add(len(completion.token_ids))
    assert len(lengths) > 5


def test_the_loop_ends_when_every_row_has(
    loaded: LoadedModel, engine: TransformersRollout, prompts: list[EncodedPrompt], monkeypatch: pytest.MonkeyPatch
) -> None:
    end_after(engine, monkeypatch, set(range(loaded.model.config.get_text_config().vocab_size)))
    forwards = []
    handle = loaded.model.register_forward_hook(lambda *_: forwards.append(1))
    groups = engine.generate(prompts, 2, SamplingSettings(30), seed=0)
    handle.remove()
    assert len(forwards) == 1
    assert all(len(c.token_ids) == 1 and not c.truncated for group in groups for c in group)


def test_end_tokens_of_chat_format_and_configs(loaded: LoadedModel, engine: TransformersRollout) -> None:
    names = loaded.processor.tokenizer.convert_ids_to_tokens(list(engine.end_ids))
    assert set(names) == {"<|im_end|>", "<|endoftext|>"}


def test_visual_placeholders_are_never_drawn_and_text_has_no_special_tokens(
    loaded: LoadedModel, engine: TransformersRollout, prompts: list[EncodedPrompt]
) -> None:
    handle = loaded.model.lm_head.register_forward_hook(
        lambda module, inputs, output: output.index_fill(-1, torch.tensor(banned(loaded)), 50.0)
    )
    groups = engine.generate(prompts, 4, SAMPLED, seed=0)
    greedy = engine.generate(prompts, 1, GREEDY, seed=0)
    handle.remove()
    drawn = {token for group in groups + greedy for completion in group for token in completion.token_ids}
    assert drawn and not drawn & set(banned(loaded))
    assert not any("<|" in completion.text for group in groups for completion in group)


def test_prompts_are_prefilled_once(
    loaded: LoadedModel, engine: TransformersRollout, new_prompt: Callable[..., EncodedPrompt]
) -> None:
    """One group of 8 against `generate` on the prompt repeated 8 times: at most 0.35 of its prefill FLOPs."""
    prompt = new_prompt(loaded, count=16, grid=(6, 6))
    with FlopCounterMode(display=False) as ours:
        engine.generate([prompt], 8, SamplingSettings(1), seed=0)
    repeated = [prompt] * 8
    text_positions = torch.arange(len(prompt.input_ids_P))[None]
    positions = torch.cat([text_positions, prompt.position_ids_3P])[:, None].expand(-1, 8, -1)
    with FlopCounterMode(display=False) as theirs:
        loaded.model.generate(
            input_ids=prompt.input_ids_P.expand(8, -1),
            attention_mask=torch.ones(8, len(prompt.input_ids_P), dtype=torch.long),
            position_ids=positions,
            max_new_tokens=1,
            do_sample=True,
            **loaded.family.forward_inputs(repeated),
        )
    assert ours.get_total_flops() <= 0.35 * theirs.get_total_flops()


def test_training_state_survives_and_no_graph_is_kept(
    loaded: LoadedModel, engine: TransformersRollout, prompts: list[EncodedPrompt]
) -> None:
    expected = tokens_of(engine.generate(prompts, 2, SAMPLED, seed=7))
    model = loaded.model
    model.gradient_checkpointing_enable()
    model.train()
    model.model.visual.eval()
    modes = [module.training for module in model.modules()]
    trained = tokens_of(engine.generate(prompts, 2, SAMPLED, seed=7))
    assert [module.training for module in model.modules()] == modes
    model.gradient_checkpointing_disable()
    model.eval()
    assert trained == expected


def test_adapters_take_part(loaded: LoadedModel, prompts: list[EncodedPrompt], tmp_path) -> None:
    from ktr.models.loading import load_model

    loaded.model.save_pretrained(tmp_path)
    loaded.processor.save_pretrained(tmp_path)
    copy = load_model(tmp_path)
    adapted = get_peft_model(copy.model, lora_config(rank=2))
    engine = TransformersRollout(adapted, copy.processor.tokenizer, copy.family)
    plain = tokens_of(engine.generate(prompts, 2, SAMPLED, seed=8))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=generator)
    groups = engine.generate(prompts, 2, SAMPLED, seed=8)
    assert tokens_of(groups) != plain
    expected = teacher_forced_logps(copy, prompts[0], groups[0][0].token_ids)
    torch.testing.assert_close(torch.tensor(groups[0][0].logps), expected, atol=1e-5, rtol=0)


def test_a_row_that_does_not_fit_is_named(engine: TransformersRollout, prompts: list[EncodedPrompt]) -> None:
    room = engine.family.max_positions - len(prompts[0].input_ids_P)
    with pytest.raises(ValueError, match="row 'a'.*exceed the model's 4096 positions"):
        engine.generate(prompts, 1, SamplingSettings(room + 1), seed=0)


def test_nothing_to_do_gives_nothing(engine: TransformersRollout) -> None:
    assert engine.generate([], 4, SAMPLED, seed=0) == []
    with pytest.raises(ValueError, match="num_completions"):
        engine.generate([], 0, SAMPLED, seed=0)


def test_progress_counts_prompts(
    engine: TransformersRollout, prompts: list[EncodedPrompt], capsys: pytest.CaptureFixture[str]
) -> None:
    engine.generate(prompts, 1, GREEDY, seed=0, progress=True)
    assert "4/4" in capsys.readouterr().err
    engine.generate(prompts, 1, GREEDY, seed=0)
    assert capsys.readouterr().err == ""
