"""A stand-in for train.py: leaves a stage's checkpoint and summary, or fails where the file FAIL says so.

What it gets is what the real one gets: overrides, its run folder among them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(overrides: list[str]) -> None:
    given = dict(override.split("=", 1) for override in overrides)
    run = Path(given["hydra.run.dir"].strip("'"))
    stage = given["stages"].strip("[]")
    fail = Path(os.environ["KTR_TEST_FAIL"])
    if fail.exists() and f"{stage}/{run.name}" in fail.read_text().split():
        sys.exit(f"error: {stage} cannot do this")
    start = given.get("model.path", "").strip("'")
    before = json.loads((Path(start) / "made.json").read_text()) if start else []
    made = run / "checkpoints" / stage
    made.mkdir(parents=True)
    own = [value for key, value in given.items() if key in ("seed", "ktr", "sft.max_steps")]
    (made / "made.json").write_text(json.dumps([*before, [stage, *own]]))
    accuracy = {
        "base": 0.5 + 0.1 * ("entropy" in str(before)) + 0.01 * int(given.get("seed", 0)),
        "sft": None,
        "rl": None,
    }
    (run / "summary.json").write_text(json.dumps({"accuracy": accuracy}))


if __name__ == "__main__":
    main(sys.argv[1:])
