"""What the group `eval` refuses, and what it takes from whom."""

from __future__ import annotations

import pytest

from ktr.config.compose import SCHEMAS, compose
from ktr.config.convert import to_node
from ktr.config.fields import ConfigError
from ktr.config.schema_eval import EvalConfig
from ktr.config.validate import check_files, validate


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"views": []}, "views"),
        ({"views": ["full", "blind"]}, "views"),
        ({"views": ["full", "full"]}, "views"),
        ({"engine": "replay"}, "replies"),
        ({"replies": "r.jsonl"}, "replies"),
        ({"engine": "sglang"}, "engine"),
        ({"num_samples": 4}, "num_samples"),
        ({"metric": "bleu"}, "metric"),
        ({"judge": {"base_url": "http://x/v1"}}, "judge.model"),
        ({"shared": {"limit": 1}}, "shared"),
        ({"frames": {"nframes": 3}}, "frames.nframes"),
        ({"frames": {"n": 3}}, "frames.n"),
        ({"frames": 3}, "frames"),
        ({"benchmarks": {"x": {"metrik": "accuracy"}}}, "benchmarks.x.metrik"),
        ({"benchmarks": {"x": 3}}, "benchmarks.x"),
        ({"benchmarks": {"x": {"benchmarks": {"y": {}}}}}, "benchmarks.x.benchmarks"),
    ],
)
def test_what_cannot_work_names_its_key(values, key):
    with pytest.raises(ConfigError) as caught:
        to_node(EvalConfig, values)
    assert caught.value.key == key


def evaluated(*overrides):
    return validate(compose("evaluate", list(overrides)), SCHEMAS["evaluate"])


def test_vllm_gets_what_is_set():
    given = evaluated("model.path=/c", "eval.vllm.kv_cache_gb=0.5", "eval.vllm.compile=false").eval
    assert given.vllm.options == {"kv_cache_memory_bytes": 2**29, "tensor_parallel_size": 1, "enforce_eager": True}
    suite = evaluated("model.path=/c", "eval=suite/grounding", "eval.vllm.memory_share=0.5").eval
    assert {member.vllm.memory_share for member in suite.members.values()} == {0.5}


def test_only_what_asks_a_model_needs_one(tmp_path):
    for overrides in (["compare=[a,b]"], ["rescore=a"], ["eval.engine=replay", "eval.replies=r", "eval.rows=r"]):
        assert evaluated(*overrides).model.path is None
    with pytest.raises(ConfigError, match="model.path"):
        evaluated("eval=mmvu")


def test_comparisons_are_of_two():
    with pytest.raises(ConfigError, match="compare: takes two"):
        evaluated("compare=[a]")
    with pytest.raises(ConfigError, match="rescore"):
        evaluated("compare=[a,b]", "rescore=c")


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["eval=mmvu", "model.path=m/m"], "eval.rows"),
        (["compare=[/no/a,/no/b]"], r"compare\[0\]"),
        (["rescore=/no/a"], "rescore"),
        (["eval=suite/grounding", "model.path=m/m"], "eval.benchmarks.charades_sta.rows"),
    ],
)
def test_files_that_are_not_there_are_named(overrides, key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=key):
        check_files(evaluated(*overrides))


def test_training_takes_one_benchmark_and_its_own_engine():
    with pytest.raises(ConfigError, match="is a suite"):
        validate(compose("train", ["eval=suite/grounding"]))
    with pytest.raises(ConfigError, match="eval.engine"):
        validate(compose("train", ["eval.engine=vllm"]))
    assert validate(compose("train", ["eval.every_steps=10"])).eval.every_steps == 10


def test_tags_are_asked_where_training_asks_for_them():
    assert EvalConfig().wants_tags
    assert not EvalConfig(prompt="direct").wants_tags
    assert not EvalConfig(rows="rows.json").wants_tags
    assert not EvalConfig(engine="replay", replies="r").wants_tags
    assert EvalConfig(rows="rows.json", require_tags=True).wants_tags


def test_media_lie_beside_the_rows_unless_said_otherwise():
    settings = EvalConfig(root="/b", rows="x/rows.json")
    assert str(settings.media_path) == "/b/x"
    assert str(EvalConfig(root="/b", rows="rows.json", media_root="videos").media_path) == "/b/videos"
    assert str(EvalConfig(root="/b", rows="/c/rows.json").rows_path) == "/c/rows.json"
