"""Errors a person can mend are one line that says how; faults are not dressed up as theirs."""

from __future__ import annotations

import pytest
from hydra.errors import HydraException

from ktr.config.compose import compose
from ktr.config.fields import ConfigError
from ktr.config.messages import one_line
from ktr.config.schemas import TrainConfig
from ktr.rewards.runner import RewardFailure


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("ktr.topk=0.2", "ktr.topk: unknown key; did you mean ktr.top_k?"),
        ("group_size=4", "group_size: unknown key; did you mean trainer.group_size?"),
        ("ktr.top_k=abc", "ktr.top_k: Value 'abc' of type 'str' could not be converted to Float"),
        ("logger=tensorboard", "logger=tensorboard: no such choice; logger offers none, wandb"),
        ("name=a=b", "name=a=b: mismatched input '=' expecting <EOF>"),
        ("+trainer=grpo", "trainer"),
        ("stages=rl,eval", "stages=rl,eval: a list is written stages=[rl,eval]; -m would run one job for each value"),
        ("+plugins=a,b", "+plugins=a,b: a list is written +plugins=[a,b]; -m"),
        ("data.keep.source=a,b", "data.keep.source=a,b: a list is written data.keep.source=[a,b]; -m"),
        ("seed=1,2", "seed=1,2: takes one value; add -m to run one job for each"),
        ("+reward.components.x.weight=1,2", "+reward.components.x.weight=1,2: takes one value; add -m"),
        ("fast", "fast: not a setting; settings are KEY=VALUE"),
    ],
)
def test_what_hydra_refuses(override: str, line: str) -> None:
    with pytest.raises(HydraException) as caught:
        compose("train", [override])
    message = one_line(caught.value, TrainConfig)
    assert message is not None and message.startswith(line) and "\n" not in message


def test_own_errors_and_files() -> None:
    assert one_line(ConfigError("ktr.top_k", "must be\n  above 0"), TrainConfig) == "ktr.top_k: must be above 0"
    assert one_line(FileNotFoundError(2, "No such file or directory", "/a b"), TrainConfig) == (
        "/a b: No such file or directory"
    )


def test_rewards_that_keep_failing_are_one_line_that_says_where_their_traces_are() -> None:
    line = one_line(RewardFailure("4 of 4 rewards raised"), TrainConfig)
    assert line is not None and "\n" not in line
    assert all(word in line for word in ("4 of 4", "reward_errors.jsonl", "reward.max_error_share"))


def test_a_value_error_is_the_persons_only_where_the_project_raises_it() -> None:
    from ktr.config.fields import number
    from ktr.config.overrides import quote_overrides

    for call in (lambda: int("x"), lambda: number(1)["x"], lambda: quote_overrides([None], ())):  # type: ignore
        try:
            call()
        except (ValueError, TypeError) as error:
            assert one_line(error, TrainConfig) is None
    try:
        TrainConfig(name="a/b")
    except ValueError as error:
        assert one_line(error, TrainConfig) is not None
