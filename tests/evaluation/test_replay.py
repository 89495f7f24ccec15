"""Given replies scored without a model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ktr.config.schema_eval import EvalConfig
from ktr.evaluation.benchmark_run import Asked, replayed
from ktr.evaluation.metrics import accuracy, counts
from ktr.evaluation.replay import read_replies, score_replies
from ktr.evaluation.scoring import ReplyScorer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def rows(row):
    return [row("a", answer="A"), row("b", answer="B"), row("c", answer="A")]


def test_replies_are_read_by_id(tmp_path):
    file = tmp_path / "r.jsonl"
    lines = ['{"id": 7, "reply": "A", "more": 1}', "", '{"id": "x", "reply": "B\\u2028"}', '{"id": "7", "reply": "C"}']
    file.write_text("\n".join(lines))
    assert read_replies(file) == {"7": ["A", "C"], "x": ["B\u2028"]}


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"id": 1}', '{"reply": "A"}', '{"id": true, "reply": "A"}', '{"id": 1, "reply": 2}']
)
def test_a_line_that_is_no_reply_is_named(tmp_path, line):
    file = tmp_path / "r.jsonl"
    file.write_text('{"id": 1, "reply": "A"}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"r\.jsonl:2"):
        read_replies(file)


def test_a_missing_reply_counts_as_wrong_in_its_own_column(rows, caplog):
    replies = {"a": ["A"], "b": ["The answer is B."], "other": ["A"]}
    records = score_replies(rows, replies, scorer=ReplyScorer(require_tags=False))
    assert [record.accuracy for record in records] == [1.0, 1.0, 0.0]
    assert (counts(records).no_reply, counts(records).answered) == (1, 2)
    assert accuracy(records, resamples=100).mean == pytest.approx(2 / 3)
    assert "1 of 3 rows have no reply" in caplog.text and "1 replies belong to none" in caplog.text


def test_several_lines_of_an_id_are_its_samples(rows):
    records = score_replies(rows[:2], {"a": ["A", "B"], "b": ["B", "B"]}, scorer=ReplyScorer(require_tags=False))
    assert [(record.id, record.sample, record.accuracy) for record in records] == [
        ("a", 0, 1.0), ("a", 1, 0.0), ("b", 0, 1.0), ("b", 1, 1.0),
    ]  # fmt: skip


def test_what_cannot_be_scored_together_is_refused(rows):
    scorer = ReplyScorer()
    with pytest.raises(ValueError, match="r.jsonl: id 'b' has 2 lines and most ids 1"):
        score_replies(rows, {"a": ["A"], "b": ["A", "B"]}, scorer=scorer, source="r.jsonl")
    with pytest.raises(ValueError, match="id 'c' has 1 lines and most ids 2"):
        score_replies(rows, {"a": ["A", "B"], "b": ["A", "B"], "c": ["A"]}, scorer=scorer)
    with pytest.raises(ValueError, match="none of the 3 rows"):
        score_replies(rows, {"z": ["A"]}, scorer=scorer)
    with pytest.raises(ValueError, match="unique"):
        score_replies([rows[0], rows[0]], {"a": ["A"]}, scorer=scorer)


def test_tags_can_be_required(rows):
    strict = score_replies(rows[:1], {"a": ["A"]}, scorer=ReplyScorer(require_tags=True))
    assert (strict[0].accuracy, strict[0].status) == (0.0, "no_answer")


def test_a_record_file_is_gone_on_with_and_not_mixed(rows, tmp_path):
    path, scorer = tmp_path / "records.jsonl", ReplyScorer(require_tags=False)
    replies = {"a": ["A"], "b": ["A"], "c": ["A"]}
    first = score_replies(rows, replies, scorer=scorer, record_path=path)
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    assert score_replies(rows, replies, scorer=scorer, record_path=path) == first
    assert path.read_bytes() == content
    with pytest.raises(ValueError, match="another reply"):
        score_replies(rows, replies | {"b": ["B"]}, scorer=scorer, record_path=path)


def test_the_entry_scores_replies_without_model_or_torch(tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        "".join(
            json.dumps({"id": i, "question": "?", "options": ["red", "blue"], "answer": "AB"[i % 2]}) + "\n"
            for i in range(4)
        )
    )
    (tmp_path / "replies.jsonl").write_text(
        "".join(json.dumps({"id": i, "reply": "Let me see.\n\nThe answer is (A)."}) + "\n" for i in range(4))
    )
    script = (
        "import sys; sys.argv[0] = 'evaluate.py'; import runpy; runpy.run_path('evaluate.py', run_name='__main__'); "
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, f"eval.rows={tmp_path}/rows.jsonl", "eval.engine=replay", "eval.limit=3",
         f"eval.replies={tmp_path}/replies.jsonl", f"output_dir={tmp_path}/out"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(Path(done.stdout.strip().splitlines()[-1]).read_text())
    assert summary["samples"]["rows"] == 3
    assert summary["accuracy"]["mean"] == pytest.approx(2 / 3)
    assert "accuracy 66.7 %" in done.stderr


def test_a_file_that_repeats_an_id_is_named(rows, tmp_path):
    path = tmp_path / "replies.jsonl"
    path.write_text("".join(json.dumps({"id": row_id, "reply": "A"}) + "\n" for row_id in "abca"))
    asked = Asked(rows, ReplyScorer())
    with pytest.raises(ValueError, match=f"{path}: id 'a' has 2 lines"):
        replayed(asked, EvalConfig(engine="replay", replies=str(path)), records=tmp_path, name="mine")
