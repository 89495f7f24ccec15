"""`predict.py`: one question about one video or image, to any checkpoint; its reasoning and answer, and its tokens."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from ktr import components
from ktr.attribution.settings import KeyTokenSettings
from ktr.config.schemas import PredictConfig
from ktr.data.rows import Media
from ktr.evaluation.predict import predict, question_row, render
from ktr.reporting.examples import completion_signals, token_page
from ktr.reporting.tokens import write_token_page
from ktr.rollout.engine import SamplingSettings


def run(config: PredictConfig, run_dir: Path) -> str:
    """The text to print; with `config.tokens` also writes the page of coloured tokens and ends with its path."""
    assert config.model.path is not None, "the schema requires a checkpoint"
    loaded = components.policy_model(config.model, config.model.path)
    encoder = components.prompt_encoder(config.data, loaded, media_root=None)
    engine = components.rollout_engine(config.rollout, loaded.model, loaded, plugins=config.plugins)
    settings = SamplingSettings(config.max_new_tokens, config.temperature)
    row = question_row(config.question, media=_media(config), options=config.options, problem_type=config.problem_type)
    prediction = predict(engine, encoder, row, settings, seed=config.seed)
    printed = io.StringIO()
    Console(file=printed, width=100).print(render(prediction))
    text = printed.getvalue().rstrip()
    if not config.tokens:
        return text
    token_ids = prediction.completion.token_ids
    found = completion_signals(loaded, encoder, prediction.prompt, token_ids, KeyTokenSettings(), seed=config.seed)
    page = token_page(loaded, prediction.prompt, token_ids, prediction.completion.text, found)
    return f"{text}\n{write_token_page(config.output or run_dir / 'tokens.html', [page], title=config.question)}"


def _media(config: PredictConfig) -> Media | None:
    path = config.video or config.image
    if not path:
        return None
    kind = "video" if config.video else "image"
    return Media(kind, str(Path(path).expanduser().absolute()), config.start, config.end)
