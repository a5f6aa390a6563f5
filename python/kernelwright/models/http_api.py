"""Answers `llm_http`: one HTTP request, its body streamed as it comes. What is asked and what the answer means is
decided in src/llm.

Here because a static program cannot bring TLS along: name resolution and the certificates are the machine's own. The
key is read from the environment here and nowhere else, and whatever a server says of it is struck out.
"""

from __future__ import annotations

import codecs
import http.client
import os
import socket
import ssl
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from ..errors import missing_error, summary, user_error

if TYPE_CHECKING:
    from ..worker import Stream

_CHUNK = 1 << 14
# More than any error page needs.
_MOST_ERROR_BYTES = 1 << 16


def stream(params: dict[str, Any], stream: Stream) -> dict[str, Any]:
    """Events: {"status", "headers"} and then {"data": text}; the result says whether the body came to its end."""
    key = os.environ.get(params.get("key_variable") or "", "").strip()
    try:
        return _exchange(params, stream, key)
    except _Failure as failure:
        raise missing_error(failure.code, _without(key, failure.message), hint=failure.hint) from None


class _Failure(Exception):
    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint


def _without(key: str, text: str) -> str:
    return text.replace(key, "***") if len(key) >= 4 else text


def _exchange(params: dict[str, Any], stream: Stream, key: str) -> dict[str, Any]:
    url = urllib.parse.urlsplit(params["url"])
    if url.scheme not in ("http", "https") or not url.hostname:
        raise user_error("bad-url", f"{params['url']} is no http:// or https:// address.")
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/json",
        "User-Agent": "kernelwright",
    }
    if key:
        headers["Authorization"] = f"Bearer {key}"
    where = f"{url.hostname}:{url.port or (443 if url.scheme == 'https' else 80)}"
    connection = _connect(url, params["connect_seconds"], where)
    try:
        connection.sock.settimeout(params["silence_seconds"])
        path = connection.kw_path + (f"?{url.query}" if url.query else "")
        body = params.get("body")
        try:
            connection.request(
                params["method"], path, body=body.encode() if body is not None else None, headers=headers
            )
            response = connection.getresponse()
        except TimeoutError:
            raise _Failure(
                "server-silent",
                f"The server at {where} accepted the request and gave no answer within {params['silence_seconds']:g} s.",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise _Failure(
                "broken-answer", f"The server at {where} closed the connection without an answer ({summary(error)})."
            ) from None
        stream.send(
            {"status": response.status, "headers": {name.lower(): value for name, value in response.getheaders()}}
        )
        return _read(response, stream, key, where, params["silence_seconds"])
    finally:
        connection.close()


def _connect(url: urllib.parse.SplitResult, seconds: float, where: str) -> Any:
    proxy = None if urllib.request.proxy_bypass(url.hostname or "") else urllib.request.getproxies().get(url.scheme)
    connection: http.client.HTTPConnection
    target = url.path or "/"
    if proxy:
        via = urllib.parse.urlsplit(proxy if "//" in proxy else "http://" + proxy)
        host, port = via.hostname or "", via.port or 80
    else:
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    if url.scheme == "https":
        connection = http.client.HTTPSConnection(host, port, timeout=seconds, context=ssl.create_default_context())
        if proxy:
            connection.set_tunnel(url.hostname or "", url.port or 443)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
        if proxy:
            target = f"http://{url.netloc}{target}"
    connection.kw_path = target  # type: ignore[attr-defined]
    try:
        connection.connect()
    except ssl.SSLError as error:
        raise _Failure(
            "tls",
            f"No secure connection to {where}: {summary(error)}.",
            "An http:// server was perhaps named as https://.",
        ) from None
    except socket.gaierror as error:
        raise _Failure(
            "no-server",
            f"The host name {host} cannot be resolved ({error.strerror}).",
            "Check the URL and the network.",
        ) from None
    except TimeoutError:
        raise _Failure(
            "no-server",
            f"Nothing at {where} took the connection within {seconds:g} s.",
            "Check the URL, and whether a firewall stands between.",
        ) from None
    except OSError as error:
        raise _Failure(
            "no-server",
            f"There is no server at {where} ({error.strerror or summary(error)}).",
            "Start it, or correct the URL.",
        ) from None
    return connection


def _read(response: http.client.HTTPResponse, stream: Stream, key: str, where: str, silence: float) -> dict[str, Any]:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    total, kept = 0, ""
    while True:
        if stream.cancelled():
            return {"complete": False, "cancelled": True}
        try:
            chunk = response.read1(_CHUNK)
        except TimeoutError:
            raise _Failure(
                "server-silent", f"The server at {where} sent part of an answer and then nothing for {silence:g} s."
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise _Failure(
                "broken-answer", f"The server at {where} broke off in the middle of its answer ({summary(error)})."
            ) from None
        if not chunk:
            break
        total += len(chunk)
        if response.status != 200 and total > _MOST_ERROR_BYTES:
            break
        # A key that is cut in two by the chunks is held back until the next.
        kept = _without(key, kept + decode(chunk))
        if ready := _free_of_key(kept, key):
            stream.send({"data": kept[:ready]})
            kept = kept[ready:]
    kept = _without(key, kept + decode(b"", final=True))
    if kept:
        stream.send({"data": kept})
    if response.length:
        raise _Failure("broken-answer", f"The server at {where} announced {response.length} bytes more than it sent.")
    return {"complete": True, "cancelled": False}


def _free_of_key(text: str, key: str) -> int:
    """How much of the text is before what may be the beginning of the key."""
    for start in range(max(0, len(text) - len(key) + 1), len(text)):
        if key.startswith(text[start:]):
            return start
    return len(text)
