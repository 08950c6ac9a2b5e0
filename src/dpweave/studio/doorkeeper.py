"""Who may ask the studio: the browser that opened its link, and pages of the studio itself in it.

The link holds a token that works once. It is traded for a cookie that scripts cannot read and that no other site's
page makes the browser send. Requests that name another host (DNS rebinding) or come from another origin are refused.
"""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NOBODY = "This page belongs to the browser in which its link was opened. Start dpweave studio again for a new link."


class Doorkeeper:
    """Knows the token and the cookie of one studio."""

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        self._secret = secrets.token_urlsafe(32)
        self._cookie = f"dpweave-{port}"
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._is_used = False
        self._lock = Lock()

    def refusal(self, headers: Mapping[str, str], *, changes: bool) -> str | None:
        """Say why a request has no business here, whoever sends it; None if it may have."""
        if headers.get("Host", "") not in self._hosts:
            return "The studio answers under 127.0.0.1 and localhost alone."
        origin = headers.get("Origin")
        if origin is None and changes:
            return "A request that changes something must say where it comes from."
        if origin is not None and origin not in [f"http://{host}" for host in self._hosts]:
            return "Pages from elsewhere have no business here."
        if changes and headers.get("Content-Type", "").partition(";")[0] != "application/json":
            return "Only JSON is taken."
        return None

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether a request brings the cookie, from a page of the studio or from nowhere."""
        if headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            return False
        try:
            found = SimpleCookie(headers.get("Cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self._secret.encode())

    def admit(self, token: str) -> str | None:
        """Trade the token for a cookie, once; None if it is not the token or was used."""
        with self._lock:
            if self._is_used or not secrets.compare_digest(token.encode(), self.token.encode()):
                return None
            self._is_used = True
        return f"{self._cookie}={self._secret}; Path=/; HttpOnly; SameSite=Strict"
