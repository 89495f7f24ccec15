"""Scoring given replies, without a model: the `replay` engine, and the file it reads. Imports no torch."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from ktr.data.rows import Row, duplicate_ids
from ktr.evaluation.records import Record, RecordKey, RecordWriter, read_records
from ktr.evaluation.scoring import NO_REPLY_GIVEN, AnswerJudge, ReplyScorer, blank_record, judged, with_verdict

logger = logging.getLogger(__name__)


def read_replies(path: str | Path) -> dict[str, list[str]]:
    """Replies by row id, from lines `{"id": ..., "reply": ...}`; several lines of one id are its samples, in order.

    Other keys of a line are ignored. Raises ValueError for a file without replies, and with file and line for a line
    that is no such object.
    """
    path = Path(path)
    replies: dict[str, list[str]] = defaultdict(list)
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{number}: not a JSON object: {error}") from error
        row_id = values.get("id") if isinstance(values, dict) else None
        if not isinstance(row_id, str | int) or isinstance(row_id, bool) or not isinstance(values.get("reply"), str):
            raise ValueError(f'{path}:{number}: a line holds "id" (text or whole number) and "reply" (text)')
        replies[str(row_id)].append(values["reply"])
    if not replies:
        raise ValueError(f"{path} holds no replies")
    return dict(replies)


def score_replies(
    rows: Sequence[Row],
    replies: Mapping[str, Sequence[str]],
    *,
    scorer: ReplyScorer,
    judge: AnswerJudge | None = None,
    facets: Mapping[str, Mapping[str, str]] | None = None,
    record_path: str | Path | None = None,
    source: str | Path = "the replies",
) -> list[Record]:
    """Records of given replies, in row order; a row without one has status `no_reply` and counts as wrong.

    `source` is what an error calls the replies, such as their file.

    Raises:
        ValueError: repeated row ids, no row has a reply, rows with replies have different numbers of them, or a row
            whose gold cannot be read.
    """
    if repeated := duplicate_ids(rows):
        raise ValueError(f"row ids must be unique in an evaluation; these repeat: {list(repeated)[:5]}")
    known = [row for row in rows if row.id in replies]
    if rows and not known:
        raise ValueError(
            f"none of the {len(rows)} rows (ids such as {rows[0].id!r}) has one of the {len(replies)} replies "
            f"(ids such as {next(iter(replies), '')!r}); give the rows that were asked"
        )
    numbers = Counter(len(replies[row.id]) for row in known)
    usual = max(numbers, key=lambda number: (numbers[number], -number), default=1)
    if odd := [row.id for row in known if len(replies[row.id]) != usual]:
        raise ValueError(
            f"{source}: id {odd[0]!r} has {len(replies[odd[0]])} lines and most ids {usual}; the lines of an id "
            "are its samples, so give every id as many"
        )
    _say_what_is_missing(rows, known, replies)
    count = usual
    done = _recorded(record_path)
    records: list[Record] = []
    for row in rows:
        for sample in range(count):
            blank = blank_record(
                row,
                sample,
                "full",
                status=NO_REPLY_GIVEN,
                detail="no reply was given",
                facets=(facets or {}).get(row.id),
            )
            if row.id in replies:
                reply = replies[row.id][sample]
                blank = with_verdict(dataclasses.replace(blank, reply=reply), scorer(row, reply))
            earlier = done.get(blank.key)
            keep = earlier is not None and (earlier.reply, earlier.parsed, earlier.gold) == (
                blank.reply, blank.parsed, blank.gold,
            )  # fmt: skip
            if earlier is not None and not keep:
                raise ValueError(f"{record_path}: sample {row.id!r} was recorded from another reply; start a new run")
            records.append(earlier if earlier is not None else blank)
    fresh = judged([record for record in records if record.key not in done], judge)
    if record_path is not None:
        with RecordWriter(record_path) as file:
            file.write(fresh)
    newest = {record.key: record for record in fresh}
    return [newest.get(record.key, record) for record in records]


def _recorded(path: str | Path | None) -> dict[RecordKey, Record]:
    if path is None or not Path(path).exists():
        return {}
    return {record.key: record for record in read_records(path).records}


def _say_what_is_missing(rows: Sequence[Row], known: Sequence[Row], replies: Mapping[str, Sequence[str]]) -> None:
    if len(known) < len(rows):
        logger.warning("%d of %d rows have no reply and count as wrong", len(rows) - len(known), len(rows))
    if len(replies) > len(known):
        logger.warning("%d replies belong to none of the rows and are left out", len(replies) - len(known))
