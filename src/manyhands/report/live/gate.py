"""Gate: who may ask this server, and what a browser may do with its answers."""

import ipaddress
import secrets
from collections.abc import MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from manyhands.report.live.values import encode

# The page runs its own scripts and asks its own host, nothing else. Plotly sets styles in the document and makes
# pictures for download out of blobs.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host's ports."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def answer(value: Any, status: int = 200, **headers: str) -> Response:
    """A value, or the bytes of one, as JSON; no browser keeps it, since runs go on."""
    content = value if isinstance(value, bytes) else encode(value)
    return Response(content, status, {"Cache-Control": "no-store", **headers}, "application/json")


class AccessControl:
    """Stands before an application: GET and HEAD alone, and only for those who may.

    With a token (bound where others can reach it) every request must carry it, in the address or as the cookie that
    the first page with the token sets. Without one (bound to loopback) the Host must be a name of loopback: a web
    site that points its own name at 127.0.0.1 must not read runs through a visitor's browser.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, token: str | None) -> None:
        self.app, self.token = app, token
        self.hosts = {*LOOPBACK, host}
        self.cookie = f"manyhands-{port}"  # cookies know no ports: two servers of one host need two names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[-1]
        refusal = self._refusal(scope["method"], headers, given)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._mark(message, with_cookie=refusal is None and bool(given))
            await send(message)

        await (refusal or self.app)(scope, receive, guarded)

    def _refusal(self, method: str, headers: Headers, given: str) -> Response | None:
        if method not in ("GET", "HEAD"):
            return answer({"error": f"{method} is not allowed: this page only reads"}, 405, Allow="GET, HEAD")
        if self.token is None:
            host = _name(headers.get("host", ""))
            allowed = host in self.hosts
            return None if allowed else answer({"error": f"this server is localhost, not {host[:100]!r}"}, 421)
        if self._is_token(given) or self._is_token(self._cookie(headers)):
            return None
        return answer({"error": "a token is needed: open the address that `manyhands serve` printed"}, 401)

    def _is_token(self, given: str) -> bool:
        assert self.token is not None
        return secrets.compare_digest(given.encode(), self.token.encode())

    def _cookie(self, headers: Headers) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return found.value if found else ""

    def _mark(self, message: MutableMapping[str, Any], with_cookie: bool) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in HEADERS.items():
            headers[name] = value
        if with_cookie and self.token is not None:
            headers.append("Set-Cookie", f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict")


def _name(host: str) -> str:
    """The name in a Host header: without the port, and an address of IPv6 without its brackets."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal():
        name = host
    return name.lower().removeprefix("[").removesuffix("]")
