"""Every config file composes and validates, alone and in the combinations people make."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ktr.config.compose import CONF_DIR, SCHEMAS, compose
from ktr.config.convert import to_node
from ktr.config.schemas import TrainConfig
from ktr.config.validate import validate

GROUPS = ("model", "data", "reward", "ktr", "trainer", "eval", "rollout", "logger", "experiment", "debug")
# What a choice leaves to the person: the rows and the checkpoint.
GIVEN = ["data.path=/rows.json", "model.path=/checkpoint"]


def choices(group: str) -> list[str]:
    found = sorted(file.stem for file in (CONF_DIR / group).glob("*.yaml"))
    assert found, f"conf/{group} is empty"
    return found


def train_config(*overrides: str) -> TrainConfig:
    return validate(compose("train", [*GIVEN, *overrides]))


@pytest.mark.parametrize(
    ("group", "choice"),
    [(group, choice) for group in GROUPS for choice in choices(group) if (group, choice) != ("trainer", "sft")],
)
def test_every_choice_composes_and_validates_under_its_own_name(group: str, choice: str) -> None:
    config = train_config(f"{group}={choice}")
    if group in ("experiment", "debug"):
        assert config.name == (choice if group == "experiment" else "toy")
    else:
        assert getattr(config, group).name == choice


@pytest.mark.parametrize(("experiment", "data"), list(itertools.product(choices("experiment"), choices("data"))))
def test_every_experiment_composes_with_every_data_set(experiment: str, data: str) -> None:
    config = train_config(f"experiment={experiment}", f"data={data}")
    assert (config.name, config.data.name) == (experiment, data)


@pytest.mark.parametrize("experiment", choices("experiment"))
def test_every_experiment_shrinks_to_the_toy_model_in_debug(experiment: str) -> None:
    config = train_config(f"experiment={experiment}", "model=toy", "data=toy", "debug=fast")
    assert config.sft.max_steps == config.trainer.max_steps == 1
    assert not config.sft.bf16 and not config.trainer.bf16
    assert config.data.sampling.nframes == 4


@pytest.mark.parametrize("experiment", choices("experiment"))
def test_an_experiment_sets_only_keys_that_every_choice_of_a_group_has(experiment: str) -> None:
    settings = OmegaConf.to_container(OmegaConf.load(CONF_DIR / "experiment" / f"{experiment}.yaml"))
    assert isinstance(settings, dict)
    settings.pop("defaults")
    to_node(TrainConfig, settings | {"stages": ["sft"]})  # Raises for a key that the schema lacks.
    assert "components" not in settings.get("reward", {}), "components differ between the choices of reward"
    assert not {"toy", "path", "format"} & set(settings.get("data", {})), "these differ between the choices of data"


def test_no_argument_is_the_toy_experiment() -> None:
    assert validate(compose("train")) == validate(compose("train", ["experiment=toy"]))


def test_the_toy_model_sees_the_same_frames_by_the_experiment_and_by_the_data_group() -> None:
    trained = validate(compose("train"))
    answered = validate(compose("evaluate", ["model.path=/checkpoint"]), SCHEMAS["evaluate"])
    assert trained.data.sampling == answered.data.sampling
    assert trained.data.prompt == answered.data.prompt


@pytest.mark.parametrize("entry", ["evaluate", "predict"])
@pytest.mark.parametrize("data", choices("data"))
def test_the_other_entries_take_every_data_set(entry: str, data: str) -> None:
    given = [*GIVEN, "question=why"] if entry == "predict" else GIVEN
    config = validate(compose(entry, [*given, f"data={data}", "model=qwen3_vl_4b"]), SCHEMAS[entry])
    assert (config.data.name, config.model.name) == (data, "qwen3_vl_4b")


# Columns of the table of presets: signals, delta, scope, blind, granularity, normalize.
PRESETS = {
    "video_ktr": ("entropy visual temporal", "absolute", "completion", "zero_features", "frame", "completion"),
    "video_ktr_fast": ("entropy visual temporal", "absolute", "completion", "drop_tokens", "patch", "completion"),
    "video_ktr_released": ("entropy visual temporal", "signed", "group", "drop_tokens", "frame", "selected"),
    "entropy": ("entropy", "absolute", "completion", "drop_tokens", "patch", "completion"),
    "visual": ("visual", "absolute", "completion", "drop_tokens", "patch", "completion"),
    "temporal": ("temporal", "absolute", "completion", "drop_tokens", "patch", "completion"),
    "none": ("", "absolute", "completion", "drop_tokens", "patch", "completion"),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_of_key_tokens(preset: str) -> None:
    ktr = train_config(f"ktr={preset}").ktr
    assert PRESETS[preset] == (
        " ".join(ktr.signals), ktr.delta, ktr.scope, ktr.visual.blind, ktr.temporal.granularity, ktr.normalize,
    )  # fmt: skip
    assert (ktr.combine, ktr.weights, ktr.mask_kl, ktr.temporal.permutations) == ("union", "binary", True, 1)
    assert ktr.ratios == dict.fromkeys(ktr.signals, 0.2)


def test_every_preset_is_in_the_table() -> None:
    assert set(choices("ktr")) == set(PRESETS)


def test_one_ratio_sets_every_signal_and_a_signal_can_have_its_own() -> None:
    ktr = train_config("ktr.top_k=0.3", "ktr.visual.top_k=0.1").ktr
    assert ktr.ratios == {"entropy": 0.3, "visual": 0.1, "temporal": 0.3}


def test_settings_of_the_warm_up_stand_at_their_own_node() -> None:
    config = train_config("stages=[sft]", "sft.max_steps=7")
    assert (config.sft.name, config.sft.max_steps) == ("sft", 7)
    assert config.trainer.name == "grpo" and config.trainer.max_steps != 7


def test_every_config_file_says_what_it_is() -> None:
    for file in CONF_DIR.rglob("*.yaml"):
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("# @package")]
        if Path("prompts") not in file.relative_to(CONF_DIR).parents:
            assert lines[0].startswith("# "), f"{file} has no comment at its top"
