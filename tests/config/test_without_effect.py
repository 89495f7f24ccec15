"""Settings that change nothing are named, with the reason; those that do are left alone."""

from __future__ import annotations

import pytest

from ktr.config.compose import compose
from ktr.config.validate import validate
from ktr.config.without_effect import without_effect


def lines_of(*overrides: str) -> list[str]:
    return list(without_effect(validate(compose("train", overrides)), overrides))


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["ktr=none", "ktr.top_k=0.3"], "ktr.top_k has no effect: no signal of ktr is on"),
        (["ktr=entropy", "ktr.visual.blind=zero_features"], "ktr.visual.blind has no effect: ktr.visual.enabled"),
        (["ktr=visual", "ktr.temporal.permutations=2"], "ktr.temporal.permutations has no effect: ktr.temporal"),
        (["ktr=entropy", "ktr.entropy.top_k=0.1", "ktr.top_k=0.3"], "ktr.top_k has no effect: every signal"),
        (["ktr.weights=sigmoid", "ktr.combine=intersection"], "ktr.combine has no effect: soft weights"),
        (["ktr=entropy", "ktr.combine=intersection"], "ktr.combine has no effect: one signal"),
        (["trainer.beta=0", "ktr.mask_kl=false"], "ktr.mask_kl has no effect: there is no KL term"),
        (["trainer.beta=0", "trainer.kl_clamp=10"], "trainer.kl_clamp has no effect: there is no KL term"),
        (["trainer.zero_variance=keep", "trainer.resample_limit=2"], "trainer.resample_limit has no effect"),
        (["trainer.cispo_cap=3"], "trainer.cispo_cap has no effect: trainer.objective is not cispo"),
        (["ktr.weights=linear", "ktr.scope=group"], "ktr.scope has no effect: soft weights"),
        (["trainer.objective=dr_grpo", "ktr.normalize=selected"], "ktr.normalize has no effect: dr_grpo divides by"),
        (["model.lora.alpha=8"], "model.lora.alpha has no effect: model.lora.rank is 0"),
        (["stages=[rl]", "model.lora.rank=4", "model.lora.dropout=0.1"], "model.lora.dropout has no effect: the stage"),
        (["model.lora.rank=4", "model.freeze_vision=false"], "model.freeze_vision has no effect: adapters"),
        (["trainer.objective=cispo", "trainer.epsilon=0.1"], "trainer.epsilon has no effect: cispo clips by"),
        (["stages=[sft]", "trainer.group_size=4"], "trainer.group_size has no effect: the stage rl is not"),
        (["stages=[rl]", "sft.max_steps=4"], "sft.max_steps has no effect: the stage sft is not among stages"),
        (["stages=[rl]", "eval.max_new_tokens=9"], "eval.max_new_tokens has no effect: the stage eval"),
        (["sft.epochs=2", "sft.max_steps=4"], "sft.epochs has no effect: sft.max_steps ends the stage"),
    ],
)  # fmt: skip
def test_what_changes_nothing_is_named(overrides: list[str], line: str) -> None:
    (found,) = lines_of(*overrides)
    assert found.startswith(line)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["ktr=none", "ktr.visual.enabled=true", "ktr.top_k=0.3"],
        ["ktr=entropy", "ktr.top_k=0.3", "ktr.entropy.enabled=true"],
        ["trainer.packing=false", "trainer.max_packed_tokens=4096"],
        ["trainer.zero_variance=resample", "trainer.resample_limit=2"],
        ["trainer.objective=cispo", "trainer.cispo_cap=3"],
        ["stages=[rl]", "eval.every_steps=1", "eval.max_new_tokens=9"],
        ["trainer.max_steps=null", "trainer.epochs=2"],
        ["+reward.components.brevity={_target_:ktr.rewards.lengths.RepetitionPenalty}"],
    ],
)
def test_what_changes_something_is_not(overrides: list[str]) -> None:
    assert lines_of(*overrides) == []
