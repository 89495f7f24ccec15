"""A client of any OpenAI-compatible chat endpoint (OpenAI, Azure, a local vLLM server), for many questions at once.

Questions run concurrently under a limit; a request is repeated with growing pauses while the endpoint is busy or away,
up to a deadline; replies are kept on disk under the hash of what was asked. A reply that cannot be had is None.
The key comes from an environment variable and appears in no log, cache or representation.
"""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

Message = dict[str, str]
T = TypeVar("T")

_RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


class ChatClient:
    """Asks a chat endpoint, many questions at a time.

    Args:
        base_url: up to and including `/v1` (OpenAI, vLLM), or an Azure resource's address with `azure_deployment`.
        model: the name of the model the endpoint serves.
        api_key_env: the environment variable that holds the key; None for an endpoint that wants none.
        concurrency: questions in flight at once.
        request_seconds: the longest wait for one request; `deadline_seconds` bounds a question with all its repeats.
        retries: repeats after the first try.
        cache_dir: where replies are kept; None keeps none.

    Raises ValueError for an unset key variable, an address that is none, or impossible limits.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key_env: str | None = "OPENAI_API_KEY",
        azure_deployment: str | None = None,
        azure_api_version: str = "2024-10-21",
        concurrency: int = 8,
        request_seconds: float = 60.0,
        deadline_seconds: float = 300.0,
        retries: int = 6,
        max_tokens: int = 256,
        temperature: float = 0.0,
        cache_dir: str | Path | None = None,
    ) -> None:
        address = urlsplit(base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"the judge's base_url must be an http(s) address, not {base_url!r}")
        if address.username or address.password or address.query:
            raise ValueError("the judge's base_url must hold no credentials and no query: give the key in a variable")
        if not model:
            raise ValueError("the judge's model is not set")
        if concurrency < 1 or retries < 0 or request_seconds <= 0 or deadline_seconds <= 0:
            raise ValueError(
                "a judge needs concurrency >= 1, retries >= 0, request_seconds > 0 and deadline_seconds > 0"
            )
        self._key = ""
        if api_key_env is not None:
            self._key = os.environ.get(api_key_env, "")
            if not self._key:
                raise ValueError(
                    f"the judge's key is not set: export {api_key_env}, or set api_key_env to null for a server that "
                    "wants none"
                )
        root = base_url.rstrip("/")
        self._azure = azure_deployment is not None
        self._url = f"{root}/chat/completions"
        if self._azure:
            self._url = f"{root}/openai/deployments/{azure_deployment}/chat/completions?api-version={azure_api_version}"
        self._host = address.hostname
        self._parameters = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self._concurrency = concurrency
        self._request_seconds = request_seconds
        self._deadline_seconds = deadline_seconds
        self._retries = retries
        self._cache_dir = Path(cache_dir) if cache_dir is not None else None
        self.counts: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"ChatClient({self._host!r}, {self._parameters['model']!r})"

    def ask_many(
        self, questions: Sequence[Sequence[Message]], accept: Callable[[str], bool] = bool
    ) -> list[str | None]:
        """The reply to each conversation, in order; None where none that `accept` takes could be had in time.

        Equal conversations are asked once. May be called from any thread, inside a running event loop too.
        """
        if not questions:
            return []
        return run_coroutine(self._ask_all(questions, accept))

    async def _ask_all(self, questions: Sequence[Sequence[Message]], accept: Callable[[str], bool]) -> list[str | None]:
        import httpx

        keys = [self._content_key(question) for question in questions]
        distinct = dict(zip(keys, questions, strict=True))
        gate = asyncio.Semaphore(self._concurrency)
        limits = httpx.Limits(max_connections=self._concurrency)
        async with httpx.AsyncClient(timeout=self._request_seconds, limits=limits) as http:
            replies = await asyncio.gather(*(self._ask(http, gate, key, q, accept) for key, q in distinct.items()))
        by_key = dict(zip(distinct, replies, strict=True))
        return [by_key[key] for key in keys]

    async def _ask(
        self,
        http: httpx.AsyncClient,
        gate: asyncio.Semaphore,
        key: str,
        question: Sequence[Message],
        accept: Callable[[str], bool],
    ) -> str | None:
        cached = self._read_cache(key)
        if cached is not None:
            self.counts["cached"] += 1
            return cached
        async with gate:
            try:
                async with asyncio.timeout(self._deadline_seconds):
                    reply = await self._ask_until_answered(http, question, accept)
            except TimeoutError:
                logger.warning("judge at %s: no judgement within %g s", self._host, self._deadline_seconds)
                reply = None
        self.counts["answered" if reply is not None else "failed"] += 1
        if reply is not None:
            self._write_cache(key, reply)
        return reply

    async def _ask_until_answered(
        self, http: httpx.AsyncClient, question: Sequence[Message], accept: Callable[[str], bool]
    ) -> str | None:
        import httpx

        reason = ""
        for attempt in range(self._retries + 1):
            pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0**attempt)
            try:
                response = await http.post(
                    self._url, headers=self._headers(), json={**self._parameters, "messages": list(question)}
                )
            except httpx.TransportError as error:
                reason = type(error).__name__
            else:
                if response.status_code == 200:
                    text = _reply_text(response)
                    if text is not None and accept(text):
                        return text
                    reason = "a reply that says nothing usable"
                elif response.status_code in _RETRIED_STATUSES:
                    reason = f"status {response.status_code}"
                    pause = max(pause, _retry_after(response.headers.get("retry-after")))
                else:
                    logger.error("judge at %s refused the request: status %d", self._host, response.status_code)
                    return None
            if attempt < self._retries:
                self.counts["retried"] += 1
                await asyncio.sleep(pause)
        logger.warning("judge at %s: no judgement after %d tries (%s)", self._host, self._retries + 1, reason)
        return None

    def _headers(self) -> dict[str, str]:
        if not self._key:
            return {}
        return {"api-key": self._key} if self._azure else {"authorization": f"Bearer {self._key}"}

    def _content_key(self, question: Sequence[Message]) -> str:
        content = {"url": self._url, **self._parameters, "messages": list(question)}
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def _read_cache(self, key: str) -> str | None:
        if self._cache_dir is None:
            return None
        path = self._cache_path(key)
        try:
            reply = json.loads(path.read_text(encoding="utf-8"))["reply"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("ignoring the unreadable cached judgement %s: %s", path, error)
            return None
        return reply if isinstance(reply, str) else None

    def _write_cache(self, key: str, reply: str) -> None:
        if self._cache_dir is None:
            return
        path = self._cache_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.{time.monotonic_ns()}.tmp")
        partial.write_text(json.dumps({"reply": reply}, ensure_ascii=False), encoding="utf-8")
        partial.replace(path)

    def _cache_path(self, key: str) -> Path:
        assert self._cache_dir is not None
        return self._cache_dir / key[:2] / f"{key}.json"


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a thread of its own where the caller's thread already runs a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def _reply_text(response: httpx.Response) -> str | None:
    try:
        text = response.json()["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return text.strip() if isinstance(text, str) and text.strip() else None


def _retry_after(header: str | None) -> float:
    """Seconds of a Retry-After header in either of its forms; 0 for none or nonsense."""
    if not header:
        return 0.0
    if re.fullmatch(r"\d+(?:\.\d+)?", header.strip()):
        return float(header)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0
