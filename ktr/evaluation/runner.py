"""The evaluation loop: encode under a view, generate in batches, score, record.

Rows are encoded one batch ahead in a background thread. Batches are cut from the whole row list, so a resumed run
samples in the same batches, with the same seeds, as an unbroken one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from tqdm import tqdm

from ktr.data.paths import MediaError
from ktr.data.rows import duplicate_ids
from ktr.evaluation.records import MEDIA_ERROR, Record, RecordKey, RecordWriter, read_records
from ktr.evaluation.scoring import PROMPT_TOO_LONG, AnswerJudge, ReplyScorer, blank_record, judged, with_verdict
from ktr.evaluation.views import Encoder, Granularity, View, ViewedPrompt, encode_view
from ktr.models.prompt_encoder import PromptTooLongError

if TYPE_CHECKING:
    from ktr.data.rows import Row
    from ktr.rewards import Verdict
    from ktr.rollout.engine import Completion, RolloutEngine, SamplingSettings

logger = logging.getLogger(__name__)

Scorer = Callable[["Row", str, bool], "Verdict"]
OnError = Literal["record", "raise"]
SCORE_BY_RULE = ReplyScorer()


def evaluate(
    engine: RolloutEngine,
    encoder: Encoder,
    rows: Sequence[Row],
    settings: SamplingSettings,
    *,
    view: View = "full",
    seed: int = 0,
    batch_size: int = 8,
    num_samples: int = 1,
    granularity: Granularity = "frame",
    scorer: Scorer = SCORE_BY_RULE,
    judge: AnswerJudge | None = None,
    facets: Mapping[str, Mapping[str, str]] | None = None,
    stamp: Callable[[Row], str] | None = None,
    on_error: OnError = "record",
    record_path: str | Path | None = None,
    identity: str = "",
    progress: bool = True,
    description: str = "",
) -> list[Record]:
    """Evaluate rows under one view; the records come back in row order, samples of a row together.

    With `record_path` every record is appended there as soon as its batch is scored, and samples already in the file
    are taken over. `identity` names what else decides a reply (weights, prompt wording, frame sampling): a file made
    under another identity, seed or decoding is refused, as is one whose rows had another `stamp` (of their media
    files). `scorer` is given row, reply and whether the reply was cut off. Open answers go to `judge`, and stay
    unscored without one. `facets` are kept in the records, by row id.

    Media that cannot be read is recorded with status `media_error` and accuracy 0, a prompt over the limit with
    `prompt_too_long` (`on_error="record"`), or stops the evaluation (`"raise"`); having no video decoder at all always
    stops it.

    Raises ValueError for repeated row ids, an impossible setting, or a record file of another evaluation.
    """
    if batch_size < 1 or num_samples < 1:
        raise ValueError(f"batch_size and num_samples must be at least 1, got {batch_size} and {num_samples}")
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error must be one of {get_args(OnError)}, got {on_error!r}")
    if repeated := duplicate_ids(rows):
        raise ValueError(f"row ids must be unique in an evaluation; these repeat: {list(repeated)[:5]}")
    job = _Job(encoder, view, seed, granularity, on_error)
    setup = _setup_digest(settings, job, identity, batch_size)
    digests = {row.id: _row_digest(row, setup, stamp(row) if stamp is not None else "") for row in rows}
    done = _recorded(record_path, view, digests) if record_path is not None else {}
    keys = [RecordKey(row.id, view, sample) for row in rows for sample in range(num_samples)]
    batches = [list(rows[start : start + batch_size]) for start in range(0, len(rows), batch_size)]
    todo = [
        (number, batch)
        for number, batch in enumerate(batches)
        if any(RecordKey(row.id, view, sample) not in done for row in batch for sample in range(num_samples))
    ]
    writer = RecordWriter(record_path, sync_every=1) if record_path is not None else nullcontext()
    bar = tqdm(total=len(rows), desc=description or f"evaluate {view}", unit="row", disable=not progress)
    bar.update(len(rows) - sum(len(batch) for _, batch in todo))
    failed: list[_Input] = []
    with writer as file, bar:
        for number, inputs in _encode_ahead(job, todo):
            prompts = {item.row.id: item.viewed.prompt for item in inputs if item.viewed is not None}
            completions: dict[str, list[Completion]] = {}
            if prompts:
                groups = engine.generate(list(prompts.values()), num_samples, settings, _batch_seed(seed, number))
                completions = dict(zip(prompts, groups, strict=True))
            fresh = [
                _record(
                    item,
                    blank_record(
                        item.row, sample, view, digest=digests[item.row.id], facets=(facets or {}).get(item.row.id)
                    ),
                    completions.get(item.row.id),
                    scorer,
                )
                for item in inputs
                for sample in range(num_samples)
                if RecordKey(item.row.id, view, sample) not in done
            ]
            fresh = judged(fresh, judge)
            if file is not None:
                file.write(fresh)
            done.update({record.key: record for record in fresh})
            failed += [item for item in inputs if item.error]
            bar.update(len(inputs))
            bar.set_postfix_str(f"accuracy {_mean_accuracy(done.values()):.1%}", refresh=False)
    for status, said in ((MEDIA_ERROR, "unreadable media"), (PROMPT_TOO_LONG, "too long prompts")):
        of_status = [item for item in failed if item.status == status]
        if of_status:
            logger.warning(
                "%d of %d rows had %s and count as wrong, the first: %s",
                len(of_status), len(rows), said, of_status[0].error,
            )  # fmt: skip
    if failed and len(failed) == len(rows):
        logger.error("not one row could be asked, so the accuracy says nothing: is the media root right?")
    return [done[key] for key in keys]


@dataclass(frozen=True)
class _Job:
    """What encoding a row under a view depends on."""

    encoder: Encoder
    view: View
    seed: int
    granularity: Granularity
    on_error: OnError


@dataclass(frozen=True, eq=False)
class _Input:
    """A row ready to generate from, or the reason why its media could not be read."""

    row: Row
    viewed: ViewedPrompt | None
    error: str = ""
    status: str = MEDIA_ERROR


def _encode(job: _Job, batch: Sequence[Row]) -> list[_Input]:
    inputs = []
    for row in batch:
        try:
            viewed = encode_view(job.encoder, row, job.view, seed=job.seed, granularity=job.granularity)
        except MediaError as error:
            if job.on_error == "raise" or error.reason == "no_backend":
                raise
            inputs.append(_Input(row, None, str(error)))
        except PromptTooLongError as error:
            if job.on_error == "raise":
                raise
            inputs.append(_Input(row, None, str(error), PROMPT_TOO_LONG))
        else:
            inputs.append(_Input(row, viewed))
    return inputs


def _encode_ahead(job: _Job, todo: Sequence[tuple[int, Sequence[Row]]]) -> Iterator[tuple[int, list[_Input]]]:
    """Batch numbers with their encoded rows; the next batch is encoded while the caller works on this one."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="encode") as pool:
        coming: Future[list[_Input]] | None = None
        for place, (number, batch) in enumerate(todo):
            current = coming or pool.submit(_encode, job, batch)
            coming = pool.submit(_encode, job, todo[place + 1][1]) if place + 1 < len(todo) else None
            yield number, current.result()


def _record(item: _Input, blank: Record, completions: Sequence[Completion] | None, scorer: Scorer) -> Record:
    if completions is None or item.viewed is None:
        return dataclasses.replace(blank, status=item.status, detail=item.error, view_changed=False)
    completion = completions[blank.sample]
    record = dataclasses.replace(
        blank,
        reply=completion.text,
        num_tokens=len(completion.token_ids),
        truncated=completion.truncated,
        frames=item.viewed.shown,
        view_changed=item.viewed.changed,
        prompt_digest=_prompt_digest(item.viewed),
    )
    return with_verdict(record, scorer(item.row, completion.text, completion.truncated))


def _recorded(path: str | Path, view: View, digests: dict[str, str]) -> dict[RecordKey, Record]:
    """Records of earlier runs by key. Raises ValueError when one was made under other settings."""
    if not Path(path).exists():
        return {}
    records = read_records(path).records
    for record in records:
        if record.view == view and record.id in digests and record.digest != digests[record.id]:
            raise ValueError(
                f"{path}: sample {record.id!r} was recorded from another row, media file, model, decoding or seed; "
                "start a new run, or name a new record file"
            )
    return {record.key: record for record in records}


def _setup_digest(settings: SamplingSettings, job: _Job, identity: str, batch_size: int) -> str:
    # What is sampled depends on a batch's seed; greedy replies do not depend on batches.
    batches = None if settings.greedy else batch_size
    setup = [dataclasses.asdict(settings), job.view, job.seed, job.granularity, identity, batches]
    return json.dumps(setup, sort_keys=True, default=str)


def _row_digest(row: Row, setup: str, stamp: str) -> str:
    content = json.dumps([dataclasses.asdict(row), setup, stamp], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _prompt_digest(viewed: ViewedPrompt) -> str:
    frames = viewed.prompt.frames
    content = f"{viewed.prompt.text}\0{frames.digest if frames is not None else ''}"
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _batch_seed(seed: int, number: int) -> int:
    """A 31-bit seed per batch, unrelated between neighbouring seeds."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{number}".encode()).digest()[:4], "big") >> 1


def _mean_accuracy(records: Iterable[Record]) -> float:
    values = [record.accuracy or 0.0 for record in records]
    return sum(values) / len(values) if values else 0.0
