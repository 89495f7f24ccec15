"""The zoo in SFT, GRPO and evaluation: every unreadable row is skipped by name, every other is used, nothing hangs."""

from __future__ import annotations

import json

import pytest
from zoo import write_zoo

from ktr.config.compose import compose
from ktr.config.overrides import quote
from ktr.config.schemas import TrainConfig
from ktr.config.validate import validate
from ktr.training import pipeline


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_stages_use_what_can_be_used(tmp_path):
    path, verdicts = write_zoo(tmp_path / "zoo")
    config = compose(
        "train",
        [
            "debug=fast", "data=jsonl", f"data.path={quote(str(path))}", f"data.media_root={quote(str(path.parent))}",
            "data.on_error=skip", "data.limit=null", "data.prompt=think", "ktr=none", "eval.limit=null",
            "sft.batch_size=8", "sft.max_steps=5", "trainer.groups_per_step=8", "trainer.max_steps=5",
            "rollout.max_new_tokens=4", "eval.max_new_tokens=4", "eval.batch_size=16", "eval.base=false",
            "eval.views=[full]", f"output_dir={quote(str(tmp_path / 'outputs'))}",
        ],
    )  # fmt: skip
    folder = pipeline.run(validate(config, TrainConfig), tmp_path / "run").parent
    bad = {row_id: reason for row_id, reason in verdicts.items() if reason}
    trained_past = {"bounds"}  # An end past the video's is cut at its end, and said so in the frames.
    for stage in ("sft", "rl"):
        skipped = {line["id"]: line["error"] for line in lines(folder / "skipped.jsonl") if line["stage"] == stage}
        for row_id, reason in bad.items():
            if reason not in trained_past:
                assert f"[{reason}]" in skipped[row_id], row_id
        assert not set(skipped) - set(bad)
    for records in (folder / "records").glob("*.jsonl"):
        statuses = {record["id"]: record["status"] for record in lines(records)}
        unreadable = {row_id for row_id, status in statuses.items() if status == "media_error"}
        assert set(statuses) == set(verdicts)
        assert unreadable == {row_id for row_id, reason in bad.items() if reason != "bounds" or row_id in skipped}
    assert [row["step"] for row in lines(folder / "metrics.jsonl") if "loss" in row] == [1, 2, 3, 4, 5] * 2
