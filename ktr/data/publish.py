"""Rows as a Hugging Face data set: a parquet file, a card, and on request the media files themselves."""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from ktr.data.exporters import COLUMNS, write_rows
from ktr.data.paths import resolve_media
from ktr.data.rows import Row
from ktr.reporting.files import write_atomic

logger = logging.getLogger(__name__)

TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
MEANINGS = {
    "id": "name of the row",
    "question": "what is asked",
    "video": "path of the video, if the row is about one",
    "image": "path of the image, if the row is about one",
    "start": "first second of the part asked about; null for the beginning",
    "end": "last second of the part asked about; null for the end",
    "problem_type": "how the answer is scored",
    "options": "choices as shown, with their letters",
    "answer": "gold answer; the letter for multiple choice",
    "rationale": "reasoning that leads to the answer, where there is one",
    "duration": "seconds of the whole video",
    "source": "data set the row comes from",
    "category": "kind of question",
    "captions": "what happens in the video, a line an event with its times, where it is known",
}


def write_dataset(
    rows: Sequence[Row],
    folder: Path,
    *,
    name: str,
    license: str | None = None,
    media_root: Path | None = None,
    copy_media: bool = False,
) -> Path:
    """A folder that `datasets.load_dataset` reads and the hub shows; returns it.

    Args:
        name: title of the card, `owner/name` where it will be pushed.
        license: identifier of the hub, such as `cc-by-4.0`; None says nothing about it.
        copy_media: put the rows' files under `media/`, and write their paths from there.

    Raises:
        ValueError: there are no rows.
        MediaError: a file to be copied is missing or outside of `media_root`.
    """
    if not rows:
        raise ValueError("there are no rows to publish")
    if copy_media:
        rows = _with_copies(rows, folder, media_root)
    write_rows(rows, folder / "data" / "train-00000-of-00001.parquet", "parquet")
    write_atomic(folder / "README.md", card(rows, name, license=license, with_media=copy_media))
    return folder


def card(rows: Sequence[Row], name: str, *, license: str | None, with_media: bool) -> str:
    """The text of the data set's card, its metadata first."""
    metadata = {
        "pretty_name": name.rpartition("/")[2],
        **({"license": license} if license else {}),
        "task_categories": ["visual-question-answering"],
        "tags": sorted({row.modality for row in rows} | {"reasoning"}),
        "size_categories": [next((size for bound, size in SIZES if len(rows) < bound), "n>1M")],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*.parquet"}]}],
    }
    tables = [
        _table(title, Counter(values))
        for title, values in (
            ("modality", [row.modality for row in rows]),
            ("problem type", [row.problem_type for row in rows]),
            ("source", [row.source or "not stated" for row in rows]),
        )
    ]
    root = "Paths start from this folder." if with_media else "The files themselves are not part of this data set."
    columns = "\n".join(f"- `{column}`: {MEANINGS[column]}" for column in COLUMNS)
    return (
        f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)}---\n\n# {metadata['pretty_name']}\n\n"
        f"{len(rows)} questions, {sum(row.rationale is not None for row in rows)} of them with reasoning, about "
        f"{len({row.media.path for row in rows if row.media})} videos and images. {root}\n\n## Columns\n\n{columns}\n\n"
        "## Counts\n\n" + "\n\n".join(tables) + "\n"
    )


def _table(title: str, counts: Counter[str]) -> str:
    lines = [f"| {title} | rows |", "|---|---|"]
    return "\n".join(lines + [f"| {value} | {count} |" for value, count in counts.most_common()])


def push(folder: Path, repo: str, *, private: bool) -> str:
    """Uploads the folder to `repo` where a token is in the environment; a sentence on what happened."""
    token = next((os.environ[name] for name in TOKENS if os.environ.get(name)), None)
    if token is None:
        return f"not pushed to {repo}: set HF_TOKEN to push\n{folder}"
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
    commit = api.upload_folder(folder_path=str(folder), repo_id=repo, repo_type="dataset")
    return f"pushed to {commit.commit_url}\n{folder}"


def _with_copies(rows: Sequence[Row], folder: Path, media_root: Path | None) -> list[Row]:
    """Rows whose paths are those of copies under `media/`, at the places the rows name, so that no two collide."""
    copied = []
    for row in rows:
        if row.media is None:
            copied.append(row)
            continue
        source = resolve_media(row.media, media_root)
        base = Path(os.path.abspath(media_root)) if media_root is not None else Path(source.anchor)
        place = Path("media") / source.relative_to(base)
        target = folder / place
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        copied.append(replace(row, media=replace(row.media, path=place.as_posix())))
    return copied
