"""Length-delimited JSON between `kw` and the worker: a 4-byte little-endian length, then that many bytes of UTF-8."""

from __future__ import annotations

import json
import math
import os
import select
import struct
import threading
from typing import Any

_LENGTH = struct.Struct("<I")


def encode(message: Any) -> bytes:
    """One framed message. NaN and the infinities travel as the strings "nan", "inf" and "-inf"."""
    try:
        text = _dump(message)
    except ValueError:
        text = _dump(_without_nonfinite(message))
    # Half a surrogate pair (an undecodable byte of a path, say) is no UTF-8 and would make the message unreadable.
    body = text.encode("utf-8", "replace")
    return _LENGTH.pack(len(body)) + body


def _dump(message: Any) -> str:
    return json.dumps(message, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, dict):
        return {key: _without_nonfinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nonfinite(item) for item in value]
    return value


class Channel:
    """Messages over a pair of file descriptors; `send` may be called from any thread."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._lock = threading.Lock()

    def receive(self) -> Any | None:
        """The next message, or None when the other side has closed. Raises ValueError on a broken frame."""
        header = self._read(_LENGTH.size)
        if not header:
            return None
        if len(header) < _LENGTH.size:
            raise ValueError("the stream ended inside a message's length")
        (length,) = _LENGTH.unpack(header)
        body = self._read(length)
        if len(body) < length:
            raise ValueError(f"the stream ended after {len(body)} of a message's {length} bytes")
        return json.loads(body)

    def is_waiting(self) -> bool:
        """Whether `receive` would find something (or the end) without waiting for it."""
        poll = select.poll()
        poll.register(self.read_fd, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, message: Any) -> None:
        data = memoryview(encode(message))
        with self._lock:
            while data:
                data = data[os.write(self.write_fd, data) :]

    def _read(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            part = os.read(self.read_fd, min(count, 1 << 20))
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)
