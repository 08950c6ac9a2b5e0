"""The server of the studio: this machine alone, one person, nothing but its own page and plain values."""

from __future__ import annotations

import json
import shutil
import traceback
from contextlib import contextmanager
from functools import cache
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from dpweave.errors import DpweaveError, UsageError
from dpweave.studio.doorkeeper import NOBODY, Doorkeeper
from dpweave.studio.workbench import Workbench, methods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Method = Callable[[Mapping[str, Any]], dict[str, Any]]

HERE = "127.0.0.1"
LONGEST = 1 << 20
"""Bytes of a request that are read."""
PAGES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/studio.css": ("studio.css", "text/css; charset=utf-8"),
    "/studio.js": ("studio.js", "text/javascript; charset=utf-8"),
    "/drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'none'"
"""Of a report, which is a page without scripts."""
WORDS = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>dpweave studio</title></head>
<body><main><h1>dpweave studio</h1><p>{text}</p></main></body></html>
"""
"""A page that says one thing."""


class Studio(ThreadingHTTPServer):
    """Listens on the loopback address."""

    daemon_threads = True

    def __init__(self, bench: Workbench, *, port: int = 0) -> None:
        super().__init__((HERE, port), Handler)
        self.doorkeeper = Doorkeeper(self.server_port)
        self.bench = bench
        self.methods = methods(bench)

    def handle_error(self, *_: object) -> None:
        """Say nothing: a browser that has left is no trouble, and a trace might hold values."""

    @property
    def link(self) -> str:
        """What to open in a browser; it works once."""
        return f"http://{HERE}:{self.server_port}/?token={self.doorkeeper.token}"


def _answer(method: Method, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Do what was asked. An error of our own tree is a sentence; of any other no word is said but where it is.

    What is refused in a sentence is an answer too: a code of failure would be an error in the browser's console.
    """
    try:
        return 200, method(body)
    except DpweaveError as error:
        return 200, {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - its message might hold what nobody may see
        at = traceback.extract_tb(error.__traceback__)[-1]
        return 500, {
            "error": f"A bug: {type(error).__name__} at {Path(at.filename).name}:{at.lineno}. Please report it."
        }


@contextmanager
def studio(
    source: str, plan: Path, *, ledger: Path, shown_source: str | None = None, port: int = 0
) -> Iterator[Studio]:
    """Serve the page until the block ends."""
    bench = Workbench(source, plan, ledger=ledger, shown_source=shown_source or source)
    try:
        server = Studio(bench, port=port)
    except OSError as error:
        raise UsageError(f"nothing can listen on port {port} here: {error.strerror}; give another --port") from None
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        bench.close()


@cache
def _asset(name: str) -> bytes:
    return files("dpweave.studio").joinpath(name).read_bytes()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Studio
    protocol_version = "HTTP/1.1"
    server_version = "dpweave"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        """Pages and files."""
        url = urlsplit(self.path)
        refusal = self.server.doorkeeper.refusal(self._said, changes=False)
        if refusal is not None:
            return self._words(403, refusal)
        token = parse_qs(url.query).get("token", [""])[0]
        cookie = self.server.doorkeeper.admit(token) if url.path == "/" and token else None
        if cookie is None and not self.server.doorkeeper.knows(self._said):
            return self._words(403, NOBODY)
        if url.path in PAGES:
            name, kind = PAGES[url.path]
            return self._send(200, _asset(name), kind, {"Set-Cookie": cookie} if cookie else {})
        if url.path.startswith("/files/"):
            return self._file(url.path.removeprefix("/files/"))
        return self._words(404, "There is no such page.")

    def do_POST(self) -> None:
        """What the page asks for or changes."""
        body = self._body()
        refusal = self.server.doorkeeper.refusal(self._said, changes=True)
        if refusal is not None:
            return self._json(403, {"error": refusal})
        if not self.server.doorkeeper.knows(self._said):
            return self._json(403, {"error": NOBODY})
        method = self.server.methods.get(urlsplit(self.path).path.removeprefix("/api/"))
        if method is None or body is None:
            return self._json(404, {"error": "The studio has nothing of that name."})
        return self._json(*_answer(method, body))

    def _body(self) -> dict[str, Any] | None:
        """Read what was sent, if it is JSON and not too long."""
        try:
            length = int(self.headers.get("Content-Length", "0"))
        except ValueError:
            length = -1
        if not 0 <= length <= LONGEST:
            self.close_connection = True
            return None
        try:
            found = json.loads(self.rfile.read(length) or b"{}")
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def _file(self, kind: str) -> None:
        try:
            path, content = self.server.bench.file(kind)
        except DpweaveError as error:
            return self._words(404, str(error))
        if content is not None:
            return self._send(200, content, "application/json", _attached(path.name))
        if not path.is_file():
            return self._words(404, f"{path.name} is a folder of files; you find it beside the plan.")
        if kind == "report":
            headers = {"Content-Security-Policy": REPORT_POLICY}
            return self._send(200, path.read_bytes(), "text/html; charset=utf-8", headers)
        self._head(200, "application/octet-stream", path.stat().st_size, _attached(path.name))
        with path.open("rb") as file:
            shutil.copyfileobj(file, self.wfile)
        return None

    @property
    def _said(self) -> dict[str, str]:
        return {name.title(): value for name, value in self.headers.items()}

    def _json(self, code: int, content: object) -> None:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, default=str)
        self._send(code, text.encode("utf-8", "replace"), "application/json; charset=utf-8", {})

    def _words(self, code: int, text: str) -> None:
        page = WORDS.format(text=escape(text)).encode("utf-8", "replace")
        self._send(code, page, "text/html; charset=utf-8", {})

    def _send(self, code: int, content: bytes, kind: str, headers: dict[str, str]) -> None:
        self._head(code, kind, len(content), headers)
        self.wfile.write(content)

    def _head(self, code: int, kind: str, length: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        usual = {
            "Content-Type": kind,
            "Content-Length": str(length),
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        for name, value in (usual | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing: addresses hold a token."""


def _attached(name: str) -> dict[str, str]:
    plain = "".join(c if c.isascii() and (c.isalnum() or c in ".-_") else "_" for c in name)
    return {"Content-Disposition": f'attachment; filename="{plain}"'}
