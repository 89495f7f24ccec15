"""From a reply to a record: the rules first, then a judge for what rules cannot decide. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ktr.data.rows import Row
from ktr.evaluation.records import MEDIA_ERROR, TRUNCATED, Record
from ktr.rewards import Verdict, score_reply
from ktr.rewards.problem_types import canonical_type
from ktr.rewards.reply import format_score, read_reply

JUDGED, BY_RULE = "judge", "rule"


class AnswerJudge(Protocol):
    """What judging needs: for each (question, reference answer, given answer), the same or not; None for no verdict."""

    def same_answer(self, cases: Sequence[tuple[str, str, str]]) -> list[bool | None]: ...


@dataclass(frozen=True)
class ReplyScorer:
    """Scores a reply by its row's own type.

    Args:
        policy: "default" or "video_r1".
        regression: "relative_error", "mra" or "mra_vsibench".
        require_tags: False reads a reply without answer tags as a whole, which direct prompts ask for.
        judge_only: the golds of open-ended rows are no texts that a rule could compare: all of them wait for the judge.
    """

    policy: str = "default"
    regression: str | None = None
    require_tags: bool = True
    judge_only: bool = False

    def __call__(self, row: Row, reply: str, cut_off: bool = False) -> Verdict:
        return self.score(reply, problem_type=row.problem_type, gold=row.answer, options=row.options, cut_off=cut_off)

    def score(
        self, reply: str, *, problem_type: str, gold: str, options: Sequence[str], cut_off: bool = False
    ) -> Verdict:
        """The verdict on a reply; one that was `cut_off` answers only within tags, since its text is unfinished."""
        require_tags = self.require_tags or cut_off
        if self.judge_only and canonical_type(problem_type) == "open-ended":
            read = read_reply(reply, require_tags)
            if read.answer is None:
                return Verdict(0.0, format_score(reply), read.status, None)
            return Verdict(None, format_score(reply), "abstained", read.answer)
        return score_reply(
            reply,
            problem_type=problem_type,
            gold=gold,
            options=options,
            policy=self.policy,
            metric=self.regression,
            require_tags=require_tags,
        )


def check_golds(rows: Sequence[Row], scorer: ReplyScorer) -> None:
    """Scores every gold answer against itself before a model runs.

    Raises:
        ValueError: naming the first row whose gold its type cannot read.
    """
    for row in rows:
        try:
            scorer(row, f"<answer>{row.answer}</answer>")
        except ValueError as error:
            raise ValueError(f"row {row.id!r} cannot be scored: {error}") from error


def blank_record(
    row: Row, sample: int, view: str, *, status: str = MEDIA_ERROR, detail: str = "", digest: str = "",
    facets: Mapping[str, str] | None = None,
) -> Record:  # fmt: skip
    """The record of a sample that has no reply; it counts as wrong."""
    return Record(
        id=row.id,
        view=view,
        sample=sample,
        category=row.category,
        problem_type=row.problem_type,
        gold=row.answer,
        reply="",
        parsed=None,
        status=status,
        accuracy=0.0,
        format=0.0,
        num_tokens=0,
        truncated=False,
        detail=detail,
        digest=digest,
        question=row.question,
        options=row.options,
        facets=dict(facets or {}),
    )


def with_verdict(record: Record, verdict: Verdict) -> Record:
    """`record` under a verdict on its reply. A reply that was cut off before it answered is `truncated`."""
    cut_off = record.truncated and verdict.status in ("no_answer", "unparsable")
    return dataclasses.replace(
        record,
        parsed=None if verdict.parsed is None else str(verdict.parsed),
        status=TRUNCATED if cut_off else verdict.status,
        accuracy=verdict.accuracy,
        format=verdict.format,
        detail=verdict.detail,
        scored_by="" if verdict.accuracy is None else BY_RULE,
    )


def judged(records: Sequence[Record], judge: AnswerJudge | None) -> list[Record]:
    """The records, those that wait for a judge scored by it; where it has no opinion they go on waiting."""
    waiting = [place for place, record in enumerate(records) if record.status == "abstained"]
    if judge is None or not waiting:
        return list(records)
    opinions = judge.same_answer([_case(records[place]) for place in waiting])
    done = list(records)
    for place, opinion in zip(waiting, opinions, strict=True):
        if opinion is not None:
            done[place] = dataclasses.replace(
                records[place], accuracy=float(opinion), status="ok", detail="judge", scored_by=JUDGED
            )
    return done


def rescored(records: Sequence[Record], scorer: ReplyScorer, judge: AnswerJudge | None = None) -> list[Record]:
    """The saved replies parsed and scored again; a judge's verdict stays while the parsed answer is the same.

    Raises:
        ValueError: a record of a version that did not keep the options of its question.
    """
    fresh = []
    for record in records:
        if record.status in (MEDIA_ERROR, *NO_REPLY):
            fresh.append(record)
            continue
        if record.problem_type == "multiple choice" and not record.options:
            raise ValueError(f"sample {record.id!r} was recorded without its options, so it cannot be scored again")
        verdict = scorer.score(
            record.reply,
            problem_type=record.problem_type,
            gold=record.gold,
            options=record.options,
            cut_off=record.truncated,
        )
        now = with_verdict(record, verdict)
        if now.status == "abstained" and record.scored_by == JUDGED and now.parsed == record.parsed:
            now = record
        fresh.append(now)
    return judged(fresh, judge)


PROMPT_TOO_LONG, NO_REPLY_GIVEN = "prompt_too_long", "no_reply"
NO_REPLY = (PROMPT_TOO_LONG, NO_REPLY_GIVEN)


def _case(record: Record) -> tuple[str, str, str]:
    return record.question, record.gold, record.parsed or ""
