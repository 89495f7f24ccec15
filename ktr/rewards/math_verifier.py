"""Scorer of mathematical expressions: math-verify in a child process with a hard time limit.

math-verify's own limit uses signals, which fail off the main thread and cannot stop a computation in C. Here the child
is killed when it is late, whatever it does, and the next question starts a new one.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import selectors
import subprocess
import sys
import threading
import time
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any

from ktr.rewards.expressions import same_value
from ktr.rewards.numbers import read_numbers
from ktr.rewards.text import boxed_contents, collapse, normalise, strip_answer_cue, unwrap
from ktr.rewards.verdict import Outcome, right_or_wrong

logger = logging.getLogger(__name__)

START_LIMIT_SECONDS = 120.0
LONGEST_EXPRESSION = 2000

_ALTERNATIVES = re.compile(r"(?<![^\W\d_])(?:or|oder|ou)(?![^\W\d_])|\\text\{\s*or\s*\}", re.IGNORECASE)
_UNIT_WORD = re.compile(r"(?<=\d)\s+[^\W\d_]{2,}\.?$")
_SPACING = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])|\s+|\$|\\[()\[\]]")


class VerifierTimeout(Exception):
    """The verifier did not answer within the limit and was killed."""


class MathVerifier:
    """A child process that compares expressions, restarted when it is late or dies; usable from any thread.

    `limit_seconds` bounds one comparison; `timeouts` and `deaths` count what went wrong.
    """

    def __init__(self, limit_seconds: float = 3.0) -> None:
        if limit_seconds <= 0:
            raise ValueError(f"limit_seconds must be positive, not {limit_seconds}")
        self.limit_seconds = limit_seconds
        self.timeouts = 0
        self.deaths = 0
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._pending = b""

    def compare(self, gold: str, answer: str) -> dict[str, Any]:
        """The child's reply. Raises VerifierTimeout when it was late or died, RuntimeError when it cannot start."""
        request = json.dumps({"gold": gold, "answer": answer}).encode() + b"\n"
        with self._lock:
            child = self._running_child()
            assert child.stdin is not None
            try:
                child.stdin.write(request)
                child.stdin.flush()
                return json.loads(self._read_line(child, self.limit_seconds))
            except TimeoutError:
                self.timeouts += 1
                self._kill()
                raise VerifierTimeout(f"no result within {self.limit_seconds:g} s") from None
            except (EOFError, BrokenPipeError):
                self.deaths += 1
                self._kill()
                raise VerifierTimeout("the verifier died (out of memory?)") from None

    def close(self) -> None:
        """End the child; the next comparison would start another."""
        with self._lock:
            self._kill()

    def _running_child(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():  # a fork must not share its parent's pipe
            self._child, self._pending, self._owner = None, b"", os.getpid()
        if self._child is None or self._child.poll() is not None:
            # -P keeps this folder out of the child's module search path.
            command = [sys.executable, "-P", str(Path(__file__).with_name("math_worker.py"))]
            self._pending = b""
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            try:
                self._read_line(self._child, START_LIMIT_SECONDS)
            except (TimeoutError, EOFError):
                self._kill()
                raise RuntimeError(
                    f"the math verifier did not start: try `{' '.join(command)}`; is math-verify installed?"
                ) from None
        return self._child

    def _read_line(self, child: subprocess.Popen[bytes], limit: float) -> bytes:
        assert child.stdout is not None
        deadline = time.monotonic() + limit
        descriptor = child.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                data = os.read(descriptor, 65536)
                if not data:
                    raise EOFError
                self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _kill(self) -> None:
        child, self._child, self._pending = self._child, None, b""
        if child is None or self._owner != os.getpid():
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    logger.debug("the verifier's pipe was already broken")


_verifier = MathVerifier()
atexit.register(_verifier.close)


def score_math(answer: str, gold: str, verifier: MathVerifier | None = None) -> Outcome:
    """1 when the two expressions are equal. Only what a first look leaves open needs the child process."""
    boxed = set(boxed_contents(answer))
    if len(boxed) > 1 or (_ALTERNATIVES.search(answer) and not _ALTERNATIVES.search(gold)):
        return Outcome(0.0, "ambiguous")
    answer = boxed.pop() if boxed else strip_answer_cue(answer)
    shown = collapse(answer)
    gold_boxed = boxed_contents(gold)
    gold = gold_boxed[0] if len(gold_boxed) == 1 else gold
    if len(answer) > LONGEST_EXPRESSION:
        return Outcome(0.0, "unparsable", detail="expression too long")
    if _same_notation(answer, gold):
        return right_or_wrong(True, shown)
    if _is_number(gold) and _is_number(answer) and read_numbers(gold).single() == read_numbers(answer).single():
        return right_or_wrong(True, shown)
    same = same_value(answer, gold)
    if same is not None:
        return right_or_wrong(same, shown)
    right, status, detail = _verified(answer, gold) if verifier is None else _verify(answer, gold, verifier)
    return Outcome(1.0 if right else 0.0, status, shown, detail)


@lru_cache(maxsize=16384)
def _verified(answer: str, gold: str) -> tuple[bool, Any, str]:
    return _verify(answer, gold, _verifier)


def _verify(answer: str, gold: str, verifier: MathVerifier) -> tuple[bool, Any, str]:
    try:
        reply = verifier.compare(_as_math(gold), _as_math(answer))
    except VerifierTimeout as error:
        logger.warning("a math answer was given up (%s): %.80r", error, answer)
        return False, "unparsable", str(error)
    if not reply["gold_parsed"]:
        return normalise(unwrap(answer)) == normalise(unwrap(gold)), "ok", "compared as text"
    return reply["right"], "ok" if reply["parsed"] else "unparsable", reply.get("error", "")


def _same_notation(answer: str, gold: str) -> bool:
    return _SPACING.sub("", answer).rstrip(".") == _SPACING.sub("", gold).rstrip(".")


def _is_number(text: str) -> bool:
    """Whether a text is one number, bare or with one unit word, so that no algebra is needed."""
    plain = unicodedata.normalize("NFKC", text)  # a fraction sign is no letter
    letters = re.sub(r"\\[a-zA-Z]+|(?<=\d)[eE](?=[-+]?\d)", "", plain).strip()
    return read_numbers(text).single() is not None and not re.search(r"[^\W\d_]|=", _UNIT_WORD.sub("", letters))


def _as_math(text: str) -> str:
    text = text.strip().rstrip(".")
    return text if "$" in text or "\\(" in text or "\\[" in text else f"${text}$"
