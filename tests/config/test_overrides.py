"""Paths and questions survive Hydra's grammar, whatever they hold."""

from __future__ import annotations

from operator import attrgetter

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from ktr.config.cli import prepare_arguments
from ktr.config.compose import compose
from ktr.config.convert import free_text_keys
from ktr.config.fields import ConfigError
from ktr.config.overrides import quote, quote_overrides
from ktr.config.schemas import PredictConfig, TrainConfig
from ktr.config.validate import validate

PATHS = [
    "/d/epoch=3.pt", "/d/c#1.mp4", "/d/视频.mp4", "/d/é.mp4", "a(1).mp4", "a[1].mp4", "a&b", "a~b", "it's", "<think>",
    "x;y", "a@b.mp4", "50%.mp4", "a b.mp4", " lead and trail ", "a,b.mp4", "[a].mp4", "{a}.mp4", "a:b", "$HOME", "a\\b",
    "ends with \\", "\\'", 'say "hi"', "'", '"', "''a", "${seed}", "\\${seed}", "$${x", "true", "1e3", "12", "a\tb\nc",
    "!important", "*.mp4", "?", "`id`", "null.mp4", "-m", "--x", "+a", "~a", "choice(a,b)", "🎱.mp4", "e\u0301.mp4",
]  # fmt: skip


def test_any_path_or_question_arrives_as_typed() -> None:
    """Through composition and validation; many at a time, in the free-text keys of the entry."""
    keys = sorted(free_text_keys(PredictConfig) - {"image"})
    for start in range(0, len(PATHS), len(keys)):
        typed = dict(zip(keys, PATHS[start:], strict=False))
        given = [f"{key}={text}" for key, text in ({"question": "?", "model.path": "x"} | typed).items()]
        config = validate(compose("predict", prepare_arguments(given, PredictConfig)), PredictConfig)
        for key, text in typed.items():
            assert attrgetter(key)(config) == text


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
@example("\\\\'${x}\\")
def test_quote_reads_back_as_the_text(text: str) -> None:
    (parsed,) = OverridesParser.create().parse_overrides([f"key={quote(text)}"])
    if text.strip() == "???":
        return  # OmegaConf's mark for a missing value, in any quotes.
    assert OmegaConf.to_container(OmegaConf.create({"key": parsed.value()}), resolve=True) == {"key": text}


@pytest.mark.parametrize("argument", ["video='a=b.mp4'", 'video="a=b.mp4"', "video=null", "video='it\\'s'", "video=''"])
def test_what_is_quoted_already_and_null_stay_as_they_are(argument: str) -> None:
    assert quote_overrides([argument], {"video"}) == [argument]


def test_text_that_only_begins_and_ends_with_a_quote_is_text() -> None:
    assert quote_overrides(["question='a' or 'b'"], {"question"}) == [r"question='\'a\' or \'b\''"]


@pytest.mark.parametrize(
    "argument",
    ["seed=3", "ktr=none", "stages=[sft,rl]", "~logger", "+x=[1,2]", "--cfg", "-m", "trainer@sft=sft", "job"],
)
def test_other_arguments_are_left_alone(argument: str) -> None:
    assert quote_overrides([argument], free_text_keys(TrainConfig)) == [argument]


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_added_keys_and_keys_of_plugins_are_quoted_too(prefix: str) -> None:
    assert quote_overrides([f"{prefix}my.node.path=a=b"], ()) == [f"{prefix}my.node.path='a=b'"]


def test_keys_come_from_the_schemas() -> None:
    keys = free_text_keys(TrainConfig)
    assert {
        "model.path",
        "data.path",
        "data.media_root",
        "data.eval_path",
        "data.prompt",
        "resume",
        "output_dir",
    } <= keys
    assert {"question", "video", "image", "output"} <= free_text_keys(PredictConfig)
    assert not {"name", "seed", "stages", "ktr.top_k"} & keys


def test_a_sweep_over_paths_keeps_its_commas() -> None:
    arguments = ["-m", "data.path=a=1.json,'b,2.json',c.json", "model.path=choice(a,b)"]
    assert quote_overrides(arguments, ()) == [
        "-m", "data.path='a=1.json','b,2.json','c.json'", "model.path=choice(a,b)",
    ]  # fmt: skip


def test_trainer_sft_is_short_for_the_warm_up_alone() -> None:
    config = validate(compose("train", prepare_arguments(["trainer=sft", "sft.max_steps=5"], TrainConfig)))
    assert config.stages == ["sft"] and config.sft.max_steps == 5 and config.trainer.name == "grpo"


def test_trainer_sft_refuses_settings_it_would_ignore() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.max_steps: .* set sft\.max_steps"):
        prepare_arguments(["trainer=sft", "trainer.max_steps=5"], TrainConfig)
