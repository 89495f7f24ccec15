from __future__ import annotations

import asyncio
import json
import logging
import time
from email.utils import formatdate

import pytest

from ktr.rewards import chat_client
from ktr.rewards.chat_client import ChatClient

KEY = "sk-never-to-be-seen"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(chat_client, "_FIRST_PAUSE_SECONDS", 0.01)


def client(server, **settings) -> ChatClient:
    return ChatClient(server.url, "judge-model", **{"api_key_env": None, **settings})


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_questions_are_answered_in_order(chat_server):
    chat_server.script = lambda n, body: f"about {body['messages'][0]['content']}"
    replies = client(chat_server, max_tokens=7).ask_many([ask("a"), ask("b"), ask("a")])
    assert replies == ["about a", "about b", "about a"]
    assert len(chat_server.requests) == 2  # equal questions are asked once
    assert chat_server.requests[0]["model"] == "judge-model"
    assert (chat_server.requests[0]["temperature"], chat_server.requests[0]["max_tokens"]) == (0.0, 7)
    assert client(chat_server).ask_many([]) == []


@pytest.mark.parametrize(
    "failure",
    [(429, {}, "slow down"), (503, {}, ""), (500, {}, "oops"), "drop", (200, {}, "no json"), (200, {}, "{}"),
     (200, {}, "[]"),
     (200, {}, '{"choices": []}'), (200, {}, '{"choices": [{"message": {"content": null}}]}'), "   "],
)  # fmt: skip
def test_passing_failures_are_retried(chat_server, failure):
    chat_server.script = lambda n, body: failure if n < 2 else "yes"
    asked = client(chat_server)
    assert asked.ask_many([ask("a")]) == ["yes"]
    assert len(chat_server.requests) == 3
    assert asked.counts["retried"] == 2


@pytest.mark.parametrize("failure", [(503, {}, ""), "drop", (200, {}, "<html>")])
def test_lasting_failures_give_none(chat_server, failure):
    chat_server.script = lambda n, body: failure if body["messages"][0]["content"] == "bad" else "yes"
    asked = client(chat_server, retries=2)
    assert asked.ask_many([ask("bad"), ask("good")]) == [None, "yes"]
    assert (asked.counts["failed"], asked.counts["answered"]) == (1, 1)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_refused_requests_are_not_repeated(chat_server, status):
    chat_server.script = lambda n, body: (status, {}, "no")
    assert client(chat_server).ask_many([ask("a")]) == [None]
    assert len(chat_server.requests) == 1


def test_an_absent_server_gives_none():
    asked = ChatClient("http://127.0.0.1:9/v1", "m", api_key_env=None, retries=1)
    assert asked.ask_many([ask("a")]) == [None]


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_kept(chat_server, form):
    header = "1" if form == "seconds" else formatdate(time.time() + 2, usegmt=True)
    chat_server.script = lambda n, body: (429, {"retry-after": header}, "") if n == 0 else "yes"
    start = time.monotonic()
    assert client(chat_server).ask_many([ask("a")]) == ["yes"]
    assert 0.7 <= time.monotonic() - start < 5.0


def test_a_retry_after_beyond_the_deadline_gives_up(chat_server):
    chat_server.script = lambda n, body: (429, {"retry-after": "120"}, "")
    start = time.monotonic()
    assert client(chat_server, deadline_seconds=0.3).ask_many([ask("a")]) == [None]
    assert time.monotonic() - start < 5.0


def test_a_slow_server_meets_the_request_limit_and_the_deadline(chat_server):
    chat_server.script = lambda n, body: ("sleep", 2.0) if n == 0 else "yes"
    assert client(chat_server, request_seconds=0.3).ask_many([ask("a")]) == ["yes"]
    chat_server.script = lambda n, body: ("sleep", 2.0)
    start = time.monotonic()
    assert client(chat_server, deadline_seconds=0.3).ask_many([ask("b"), ask("c")]) == [None, None]
    assert time.monotonic() - start < 1.8


def test_questions_run_together_under_the_limit(chat_server):
    chat_server.script = lambda n, body: ("sleep", 0.2)
    start = time.monotonic()
    assert client(chat_server, concurrency=4).ask_many([ask(str(i)) for i in range(8)]) == ["yes"] * 8
    assert time.monotonic() - start < 1.5
    assert 2 <= chat_server.most_in_flight <= 4


def test_replies_are_cached_by_content(chat_server, tmp_path):
    chat_server.script = lambda n, body: f"reply {n}"
    first = client(chat_server, cache_dir=tmp_path)
    assert first.ask_many([ask("a")]) == ["reply 0"]
    again = client(chat_server, cache_dir=tmp_path)
    assert again.ask_many([ask("a"), ask("b")]) == ["reply 0", "reply 1"]
    assert again.counts["cached"] == 1
    other = ChatClient(chat_server.url, "another-model", api_key_env=None, cache_dir=tmp_path)
    assert other.ask_many([ask("a")]) == ["reply 2"]
    assert not list(tmp_path.rglob("*.tmp"))


def test_failures_and_unaccepted_replies_are_not_cached(chat_server, tmp_path):
    chat_server.script = lambda n, body: "perhaps" if n < 2 else "yes"
    asked = client(chat_server, cache_dir=tmp_path, retries=1)
    accept = {"yes", "no"}.__contains__
    assert asked.ask_many([ask("a")], accept=accept) == [None]
    assert asked.ask_many([ask("a")], accept=accept) == ["yes"]
    assert len(list(tmp_path.rglob("*.json"))) == 1


def test_a_damaged_cache_entry_is_asked_again(chat_server, tmp_path, caplog):
    asked = client(chat_server, cache_dir=tmp_path)
    assert asked.ask_many([ask("a")]) == ["yes"]
    (entry,) = tmp_path.rglob("*.json")
    entry.write_text("{", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert asked.ask_many([ask("a")]) == ["yes"]
    assert "unreadable cached" in caplog.text and len(chat_server.requests) == 2
    assert json.loads(entry.read_text(encoding="utf-8")) == {"reply": "yes"}


def test_the_key_travels_only_in_the_header(chat_server, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    chat_server.script = lambda n, body: "yes" if n == 0 else (401, {}, "bad key")
    asked = client(chat_server, api_key_env="JUDGE_KEY", cache_dir=tmp_path)
    with caplog.at_level(logging.DEBUG):
        assert asked.ask_many([ask("a")]) == ["yes"]
        assert asked.ask_many([ask("b")]) == [None]
    assert chat_server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in caplog.text and KEY not in repr(asked)
    assert KEY not in "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.json"))
    assert KEY not in json.dumps(chat_server.requests) + "".join(chat_server.paths)


def test_azure_addresses_and_key_header(chat_server, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    asked = ChatClient(chat_server.root, "m", api_key_env="JUDGE_KEY", azure_deployment="gpt", azure_api_version="v1")
    assert asked.ask_many([ask("a")]) == ["yes"]
    assert chat_server.paths == ["/openai/deployments/gpt/chat/completions?api-version=v1"]
    assert chat_server.headers[0]["api-key"] == KEY and "authorization" not in chat_server.headers[0]


def test_works_inside_a_running_event_loop(chat_server):
    async def inside():
        return client(chat_server).ask_many([ask("a")])

    assert asyncio.run(inside()) == ["yes"]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"base_url": "localhost:8000"}, "http"), ({"base_url": ""}, "http"),
        ({"base_url": "http://user:pw@host/v1"}, "no credentials"),
        ({"model": ""}, "model is not set"), ({"concurrency": 0}, "concurrency"),
        ({"deadline_seconds": 0}, "deadline_seconds"),
        ({"api_key_env": "KTR_TEST_UNSET_KEY"}, "export KTR_TEST_UNSET_KEY"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_at_start(settings, match):
    arguments = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key_env": None, **settings}
    with pytest.raises(ValueError, match=match):
        ChatClient(arguments.pop("base_url"), arguments.pop("model"), **arguments)
