"""One table of methods over seeds: GRPO, T-GRPO, one signal at a time, all three, and the released variant.

Every seed has one warm-up; all methods of that seed start from its checkpoint, on the same rows and with the same
settings but their own. What is done is kept: a killed command goes on where it was, and a finished one prints its table
again. Arguments behind `--` are settings of all runs, as `train.py` takes them.

    python benchmarks/methods.py --out outputs/methods --seeds 0,1,2
    python benchmarks/methods.py --out outputs/quick --seeds 0 -- debug=fast trainer.max_steps=2

Writes `table.md` and `table.json`: accuracy on held-out rows (mean and sample standard deviation over the seeds, and
each seed's own), accuracy with frames shuffled, the gain over the seed's warm-up, kept tokens and seconds.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ktr.config.compose import compose
from ktr.config.overrides import quote
from ktr.config.schemas import TrainConfig
from ktr.config.validate import validate
from ktr.reporting.files import write_atomic

logger = logging.getLogger(__name__)

WARM_UP = "warm-up"
METHODS: dict[str, tuple[str, ...]] = {
    "GRPO": ("ktr=none",),
    "T-GRPO": ("ktr=none", "reward=t_grpo"),
    "entropy only": ("ktr=entropy",),
    "visual only": ("ktr=visual",),
    "temporal only": ("ktr=temporal",),
    "all three": ("ktr=video_ktr_fast",),
    "released": ("ktr=video_ktr_released",),
    "paper": ("ktr=video_ktr",),
}
TABLE = tuple(name for name in METHODS if name != "paper")
METRICS = ("key_tokens/kept/key", "groups/zero_variance", "temporal/paid")

Run = dict[str, Any]


def train(folder: Path, overrides: Sequence[str]) -> Run:
    """The figures of the run in `folder`, trained now unless it is finished.

    Raises:
        ValueError: the folder holds a run of other settings.
    """
    asked, done = folder / "overrides.json", folder / "summary.json"
    if asked.exists() and json.loads(asked.read_text(encoding="utf-8")) != list(overrides):
        raise ValueError(f"{folder} holds a run of other settings: choose another --out, or remove it")
    if not done.exists():
        from ktr.training import pipeline  # Imported late: a finished table is printed without torch.

        if asked.exists():  # Only what this command began: an unfinished run starts again from its own warm-up.
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        asked.write_text(json.dumps(list(overrides)), encoding="utf-8")
        logger.warning("training %s", folder)
        pipeline.run(validate(compose("train", overrides), TrainConfig), folder)
    return figures(folder)


def figures(folder: Path) -> Run:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    stage = "rl" if summary["accuracy"].get("rl") is not None else "sft"
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [row for row in map(json.loads, lines) if row.get("stage") == "rl"]
    means = {name: [row[name] for row in steps if row.get(name) is not None] for name in METRICS}
    return {
        "accuracy": summary["accuracy"][stage],
        "shuffled": summary["accuracy_shuffled"].get(stage),
        "by_kind": {kind: scores[stage] for kind, scores in summary["by_kind"].items()},
        "rows": summary["samples"][stage]["rows"],
        "seconds": summary["seconds"],
        **{name: statistics.fmean(values) if values else None for name, values in means.items()},
    }


def table_of(runs: dict[str, dict[int, Run]]) -> list[dict[str, Any]]:
    """One row a method: means over its seeds, and the gain over the warm-up of the same seed."""
    rows = []
    for method, by_seed in runs.items():
        accuracies = [run["accuracy"] for run in by_seed.values()]
        gains = [run["accuracy"] - runs[WARM_UP][seed]["accuracy"] for seed, run in by_seed.items()]
        shuffled = [run["shuffled"] for run in by_seed.values() if run["shuffled"] is not None]
        kept = [run[METRICS[0]] for run in by_seed.values() if run[METRICS[0]] is not None]
        rows.append(
            {
                "method": method,
                "accuracy": statistics.fmean(accuracies),
                "deviation": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
                "by_seed": dict(zip(by_seed, accuracies, strict=True)),
                "gain": statistics.fmean(gains),
                "shuffled": statistics.fmean(shuffled) if shuffled else None,
                "kept": statistics.fmean(kept) if kept else None,
                "seconds": statistics.fmean([run["seconds"] for run in by_seed.values()]),
            }
        )
    return rows


def markdown(rows: Sequence[dict[str, Any]], seeds: Sequence[int], num_rows: int) -> str:
    head = ["method", "accuracy", *(f"seed {seed}" for seed in seeds), "over warm-up", "frames shuffled", "tokens kept"]
    lines = [f"| {' | '.join([*head, 'seconds'])} |", f"|---|{'---:|' * len(head)}"]
    for row in rows:
        spread = "" if row["deviation"] is None else f" ± {100 * row['deviation']:.1f}"
        cells = [row["method"], _percent(row["accuracy"]) + spread]
        cells += [_percent(row["by_seed"].get(seed)) for seed in seeds]
        cells += [
            f"{100 * row['gain']:+.1f}",
            _percent(row["shuffled"]),
            _percent(row["kept"]),
            f"{row['seconds']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    what = f"Accuracy in % on {num_rows} held-out rows, {len(seeds)} seeds (mean ± sample standard deviation)."
    return "\n".join([what, "", *lines]) + "\n"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs and the table")
    parser.add_argument("--seeds", default="0,1,2", help="of model, data order and sampling")
    parser.add_argument("--methods", default=",".join(TABLE), help=f"some of: {', '.join(METHODS)}")
    parser.add_argument("overrides", nargs="*", help="settings of all runs, after --")
    given = parser.parse_args(arguments)
    seeds = [int(seed) for seed in given.seeds.split(",")]
    methods = given.methods.split(",")
    if unknown := [name for name in methods if name not in METHODS]:
        parser.error(f"unknown method {unknown[0]!r}; known: {', '.join(METHODS)}")
    runs: dict[str, dict[int, Run]] = {name: {} for name in (WARM_UP, *methods)}
    for seed in seeds:
        common = [*given.overrides, f"seed={seed}", "eval.base=false", f"output_dir={quote(str(given.out))}"]
        warm_up = given.out / f"seed-{seed}" / WARM_UP
        runs[WARM_UP][seed] = train(warm_up, [*common, "stages=[sft,eval]"])
        start = f"model.path={quote(str(warm_up / 'checkpoints' / 'sft'))}"
        for name in methods:
            folder = given.out / f"seed-{seed}" / name.replace(" ", "-")
            runs[name][seed] = train(folder, [*common, *METHODS[name], "stages=[rl,eval]", start])
    rows = table_of(runs)
    text = markdown(rows, seeds, runs[WARM_UP][seeds[0]]["rows"])
    write_atomic(given.out / "table.md", text)
    write_atomic(given.out / "table.json", json.dumps({"rows": rows, "runs": runs}, indent=2) + "\n")
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
    return rows


if __name__ == "__main__":
    main()
