"""The evaluation loop: encode under a view, generate in batches, score, record.

Rows are encoded one batch ahead in a background thread. Batches are cut from the whole row list, so a resumed run
samples in the same batches, with the same seeds, as an unbroken one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from tqdm import tqdm

from ktr.data.paths import MediaError
from ktr.data.rows import duplicate_ids
from ktr.evaluation.records import MEDIA_ERROR, TRUNCATED, Record, RecordKey, RecordWriter, read_records
from ktr.evaluation.views import Encoder, Granularity, View, ViewedPrompt, encode_view
from ktr.rewards import score_reply

if TYPE_CHECKING:
    from ktr.data.rows import Row
    from ktr.rewards import Verdict
    from ktr.rollout.engine import Completion, RolloutEngine, SamplingSettings

logger = logging.getLogger(__name__)

Scorer = Callable[["Row", str], "Verdict"]
OnError = Literal["record", "raise"]


def score_row(row: Row, reply: str) -> Verdict:
    """The default scorer: the reply against the row's own type, gold answer and options."""
    return score_reply(reply, problem_type=row.problem_type, gold=row.answer, options=row.options)


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
    scorer: Scorer = score_row,
    on_error: OnError = "record",
    record_path: str | Path | None = None,
    identity: str = "",
    progress: bool = True,
    description: str = "",
) -> list[Record]:
    """Evaluate rows under one view; the records come back in row order, samples of a row together.

    With `record_path` every record is appended there as soon as its batch is scored, and samples already in the file
    are taken over. `identity` names what else decides a reply (weights, prompt wording, frame sampling): a file made
    under another identity, seed or decoding is refused. Media that cannot be read is recorded with status
    `media_error` and accuracy 0 (`on_error="record"`) or stops the evaluation (`"raise"`); having no video decoder at
    all always stops it.

    Raises ValueError for repeated row ids, an impossible setting, or a record file of another evaluation.
    """
    if batch_size < 1 or num_samples < 1:
        raise ValueError(f"batch_size and num_samples must be at least 1, got {batch_size} and {num_samples}")
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error must be one of {get_args(OnError)}, got {on_error!r}")
    if repeated := duplicate_ids(rows):
        raise ValueError(f"row ids must be unique in an evaluation; these repeat: {list(repeated)[:5]}")
    job = _Job(encoder, view, seed, granularity, on_error)
    setup = _setup_digest(settings, job, identity)
    digests = {row.id: _row_digest(row, setup) for row in rows}
    done = _recorded(record_path, view, digests) if record_path is not None else {}
    keys = [RecordKey(row.id, view, sample) for row in rows for sample in range(num_samples)]
    batches = [list(rows[start : start + batch_size]) for start in range(0, len(rows), batch_size)]
    todo = [
        (number, batch)
        for number, batch in enumerate(batches)
        if any(RecordKey(row.id, view, sample) not in done for row in batch for sample in range(num_samples))
    ]
    writer = RecordWriter(record_path) if record_path is not None else nullcontext()
    bar = tqdm(total=len(rows), desc=description or f"evaluate {view}", unit="row", disable=not progress)
    bar.update(len(rows) - sum(len(batch) for _, batch in todo))
    failed: list[str] = []
    with writer as file, bar:
        for number, inputs in _encode_ahead(job, todo):
            prompts = {item.row.id: item.viewed.prompt for item in inputs if item.viewed is not None}
            completions: dict[str, list[Completion]] = {}
            if prompts:
                groups = engine.generate(list(prompts.values()), num_samples, settings, _batch_seed(seed, number))
                completions = dict(zip(prompts, groups, strict=True))
            fresh = [
                _record(item, sample, completions.get(item.row.id), view, scorer, digests[item.row.id])
                for item in inputs
                for sample in range(num_samples)
            ]
            fresh = [record for record in fresh if record.key not in done]
            if file is not None:
                file.write(fresh)
            done.update({record.key: record for record in fresh})
            failed += [item.row.id for item in inputs if item.error]
            bar.update(len(inputs))
            bar.set_postfix_str(f"accuracy {_mean_accuracy(done.values()):.1%}", refresh=False)
    if failed:
        logger.warning("%d rows had unreadable media and count as wrong: %s", len(failed), ", ".join(failed[:10]))
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


def _encode(job: _Job, batch: Sequence[Row]) -> list[_Input]:
    inputs = []
    for row in batch:
        try:
            viewed = encode_view(job.encoder, row, job.view, seed=job.seed, granularity=job.granularity)
        except MediaError as error:
            if job.on_error == "raise" or error.reason == "no_backend":
                raise
            inputs.append(_Input(row, None, str(error)))
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


def _record(
    item: _Input, sample: int, completions: Sequence[Completion] | None, view: View, scorer: Scorer, digest: str
) -> Record:
    row = item.row
    record = Record(
        id=row.id,
        view=view,
        sample=sample,
        category=row.category,
        problem_type=row.problem_type,
        gold=row.answer,
        reply="",
        parsed=None,
        status=MEDIA_ERROR,
        accuracy=0.0,
        format=0.0,
        num_tokens=0,
        truncated=False,
        view_changed=item.viewed is not None and item.viewed.changed,
        detail=item.error,
        digest=digest,
    )
    if completions is None or item.viewed is None:
        return record
    completion = completions[sample]
    verdict = scorer(row, completion.text)
    cut_off = completion.truncated and verdict.status in ("no_answer", "unparsable")
    return dataclasses.replace(
        record,
        reply=completion.text,
        parsed=None if verdict.parsed is None else str(verdict.parsed),
        status=TRUNCATED if cut_off else verdict.status,
        accuracy=verdict.accuracy,
        format=verdict.format,
        num_tokens=len(completion.token_ids),
        truncated=completion.truncated,
        frames=item.viewed.shown,
        detail=verdict.detail,
        prompt_digest=_prompt_digest(item.viewed),
    )


def _recorded(path: str | Path, view: View, digests: dict[str, str]) -> dict[RecordKey, Record]:
    """Records of earlier runs by key. Raises ValueError when one was made under other settings."""
    if not Path(path).exists():
        return {}
    records = read_records(path).records
    for record in records:
        if record.view == view and record.id in digests and record.digest != digests[record.id]:
            raise ValueError(
                f"{path}: sample {record.id!r} was recorded from another row, model, decoding or seed; "
                "name a new record file"
            )
    return {record.key: record for record in records}


def _setup_digest(settings: SamplingSettings, job: _Job, identity: str) -> str:
    setup = [dataclasses.asdict(settings), job.view, job.seed, job.granularity, identity]
    return json.dumps(setup, sort_keys=True, default=str)


def _row_digest(row: Row, setup: str) -> str:
    content = json.dumps([dataclasses.asdict(row), setup], sort_keys=True, default=str)
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
