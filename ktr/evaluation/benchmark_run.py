"""One benchmark asked of one model: rows, encoder and engine from its settings, records of every view."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ktr.config.schema_eval import EvalConfig, JudgeConfig
from ktr.config.schema_inputs import DataConfig, ModelConfig
from ktr.config.schemas import EvaluateConfig
from ktr.data.rows import Row
from ktr.evaluation.benchmark_rows import load_benchmark_rows
from ktr.evaluation.identity import evaluation_identity, media_stamp, parser_digest, weights_digest
from ktr.evaluation.records import Record
from ktr.evaluation.replay import read_replies, score_replies
from ktr.evaluation.scoring import ReplyScorer, check_golds
from ktr.rewards.chat_client import ChatClient
from ktr.rewards.judges import Judge

if TYPE_CHECKING:
    from ktr.models.loading import LoadedModel, PromptParts
    from ktr.models.prompt_encoder import PromptEncoder
    from ktr.rollout.engine import RolloutEngine

logger = logging.getLogger(__name__)

ViewRecords = dict[str, list[Record]]


@dataclass(frozen=True)
class Asked:
    """What is asked and how it is scored: rows in order, their facets by id, the root of their media."""

    rows: Sequence[Row]
    scorer: ReplyScorer
    media_root: Path | None = None
    facets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    judge: Judge | None = None


def scorer_of(settings: EvalConfig) -> ReplyScorer:
    return ReplyScorer(settings.policy, settings.regression, settings.wants_tags, settings.judge_only)


def judge_of(settings: JudgeConfig) -> Judge | None:
    """The judge, None where none is set. Raises ValueError for an address or a key that is missing."""
    if settings.base_url is None or settings.model is None:
        return None
    return Judge(
        ChatClient(
            settings.base_url,
            settings.model,
            api_key_env=settings.api_key_env,
            concurrency=settings.concurrency,
            cache_dir=settings.cache,
        )
    )


def asked_of(settings: EvalConfig, rows: Sequence[Row] = (), media_root: Path | None = None) -> Asked:
    """The rows of the benchmark's file, or the given ones where it names none, checked before a model is loaded.

    Raises:
        ValueError: a row that cannot be read or scored, repeated ids, or no rows at all.
    """
    facets: Mapping[str, Mapping[str, str]] = {}
    path = settings.rows_path
    if path is not None:
        lines = None if settings.frames is None else settings.frames.nframes or settings.frames.max_frames
        found = load_benchmark_rows(
            path,
            format=settings.format,
            limit=settings.limit,
            facets=settings.facets,
            subtitles=settings.subtitles,
            subtitle_lines=lines,
        )
        rows, facets, media_root = found.rows, found.facets, settings.media_path
    rows = list(rows[: settings.limit])
    if not rows:
        raise ValueError(f"eval.rows: {settings.rows or 'the data'} hold no rows to evaluate")
    asked = Asked(rows, scorer_of(settings), media_root, facets, judge_of(settings.judge))
    check_golds(rows, asked.scorer)
    stateless = sum(settings.judge_only and row.answer == "None" for row in rows)
    if stateless:
        logger.warning(
            "%s: %d of %d rows have no gold answer and lack the states that VideoReasonBench checks operations by "
            "(`states`, `coords`, `visible_time`): a judge can only see the question; its own question files hold them",
            settings.name, stateless, len(rows),
        )  # fmt: skip
    if asked.judge is None:
        waiting = sum(row.problem_type == "open-ended" for row in rows)
        if waiting:
            logger.warning(
                "%s: %d of %d rows have open answers and eval.judge is not set: what no rule decides counts as wrong, "
                "in the column unjudged",
                settings.name, waiting, len(rows),
            )  # fmt: skip
    return asked


def encoder_of(
    settings: EvalConfig, data: DataConfig, loaded: LoadedModel | PromptParts, media_root: Path | None
) -> PromptEncoder:
    """The encoder of `data` with what the benchmark sets otherwise: prompt, frames, longest prompt."""
    from ktr import components

    own = replace(
        data,
        prompt=settings.prompt or data.prompt,
        sampling=settings.frames or data.sampling,
        max_prompt_tokens=settings.max_prompt_tokens or data.max_prompt_tokens,
    )
    return components.prompt_encoder(own, loaded, media_root)


def load_for(config: EvaluateConfig, engine: str) -> tuple[LoadedModel | PromptParts, RolloutEngine]:
    """The checkpoint as an engine wants it, and the engine around it. vLLM loads the weights itself."""
    from ktr import components

    assert config.model.path is not None, "the schema requires a checkpoint"
    if engine == "vllm":
        from ktr.evaluation.vllm_engine import VllmEngine
        from ktr.models.loading import load_prompt_parts

        parts = load_prompt_parts(config.model.path)
        return parts, VllmEngine(
            config.model.path,
            family=parts.family,
            tokenizer=parts.processor.tokenizer,
            dtype=config.model.dtype,
            max_model_len=_longest(config),
            **config.eval.vllm.options,
        )
    loaded = components.policy_model(config.model, config.model.path, device=components.default_device())
    return loaded, components.rollout_engine(config.rollout, loaded.model, loaded, plugins=config.plugins)


def _longest(config: EvaluateConfig) -> int | None:
    """The longest prompt and reply of any benchmark of the run, in tokens; None where prompts have no limit."""
    members = [member for member in config.eval.members.values() if member.engine != "replay"]
    prompts = [member.max_prompt_tokens or config.data.max_prompt_tokens for member in members]
    lengths = [
        None if prompt is None else prompt + member.max_new_tokens
        for prompt, member in zip(prompts, members, strict=True)
    ]
    known = [length for length in lengths if length is not None]
    return max(known) if len(known) == len(lengths) else None


def identity_of(settings: EvalConfig, model: ModelConfig, checkpoint: str | Path, encoder: PromptEncoder) -> str:
    """What decides the replies and scores of an evaluation beside its rows, view, decoding and seed."""
    return evaluation_identity(
        weights=weights_digest(checkpoint),
        engine=settings.engine,
        dtype=model.dtype,
        attention=model.attn_implementation,
        prompt=asdict(encoder.template),
        frames=asdict(encoder.sampling),
        decoder=encoder.decoder,
        longest=encoder.max_prompt_tokens,
        scoring=asdict(scorer_of(settings)),
        parser=parser_digest(),
    )


def run_views(
    engine: RolloutEngine,
    encoder: PromptEncoder,
    asked: Asked,
    settings: EvalConfig,
    *,
    identity: str,
    seed: int,
    records: Path,
    name: str,
    on_error: str = "record",
) -> ViewRecords:
    """Records of every view of `settings.views`, each in its own file `<name>_<view>.jsonl` under `records`."""
    from ktr import components
    from ktr.evaluation.reply_cache import CachedEngine
    from ktr.evaluation.runner import evaluate

    if settings.cache is not None:
        engine = CachedEngine(engine, settings.cache, identity)
    return {
        view: evaluate(
            engine,
            encoder,
            asked.rows,
            components.evaluation_sampling(settings),
            view=view,  # type: ignore[arg-type]
            seed=seed,
            batch_size=settings.batch_size,
            num_samples=settings.num_samples,
            scorer=asked.scorer,
            judge=asked.judge,
            facets=asked.facets,
            stamp=None if view == "no_video" else lambda row: media_stamp(row, asked.media_root),
            on_error="raise" if on_error == "raise" else "record",
            record_path=records / f"{name}_{view}.jsonl",
            identity=identity,
            description=f"{name} {view}",
        )
        for view in settings.views
    }


def replayed(asked: Asked, settings: EvalConfig, *, records: Path, name: str) -> ViewRecords:
    """Records of the replies in `settings.replies`, which no model is needed for."""
    assert settings.replies is not None, "the schema requires it"
    path = Path(settings.replies).expanduser()
    found = score_replies(
        asked.rows,
        read_replies(path),
        scorer=asked.scorer,
        judge=asked.judge,
        facets=asked.facets,
        record_path=records / f"{name}_full.jsonl",
        source=path,
    )
    return {"full": found}
