"""The child process that compares mathematical expressions; started by `math_verifier`, not imported by anyone.

One JSON request a line on stdin (`{"gold": ..., "answer": ...}`), one JSON reply a line on stdout:
`{"right": true | false}`, with `"gold_parsed"` and `"parsed"` telling which of the two could be read.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys
from functools import lru_cache

MEMORY_LIMIT_BYTES = 4 * 2**30


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    logging.disable(logging.ERROR)
    # A cluster signals every process of a job; this one ends when its parent closes the pipe.
    for signum in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT):
        signal.signal(signum, signal.SIG_IGN)
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    forms = (LatexExtractionConfig(), ExprExtractionConfig())

    @lru_cache(maxsize=4096)
    def read(text: str) -> list:
        return parse(text, extraction_config=forms, parsing_timeout=None, raise_on_error=False)

    def answer(request: dict[str, str]) -> dict[str, bool]:
        gold, given = read(request["gold"]), read(request["answer"])
        right = bool(gold and given) and verify(gold, given, timeout_seconds=None, raise_on_error=False)
        return {"right": bool(right), "gold_parsed": bool(gold), "parsed": bool(given)}

    replies = sys.stdout
    sys.stdout = sys.stderr
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        reply: dict[str, bool | str]
        try:
            reply = {**answer(json.loads(line))}
        except (ArithmeticError, AttributeError, MemoryError, RecursionError, TypeError, ValueError) as error:
            reply = {"right": False, "gold_parsed": True, "parsed": False, "error": type(error).__name__}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
