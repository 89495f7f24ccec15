"""Schemas below `data`: several sources of rows mixed into one, and which rows of them are kept."""

from __future__ import annotations

from dataclasses import dataclass

from ktr.config.fields import ConfigError, Node, choice, free_text, items, number

# The importers of `ktr.data.importers.FORMATS`, named here so that a typo is found before they are imported.
ROW_FORMATS = (
    "video_r1", "rewatch_qa", "rewatch_captions", "benchmark", "video_holmes", "conversations", "videoreasonbench",
    "tempcompass", "plain",
)  # fmt: skip
MODALITIES = ("video", "image", "text")


@dataclass
class SourceConfig(Node):
    """One source of a mix. `weight` is its share of the mix relative to the others; null in all takes all rows.

    `media_root` is where this source's relative paths start; without it they start from `data.media_root`.

    Example::

        python train.py data=mix 'data.mix=[{format: video_r1, path: a.json, weight: 3}, {path: b.jsonl, weight: 1}]'
    """

    path: str = free_text("")
    format: str = choice("plain", *ROW_FORMATS)
    media_root: str | None = free_text()
    weight: float | None = number(None, gt=0)

    def check(self) -> None:
        if not self.path:
            raise ConfigError("path", "is required: a file of rows, a folder, or hf://owner/name")


@dataclass
class KeepConfig(Node):
    """Rows that stay; empty lists and null keep all. Seconds are the whole video's, as the rows state them.

    Example::

        python train.py data.keep.modality=[video] data.keep.problem_type='[multiple choice]' data.keep.max_seconds=60
    """

    modality: list[str] = items()
    problem_type: list[str] = items()
    source: list[str] = items()
    min_seconds: float | None = number(None, ge=0)
    max_seconds: float | None = number(None, gt=0)

    def check(self) -> None:
        for modality in self.modality:
            if modality not in MODALITIES:
                raise ConfigError("modality", f"lists some of {', '.join(MODALITIES)}, not {modality!r}")
        if self.min_seconds is not None and self.max_seconds is not None and self.min_seconds > self.max_seconds:
            raise ConfigError("min_seconds", f"={self.min_seconds:g} is above max_seconds={self.max_seconds:g}")
