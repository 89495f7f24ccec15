"""The text of `--help`: what an entry does, every group with its choices, every setting with its value.

Hydra's own help reads the whole config tree once for each group, which takes seconds.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ktr.config.compose import CONF_DIR, compose

FLAGS = ("--help", "-h")
LAUNCHERS = "hydra/launcher"


def help_text(entry: str, overrides: Sequence[str] = ()) -> str:
    """The help of an entry, its settings as composed with `overrides`."""
    config = compose(entry, overrides, with_hydra=True)
    header, footer = config.hydra.help.header, config.hydra.help.footer
    settings = OmegaConf.to_yaml(OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]))
    return (
        f"{header}\nGroups and their choices (group=choice):\n\n{_groups(entry, config)}\n"
        f"Settings (key=value; paths and questions may hold any character):\n\n{settings}\n{footer}"
    )


def _groups(entry: str, config: DictConfig) -> str:
    folders = sorted(folder for folder in CONF_DIR.iterdir() if folder.is_dir())
    chosen = config.hydra.runtime.choices
    groups = {folder.name: folder for folder in folders} | {LAUNCHERS: CONF_DIR / LAUNCHERS}
    return "".join(_group(name, folder, chosen.get(name)) for name, folder in groups.items() if name in chosen)


def _group(name: str, folder: Path, chosen: str | None) -> str:
    lines = [name]
    for file in sorted(folder.rglob("*.yaml")):
        name = file.relative_to(folder).with_suffix("").as_posix()
        mark = "*" if name == chosen else " "
        start = f"  {mark} {name:<19} "
        lines += textwrap.wrap(_first_comment(file), 118, initial_indent=start, subsequent_indent=" " * len(start))
    return "\n".join(lines) + "\n"


def _first_comment(file: Path) -> str:
    comment: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            comment.append(line.removeprefix("#").strip())
    return " ".join(comment) or file.stem
