"""Reads a sweep as one result: `python -m ktr.reporting.sweep outputs/NAME/SWEEP`.

Writes into the sweep's folder `sweep.md`, `sweep.html`, `settings.csv` (means over seeds with their intervals),
`effects.csv` (main effects of the axes), `jobs.csv` (every job with all of its figures), and `plots/*.svg`. Jobs that
failed or are not finished are rows of their own and in no mean.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ktr.reporting.files import write_atomic
from ktr.reporting.sweep_charts import standalone
from ktr.reporting.sweep_jobs import read_sweep
from ktr.reporting.sweep_page import sweep_charts_of, sweep_page
from ktr.reporting.sweep_tables import SweepResult, effects_csv, jobs_csv, markdown, result_of, settings_csv

PAGE, PLOTS = "sweep.html", "plots"


def write_sweep(result: SweepResult) -> Path:
    """Writes tables, page and plots into the sweep's folder; returns the page's path."""
    folder = result.folder
    charts = sweep_charts_of(result)
    for old in (folder / PLOTS).glob("*.svg"):
        old.unlink()
    for name, chart in charts.items():
        write_atomic(folder / PLOTS / f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name)}.svg", standalone(chart))
    write_atomic(folder / "sweep.md", markdown(result))
    write_atomic(folder / "settings.csv", settings_csv(result))
    write_atomic(folder / "effects.csv", effects_csv(result))
    write_atomic(folder / "jobs.csv", jobs_csv(result))
    return write_atomic(folder / PAGE, sweep_page(result, charts))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m ktr.reporting.sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the sweep's folder, outputs/<name>/sweep-<time>-<id>")
    parser.add_argument(
        "--figure", action="append", default=[], metavar="NAME",
        help="such as accuracy.rl, by_kind.order.rl, rl/reward, videomme.accuracy; may be given several times",
    )  # fmt: skip
    parser.add_argument("--over", default="seed", metavar="KEYS", help="axes that means are over (default: seed)")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    folder = given.folder.expanduser().absolute()
    try:
        result = result_of(folder, read_sweep(folder), given.over.split(","), given.figure)
        path = write_sweep(result)
    except ValueError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}")
    Console().print(markdown(result), markup=False, highlight=False, soft_wrap=True)
    Console().print(str(path), markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
