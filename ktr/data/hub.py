"""Records of a Hugging Face data set: by its name on the hub, or from a folder that `datasets` or `job=publish` wrote.

Example: `hf://owner/name?split=validation&config=long`, `hf:///data/my_folder?split=test`, or the folder's bare path.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from ktr.data.rows import RowError

PREFIX = "hf://"
DEFAULT_SPLIT = "train"
_KNOWN = ("split", "config")


def is_hub_address(path: str | Path) -> bool:
    """Whether rows come from `datasets` rather than from a file."""
    return str(path).startswith(PREFIX) or Path(path).is_dir()


def read_hub(address: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and values of each record. Media that the data set carries inside become files in the hub's cache folder.

    Raises:
        RowError: the data set, its split or its config is not to be had here.
    """
    import datasets

    name, split, config = parse_address(address)
    try:
        if (Path(name) / "dataset_dict.json").exists():
            dataset = datasets.load_from_disk(name)[split]
        elif (Path(name) / "state.json").exists():
            dataset = datasets.load_from_disk(name)
        else:
            dataset = datasets.load_dataset(name, config, split=split)
    except (OSError, ValueError, KeyError, datasets.exceptions.DatasetsError) as error:
        raise RowError(_remedy(name, split, error), file=address) from error
    folder = Path(datasets.config.HF_DATASETS_CACHE) / "ktr_media"
    for column, feature in dataset.features.items():
        if isinstance(feature, datasets.Image | datasets.Video):
            dataset = dataset.cast_column(column, type(feature)(decode=False))
    for index, record in enumerate(dataset):
        values = {key: _with_file(value, folder) for key, value in record.items() if value is not None}
        yield index, values


def parse_address(address: str) -> tuple[str, str, str | None]:
    """Name or folder, split and config."""
    name, _, query = address.removeprefix(PREFIX).partition("?")
    options = dict(parse_qsl(query))
    for key in options:
        if key not in _KNOWN:
            raise RowError(f"unknown part {key!r}; known: {', '.join(_KNOWN)}", file=address)
    if not name:
        raise RowError("no data set is named; write hf://owner/name", file=address)
    return name, options.get("split", DEFAULT_SPLIT), options.get("config")


def _remedy(name: str, split: str, error: Exception) -> str:
    cause = error.__cause__ if error.__cause__ is not None else error  # `datasets` hides which file it was, and why
    first = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
    offline = os.environ.get("HF_HUB_OFFLINE") == "1"
    if Path(name).is_dir():
        return f"the folder cannot be read as a data set with split {split!r} ({first}); give a file of rows"
    advice = (
        "HF_HUB_OFFLINE=1 forbids downloads: unset it, or give the path of a folder that holds the data set"
        if offline
        else "check the name and the connection, log in for a private data set, or give a folder that holds it"
    )
    return f"the data set cannot be loaded with split {split!r} ({first}); {advice}"


def _with_file(value: Any, folder: Path) -> Any:
    """An embedded image or video as the path of a file with its bytes; other values as they are."""
    if not isinstance(value, dict) or set(value) != {"bytes", "path"}:
        return value
    if value["bytes"] is None:
        return value["path"]
    suffix = Path(value["path"] or "").suffix
    path = folder / (hashlib.blake2b(value["bytes"], digest_size=16).hexdigest() + suffix)
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        unfinished.write_bytes(value["bytes"])
        unfinished.replace(path)
    return str(path)
