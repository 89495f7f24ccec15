from __future__ import annotations

import pytest

from ktr.rewards import chat_client
from ktr.rewards.chat_client import ChatClient
from ktr.rewards.components import AccuracyReward
from ktr.rewards.judges import Judge, yes_or_no
from ktr.rewards.rewatch import ObservationReasoningReward, Step, caption_text, clock, combine, read_steps


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(chat_client, "_FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def judge(chat_server) -> Judge:
    return Judge(ChatClient(chat_server.url, "judge-model", api_key_env=None, retries=1))


@pytest.mark.parametrize(
    ("text", "opinion"),
    [("yes", True), ("No.", False), ("**Yes**", True), ("YES, they agree", True), ("Incorrect", False),
     ("maybe", None), ("", None),
     ("I think yes", None), ("nothing", None), ("yesterday", None)],
)  # fmt: skip
def test_opinions(text, opinion):
    assert yes_or_no(text) is opinion


def test_the_judge_sees_question_reference_and_answer(chat_server, judge):
    chat_server.script = lambda n, body: "yes" if "magnetic fluid" in body["messages"][-1]["content"] else "no"
    opinions = judge.same_answer([("What?", "ferrofluid", "magnetic fluid"), ("What?", "ferrofluid", "{water}")])
    assert opinions == [True, False]
    for request in chat_server.requests:
        assert request["messages"][0]["role"] == "system"
        assert "What?" in request["messages"][1]["content"] and "ferrofluid" in request["messages"][1]["content"]


def test_nonsense_is_no_judgement(chat_server, judge):
    chat_server.script = lambda n, body: "The sky is blue."
    assert judge.ask(["a"]) == [None]


def test_accuracy_abstains_when_the_judge_fails(chat_server, judge):
    columns = {"problem_type": ["open-ended"] * 2, "answer": ["ferrofluid"] * 2, "question": ["What?"] * 2}
    replies = ["<think>t</think><answer>magnetic fluid</answer>", "<think>t</think><answer>Ferrofluid</answer>"]
    assert AccuracyReward(judge=judge)(["", ""], replies, **columns) == [1.0, 1.0]
    chat_server.script = lambda n, body: (503, {}, "")
    assert AccuracyReward(judge=judge)(["", ""], replies, **columns) == [None, 1.0]


REPLY = (
    "<think><action>look at 00:05</action><observation>a red car</observation> then "
    "<action>look at 00:09</action>\n<observation>a dog</observation></think><answer>{answer}</answer>"
)
EVENTS = [{"start": 5.0, "end": 9.9, "caption": "a red car passes"}, {"start": 3600, "end": 3723.5, "caption": "night"}]


def test_steps_are_action_and_observation_pairs():
    assert read_steps(REPLY) == [Step("look at 00:05", "a red car"), Step("look at 00:09", "a dog")]
    assert read_steps("<action>a</action><observation>  </observation>") == []
    assert read_steps("<observation>a</observation><action>b</action>") == []
    assert read_steps("<ACTION>a</ACTION><Observation>b</Observation>") == [Step("a", "b")]
    assert read_steps("no steps") == []


def test_captions_carry_their_times():
    assert caption_text(EVENTS) == "[00:05 - 00:09] a red car passes\n[01:00:00 - 01:02:03] night"
    assert caption_text("as they are") == "as they are"
    assert clock(59.99) == "00:59" and clock(600) == "10:00"


def test_the_reward_formula():
    assert combine(1.0, 0.5, 1.0, 1.0) == 3.5
    assert combine(0.0, 1.0, 1.0, 1.0) == 1.0


def rewatch_script(observed, reasoned, same="yes"):
    def script(n, body):
        text = body["messages"][-1]["content"]
        if text.startswith("Captions of a video"):
            return observed(text)
        return reasoned if text.startswith("Notes") else same

    return script


def score(judge, reply, problem_type="multiple choice", answer="B", captions=EVENTS, options=("A. dog", "B. car")):
    return ObservationReasoningReward(judge)(
        ["q"], [reply], question=["What passes?"], problem_type=[problem_type], answer=[answer], captions=[captions],
        options=[options],
    )[0]  # fmt: skip


def test_observation_and_reasoning_reward(chat_server, judge):
    chat_server.script = rewatch_script(lambda text: "yes" if "a red car\n" in text else "no", "<answer>B</answer>")
    assert score(judge, REPLY.format(answer="B")) == 1.0 * (1 + 0.5 + 1.0) + 1.0
    chat_server.script = rewatch_script(lambda text: "no", "I do not know")
    judged = Judge(ChatClient(chat_server.url, "other", api_key_env=None))
    assert score(judged, REPLY.format(answer="B")) == 2.0
    reasoning = [r for r in chat_server.requests if r["messages"][-1]["content"].startswith("Notes")]
    assert (
        "a red car" in reasoning[0]["messages"][-1]["content"] and "B. car" in reasoning[0]["messages"][-1]["content"]
    )
    assert "a red car passes" not in reasoning[0]["messages"][-1]["content"]  # from the steps alone


def test_no_steps_and_wrong_answers_need_no_calls(chat_server, judge):
    assert score(judge, "<think>t</think><answer>B</answer>") == 2.0
    assert score(judge, REPLY.format(answer="A")) == 1.0
    assert score(judge, "<answer>A</answer>") == 0.0
    assert chat_server.requests == []


def test_any_failed_call_makes_the_completion_abstain(chat_server, judge):
    right = REPLY.format(answer="B")
    chat_server.script = rewatch_script(
        lambda text: (503, {}, "") if "a dog\n" in text else "yes", "<answer>B</answer>"
    )
    assert score(judge, right) is None
    chat_server.script = rewatch_script(lambda text: "yes", (503, {}, ""))
    assert score(judge, right) is None
    assert score(judge, right, captions=None) is None
    assert score(judge, REPLY.format(answer="A"), captions=None) == 1.0


def test_open_answers_are_judged_twice(chat_server, judge):
    chat_server.script = rewatch_script(lambda text: "yes", "<answer>an automobile</answer>")
    reply = REPLY.format(answer="a vehicle")
    assert score(judge, reply, "open-ended", "car", options=()) == 1.0 * (1 + 1 + 1) + 1.0
    chat_server.script = rewatch_script(lambda text: "yes", "<answer>an automobile</answer>", same=(503, {}, ""))
    assert (
        score(Judge(ChatClient(chat_server.url, "b", api_key_env=None, retries=0)), reply, "open-ended", "car") is None
    )
