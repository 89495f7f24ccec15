"""`predict.py`: one question about one video or image, to any checkpoint; its reasoning and answer, and its tokens."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from ktr import components
from ktr.attribution.settings import KeyTokenSettings
from ktr.config.schemas import PredictConfig
from ktr.data.rows import Media, Row, label_options, option_labels
from ktr.evaluation.predict import predict, render
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
    prediction = predict(engine, encoder, _row(config), settings, seed=config.seed)
    console = Console(file=io.StringIO(), width=100)
    console.print(render(prediction))
    text = console.file.getvalue().rstrip()
    if not config.tokens:
        return text
    token_ids = prediction.completion.token_ids
    found = completion_signals(loaded, encoder, prediction.prompt, token_ids, KeyTokenSettings(), seed=config.seed)
    page = token_page(loaded, prediction.prompt, token_ids, prediction.completion.text, found)
    return f"{text}\n{write_token_page(config.output or run_dir / 'tokens.html', [page], title=config.question)}"


def _row(config: PredictConfig) -> Row:
    media = None
    if config.video or config.image:
        kind = "video" if config.video else "image"
        path = str(Path(config.video or config.image or "").expanduser().absolute())
        media = Media(kind, path, config.start, config.end)
    options = label_options(tuple(config.options))
    problem_type = "multiple choice" if options and config.problem_type == "free-form" else config.problem_type
    answer = (option_labels(options) or ["?"])[0]
    return Row("question", config.question, media, problem_type, options, answer)
