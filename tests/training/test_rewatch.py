"""ReWatch-R1's reward in training: built from its config, asked of a chat endpoint, with the captions of each row."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chat_server import ChatServer
from trainer_cases import PLAIN, make_rows, make_trainer, read_lines

from ktr import components
from ktr.config.compose import compose
from ktr.config.schemas import TrainConfig
from ktr.config.validate import validate
from ktr.rollout.engine import Completion

STEPS = "<action>look at 00:00</action><observation>a red disc</observation>"
REPLIES = (
    f"<think>{STEPS}</think><answer>red</answer>",  # right, observed, and its notes suffice
    "<think>none</think><answer>red</answer>",  # right, with nothing observed
    f"<think>{STEPS}</think><answer>blue</answer>",  # wrong: no call is made
)


class Written:
    def __init__(self, model) -> None:
        pass

    def generate(self, prompts, num_completions, settings, seed, progress=False):
        return [[Completion((20 + i, 30), REPLIES[i], None, False) for i in range(num_completions)] for _ in prompts]


@pytest.fixture
def server():
    server = ChatServer()
    yield server
    server.close()


def rewards_at(url: str):
    client = "reward.components.rewatch.judge.client"
    overrides = ["experiment=rewatch_r1", "data=toy", "model=toy", "debug=fast", f"{client}.base_url={url}"]
    return components.reward_runner(validate(compose("train", [*overrides, f"{client}.retries=0"]), TrainConfig).reward)


def run(checkpoints, root, url):
    rows = [replace(row, captions="00:00-00:01: a red disc") for row in make_rows(root, ["video", "video"])]
    trainer = make_trainer(
        checkpoints["qwen2_5_vl"], root, rows, rewards=rewards_at(url), rollout=Written, key_tokens=PLAIN,
        trainer={"max_steps": 1},
    )  # fmt: skip
    trainer.train()
    return read_lines(trainer.folder.metrics)[0], read_lines(trainer.folder.completions)


def test_observations_are_judged_by_the_captions_and_reasoning_by_its_answer(checkpoints, tmp_path, server):
    def script(number, body):
        text = body["messages"][-1]["content"]
        if "Captions of a video" in text:
            return "yes" if "00:00-00:01: a red disc" in text else "no"
        return "<answer>red</answer>"

    server.script = script
    metrics, kept = run(checkpoints, tmp_path, server.url)
    # accuracy * (1 + observation + reasoning) + format
    assert [row["reward"] for row in kept] == [1 * (1 + 1 + 1) + 1, 1 * 1 + 1, 0 + 1] * 2
    assert metrics["rewards/abstained"] == 0 and len(server.requests) == 2, "equal questions are asked once"


def test_an_endpoint_that_is_away_makes_the_completion_abstain(checkpoints, tmp_path, server):
    server.script = lambda number, body: "drop"
    metrics, kept = run(checkpoints, tmp_path, server.url)
    assert [row["reward"] for row in kept] == [None, 2.0, 1.0] * 2
    assert metrics["rewards/abstained"] == pytest.approx(1 / 3)
    assert all(row["advantage"] == 0 for row in kept if row["reward"] is None)
