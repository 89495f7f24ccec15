"""A local chat endpoint that misbehaves on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[int, dict[str, Any]], Any]


class ChatServer:
    """Serves `/v1/chat/completions` on 127.0.0.1; `script(n, body)` decides the n-th reply (from 0).

    It returns a text to reply with, `(status, headers, body)`, "drop" to close the connection, or ("sleep", seconds).
    """

    def __init__(self) -> None:
        self.script: Script = lambda n, body: "yes"
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.most_in_flight = 0
        self._in_flight = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer._serve(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        with self._lock:
            number = len(self.requests)
            self.requests.append(body)
            self.headers.append({key.lower(): value for key, value in handler.headers.items()})
            self.paths.append(handler.path)
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            self._reply(handler, self.script(number, body))
        finally:
            with self._lock:
                self._in_flight -= 1

    @staticmethod
    def _reply(handler: BaseHTTPRequestHandler, action: Any) -> None:
        if action == "drop":
            handler.connection.close()
            return
        status, headers, text = 200, {}, ""
        if isinstance(action, tuple) and action[0] == "sleep":
            time.sleep(action[1])
            action = "yes"
        if isinstance(action, str):
            text = json.dumps({"choices": [{"message": {"role": "assistant", "content": action}}]})
        else:
            status, headers, text = action
        payload = text.encode()
        try:
            handler.send_response(status)
            for key, value in headers.items():
                handler.send_header(key, value)
            handler.send_header("content-length", str(len(payload)))
            handler.end_headers()
            handler.wfile.write(payload)
        except (BrokenPipeError, ConnectionResetError):
            return
