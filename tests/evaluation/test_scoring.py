"""From replies to records: judges, cut-off replies, and golds that cannot be read."""

from __future__ import annotations

import dataclasses

import pytest

from ktr.evaluation.scoring import ReplyScorer, blank_record, check_golds, judged, rescored, with_verdict


class Judge:
    def __init__(self, *opinions):
        self.opinions = list(opinions)
        self.cases = []

    def same_answer(self, cases):
        self.cases += cases
        return self.opinions[: len(cases)]


@pytest.fixture
def open_row(row):
    return dataclasses.replace(row("o"), problem_type="open-ended", options=(), answer="ferrofluid", question="What?")


def test_rules_come_first_and_the_judge_is_named(row, open_row):
    scorer = ReplyScorer(require_tags=False)
    replies = [(row("a"), "A"), (open_row, "ferrofluid"), (dataclasses.replace(open_row, id="p"), "magnetic liquid")]
    records = [
        with_verdict(dataclasses.replace(blank_record(asked, 0, "full"), reply=reply), scorer(asked, reply))
        for asked, reply in replies
    ]
    judge = Judge(True)
    done = judged(records, judge)
    assert judge.cases == [("What?", "ferrofluid", "magnetic liquid")]
    assert [(record.accuracy, record.scored_by) for record in done] == [(1.0, "rule"), (1.0, "rule"), (1.0, "judge")]


def test_a_judge_without_an_opinion_leaves_the_record_waiting(open_row):
    record = with_verdict(blank_record(open_row, 0, "full"), ReplyScorer(require_tags=False)(open_row, "some liquid"))
    assert judged([record], Judge(None)) == [record] == judged([record], None)
    assert (record.accuracy, record.status, record.scored_by) == (None, "abstained", "")


def test_a_judged_answer_stays_judged_when_scored_again(open_row):
    record = dataclasses.replace(blank_record(open_row, 0, "full"), reply="some liquid")
    scorer = ReplyScorer(require_tags=False)
    done = judged([with_verdict(record, scorer(open_row, record.reply))], Judge(True))
    assert rescored(done, scorer) == done


def test_a_cut_off_reply_answers_only_within_tags(row):
    scorer = ReplyScorer(require_tags=False)
    assert scorer(row("a"), "Look at option A first", cut_off=True).status == "no_answer"
    assert scorer(row("a"), "Look at option A first").accuracy == 1.0
    assert scorer(row("a"), "<answer>A</answer> and", cut_off=True).accuracy == 1.0


def test_a_reply_that_was_cut_off_stays_so_when_scored_again(row):
    scorer = ReplyScorer(require_tags=False)
    reply = "Look at option A first"
    record = dataclasses.replace(blank_record(row("a"), 0, "full"), reply=reply, truncated=True)
    done = with_verdict(record, scorer(row("a"), reply, True))
    assert (done.status, rescored([done], scorer)) == ("truncated", [done])


def test_a_gold_that_cannot_be_read_names_its_row(row):
    wrong = dataclasses.replace(row("n"), problem_type="regression", options=(), answer="far")
    with pytest.raises(ValueError, match="row 'n' cannot be scored"):
        check_golds([row("a"), wrong], ReplyScorer())


def test_samples_without_a_reply_stay_as_they_are(row):
    record = blank_record(row("a"), 0, "full", detail="no such file")
    assert rescored([record], ReplyScorer()) == [record]
