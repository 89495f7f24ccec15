"""Our settings as TRL's arguments, and the options of TRL that are refused by name."""

from __future__ import annotations

import pytest
from trl import GRPOConfig

from ktr.config.schema_learning import GrpoConfig, SftConfig
from ktr.rollout.engine import SamplingSettings
from ktr.training.arguments import UNSUPPORTED, grpo_arguments, refuse_unsupported, sft_arguments
from ktr.training.objective_settings import ObjectiveSettings


def arguments(tmp_path, **settings) -> GRPOConfig:
    return grpo_arguments(
        GrpoConfig(**{"groups_per_step": 4, "group_size": 3, **settings}), tmp_path, seed=5, workers=0,
        checkpointing=False, max_new_tokens=7, temperature=0.7, top_p=0.9, top_k=0,
    )  # fmt: skip


def refuse(given: GRPOConfig, beta: float = 0.04, temperature: float = 0.7) -> None:
    refuse_unsupported(given, ObjectiveSettings(beta=beta), SamplingSettings(7, temperature))


def test_a_step_is_groups_per_step_in_equal_passes(tmp_path):
    given = arguments(tmp_path, gradient_accumulation=2, updates_per_batch=3, beta=0.2)
    assert given.per_device_train_batch_size == 6 and given.gradient_accumulation_steps == 2
    assert given.generation_batch_size == 12 and given.steps_per_generation == 2 and given.num_iterations == 3
    assert given.beta == 0.2 and given.temperature == 0.7 and given.seed == given.data_seed == 5
    assert not given.bf16, "TRL turns bf16 on where nothing is said"
    refuse(given, beta=0.2)


def test_sft_rows_are_shared_by_the_passes(tmp_path):
    given = sft_arguments(
        SftConfig(batch_size=6, gradient_accumulation=3, max_steps=9), tmp_path, seed=1, workers=2, checkpointing=True
    )
    assert given.per_device_train_batch_size == 2 and given.gradient_accumulation_steps == 3 and given.max_steps == 9
    assert given.gradient_checkpointing and given.gradient_checkpointing_kwargs == {"use_reentrant": False}
    assert given.max_length is None, "a prompt is never cut"


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_an_option_that_has_no_effect_is_refused_by_name(tmp_path, name):
    given = arguments(tmp_path)
    refuse(given)
    other = {bool: not UNSUPPORTED[name], str: "other", float: 0.123, type(None): 0.5}[type(UNSUPPORTED[name])]
    setattr(given, name, other)
    with pytest.raises(ValueError, match=name):
        refuse(given)


def test_contradictions_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="beta=0.04 contradicts"):
        refuse(arguments(tmp_path), beta=0.1)
    with pytest.raises(ValueError, match="temperature=0.7 contradicts"):
        refuse(arguments(tmp_path), temperature=1.0)
    with pytest.raises(ValueError, match="temperature above 0"):
        refuse(arguments(tmp_path), temperature=0.0)
    given = arguments(tmp_path)
    given.steps_per_generation = 4
    with pytest.raises(ValueError, match="steps_per_generation=4"):
        refuse(given)
    given = arguments(tmp_path)
    given.per_device_train_batch_size = 4
    with pytest.raises(ValueError, match="per_device_train_batch_size=4"):
        refuse(given)


def test_deepspeed_is_refused_in_a_single_process(tmp_path):
    with pytest.raises(ValueError, match=r"model\.deepspeed.*torchrun"):
        sft_arguments(SftConfig(), tmp_path, seed=0, workers=0, checkpointing=False, deepspeed="zero3.json")
