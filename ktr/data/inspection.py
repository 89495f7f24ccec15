"""What a doctor's worker finds out about one media file and the rows that ask about it, by doing what training will do.

Shapes: T frames, H and W pixels after the resize.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ktr.data.paths import MediaError, resolve_media
from ktr.data.prompts import PromptTemplate
from ktr.data.rows import DURATION_SLACK, Media, Row
from ktr.data.sampling import TEMPORAL_PATCH, FrameSampling

if TYPE_CHECKING:
    from ktr.data.media import Frames
    from ktr.models.prompt_encoder import PromptEncoder

PRELOADED = ("ktr.data.media", "ktr.data.pyav_reader", "ktr.data.frame_store")
PRELOADED_WITH_MODEL = (
    *PRELOADED,
    "ktr.models.prompt_encoder",
    "transformers.models.auto.processing_auto",
    "transformers.models.qwen2_vl.processing_qwen2_vl",
    "transformers.models.qwen2_5_vl.processing_qwen2_5_vl",
    "transformers.models.qwen3_vl.processing_qwen3_vl",
)
TOO_LONG, BAD_PROMPT, BOUNDS = "prompt_too_long", "bad_prompt", "bounds"


@dataclass(frozen=True)
class InspectionSettings:
    """What training will do with the rows.

    Args:
        factor: pixels that height and width become multiples of, where no checkpoint says it.
        model_path: checkpoint whose processor counts the tokens of prompts; None counts visual tokens alone.
        max_prompt_tokens: longest prompt; None for no limit.
        every_frame: decode all frames of a video, not only those that the sampling picks.
        cache: folder of the frame store that the frames go into; None keeps none.
    """

    media_root: str | None
    sampling: FrameSampling
    prompt: str
    decoder: str = "auto"
    factor: int = 28
    model_path: str | None = None
    max_prompt_tokens: int | None = None
    every_frame: bool = False
    cache: str | None = None
    cache_bytes: int = 64 << 30


@dataclass(frozen=True)
class InspectionTask:
    """One file (or none, for rows of text) and all rows that ask about it."""

    media: Media | None
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Finding:
    """What was found. `reason` is None for media that can be used; plain values only, so that JSON can hold it.

    Args:
        row_problems: reason and sentence by row id, for rows that cannot be asked though their media are sound.
        content: digest of the file, the same for copies.
        frames: frames the file really stores.
        used: frames, height and width that the model is given.
    """

    reason: str | None = None
    error: str = ""
    row_problems: dict[str, tuple[str, str]] = field(default_factory=dict)
    content: str | None = None
    codec: str | None = None
    backend: str | None = None
    duration: float | None = None
    frames: int | None = None
    fps: float | None = None
    used: tuple[int, int, int] | None = None
    repeated: bool = False
    clamped: bool = False


def make_inspector(settings: InspectionSettings) -> Callable[[InspectionTask], Finding]:
    """For `HardLimitPool`: an inspector of its own in each worker."""
    return Inspector(settings)


class Inspector:
    """Inspects files; problems are findings, never exceptions."""

    def __init__(self, settings: InspectionSettings) -> None:
        import torch

        from ktr.data.content_digest import ContentDigests
        from ktr.data.disk_store import DiskStore
        from ktr.data.frame_store import FrameStore

        torch.set_num_threads(1)
        self.settings = settings
        self.template = PromptTemplate.load(settings.prompt)
        self.store = None
        self.digests = ContentDigests(None)
        if settings.cache is not None:
            self.store = FrameStore(DiskStore(settings.cache, settings.cache_bytes))
            self.digests = self.store.digests
        self.encoder = None if settings.model_path is None else self._encoder(settings.model_path)
        self.factor = settings.factor if self.encoder is None else self.encoder.family.resize_factor

    def _encoder(self, path: str) -> PromptEncoder:
        from ktr.models.loading import load_processor
        from ktr.models.prompt_encoder import PromptEncoder

        processor, family = load_processor(path)
        limit = self.settings.max_prompt_tokens
        return PromptEncoder(
            processor, family, self.template, self.settings.sampling, self.settings.media_root, max_prompt_tokens=limit
        )

    def __call__(self, task: InspectionTask) -> Finding:
        if task.media is None:
            return Finding(row_problems=self._prompt_problems(task.rows, None))
        path: Path | None = None
        content = codec = None
        try:
            path = resolve_media(task.media, self.settings.media_root)
            frames = self._load(path, task.media)
            content, codec = self.digests.of(path), codec_of(path, task.media)
            if self.settings.every_frame and task.media.kind == "video":
                self._decode_all(path)
        except MediaError as error:
            if path is not None and path.is_file():
                codec = codec_of(path, task.media)
            return Finding(error.reason, error.detail, content=content, codec=codec)
        except OSError as error:
            return Finding("unreadable", f"{error.strerror or error}", content=content, codec=codec)
        end = task.media.end
        if end is not None and frames.duration is not None and end > frames.duration + DURATION_SLACK:
            problem = f"end {end} lies past the video's {frames.duration:.3f} s"
            return Finding(BOUNDS, problem, content=content, codec=codec, duration=frames.duration)
        count, _, height, width = frames.pixels_T3HW.shape
        return Finding(
            row_problems=self._prompt_problems(task.rows, frames),
            content=content,
            codec=codec,
            backend=frames.backend,
            duration=frames.duration,
            frames=frames.total_frames,
            fps=frames.fps,
            used=(count, height, width),
            repeated=frames.repeated,
            clamped=frames.clamped,
        )

    def _load(self, path: Path, media: Media) -> Frames:
        from ktr.data.media import load_frames

        load = load_frames if self.store is None else self.store.load
        return load(path, media, self.settings.sampling, factor=self.factor, decoder=self.settings.decoder)

    def _decode_all(self, path: Path) -> None:
        from ktr.data.decoders import with_decoder

        with_decoder(path, self.settings.decoder, lambda reader, name: reader.recount())

    def _prompt_problems(self, rows: tuple[Row, ...], frames: Frames | None) -> dict[str, tuple[str, str]]:
        problems = {}
        for row in rows:
            problem = self._exact_problem(row, frames) if self.encoder else self._visible_problem(row, frames)
            if problem is not None:
                problems[row.id] = problem
        return problems

    def _exact_problem(self, row: Row, frames: Frames | None) -> tuple[str, str] | None:
        from ktr.models.prompt_encoder import PromptTooLongError

        assert self.encoder is not None
        try:
            self.encoder.encode_frames(row, frames)
        except PromptTooLongError as error:
            return TOO_LONG, str(error)
        except ValueError as error:
            return BAD_PROMPT, str(error)
        return None

    def _visible_problem(self, row: Row, frames: Frames | None) -> tuple[str, str] | None:
        """Without a tokenizer: whether the prompt can be written, and its visual tokens alone are within the limit."""
        try:
            self.template.render(row, frames.duration if frames is not None else None)
        except ValueError as error:
            return BAD_PROMPT, str(error)
        limit = self.settings.max_prompt_tokens
        if limit is None or frames is None:
            return None
        count, _, height, width = frames.pixels_T3HW.shape
        tokens = -(-count // TEMPORAL_PATCH) * (height // self.factor) * (width // self.factor)
        if tokens < limit:
            return None
        return TOO_LONG, f"the video or image alone takes {tokens} tokens and the limit is {limit}"


def codec_of(path: Path, media: Media) -> str | None:
    """The codec that the container names, also where nothing here decodes it; an image's format; None if unknown."""
    if media.kind == "image":
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(path) as image:
                return image.format
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            return None
    import av

    try:
        with av.open(str(path.absolute()), metadata_errors="ignore") as container:
            if not container.streams.video:
                return None
            stream = container.streams.video[0]
            context = stream.codec_context
            return context.name if context is not None else "unknown"
    except (av.FFmpegError, OSError):
        return None
