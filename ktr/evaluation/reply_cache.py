"""Replies kept on disk between runs, found again only under the same weights, prompt, frames and decoding.

One append-only JSONL file an identity (weights digest and engine). A torn or foreign line is left out; the same key
twice holds the same reply, since the key covers all that decides it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ktr.rollout.engine import Completion, RolloutEngine, SamplingSettings

if TYPE_CHECKING:
    from ktr.models.encoded_prompt import EncodedPrompt

logger = logging.getLogger(__name__)


class CachedEngine:
    """An engine that asks another one only for what was not asked before.

    Greedy replies are kept prompt by prompt; sampled ones depend on the seed and on the batch, which their key covers.

    Args:
        engine: answers what is not in the cache.
        folder: holds one file an identity.
        identity: of whatever else decides a reply, the weights first of all.
    """

    def __init__(self, engine: RolloutEngine, folder: str | Path, identity: str) -> None:
        self.engine = engine
        self.path = Path(folder).expanduser() / f"{identity}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.hits = 0
        self._known = _read(self.path)

    def generate(
        self,
        prompts: Sequence[EncodedPrompt],
        num_completions: int,
        settings: SamplingSettings,
        seed: int,
        progress: bool = False,
    ) -> list[list[Completion]]:
        """`num_completions` completions of every prompt; log-probs are not kept. See `RolloutEngine.generate`."""
        digests = [_prompt_digest(prompt) for prompt in prompts]
        shared: list[Any] = [dataclasses.asdict(settings), num_completions]
        if not settings.greedy:
            shared += [seed, digests]
        keys = [_key(shared, place if not settings.greedy else 0, digest) for place, digest in enumerate(digests)]
        missing = [place for place, key in enumerate(keys) if key not in self._known]
        if missing and not settings.greedy:
            missing = list(range(len(prompts)))
        if missing:
            fresh = self.engine.generate(
                [prompts[place] for place in missing], num_completions, settings, seed, progress
            )
            self._keep({keys[place]: group for place, group in zip(missing, fresh, strict=True)})
        self.hits += len(prompts) - len(missing)
        return [self._known[key] for key in keys]

    def _keep(self, groups: dict[str, list[Completion]]) -> None:
        lines = [
            json.dumps([key, [[list(one.token_ids), one.text, one.truncated] for one in group]]) + "\n"
            for key, group in groups.items()
            if key not in self._known
        ]
        self._known.update(
            {key: [dataclasses.replace(one, logps=None) for one in group] for key, group in groups.items()}
        )
        # One write a call, so that lines of processes that share the folder do not mix; a torn tail is ended first.
        with self.path.open("ab") as file:
            start = b"" if _ends_whole(self.path) else b"\n"
            file.write(start + "".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        if file.tell() == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _read(path: Path) -> dict[str, list[Completion]]:
    known: dict[str, list[Completion]] = {}
    if not path.exists():
        return known
    for line in path.read_bytes().split(b"\n"):
        try:
            key, group = json.loads(line)
            known[key] = [Completion(tuple(ids), text, None, truncated) for ids, text, truncated in group]
        except (ValueError, TypeError):
            if line.strip():
                logger.warning("%s: left out a line that is no cached reply", path)
    return known


def _prompt_digest(prompt: EncodedPrompt) -> str:
    digest = hashlib.sha256(prompt.text.encode("utf-8", "surrogatepass"))
    digest.update(prompt.input_ids_P.numpy().tobytes())
    digest.update(prompt.position_ids_3P.numpy().tobytes())
    digest.update((prompt.frames.digest if prompt.frames is not None else "no frames").encode())
    return digest.hexdigest()


def _key(shared: list[Any], place: int, digest: str) -> str:
    return hashlib.sha256(json.dumps([shared, place, digest], sort_keys=True).encode()).hexdigest()[:32]
