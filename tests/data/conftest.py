from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from clips import write_clip

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`clips(name, **settings)` writes a clip once a session."""
    folder = tmp_path_factory.mktemp("clips")

    def make(name: str, *args, **settings) -> Path:
        path = folder / name
        return path if path.exists() else write_clip(path, *args, **settings)

    return make


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """Public example files: the folder `KTR_FIXTURES` names, else `../shared/fixtures`."""
    folder = Path(os.environ.get("KTR_FIXTURES", REPOSITORY.parent / "shared" / "fixtures"))
    if not folder.is_dir():
        pytest.skip(f"no example files at {folder}; set KTR_FIXTURES")
    return folder
