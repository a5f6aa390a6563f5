"""A scripted OpenAI-compatible server: each completion request gets the next answer of the script, the last one again
and again.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable

Answer = str | dict | Callable[["Handler", dict], None]


def late(seconds: float, text: str) -> Callable[[Handler, dict], None]:
    """An answer that takes its time."""

    def answer(handler: Handler, body: dict) -> None:
        time.sleep(seconds)
        handler.begin_stream()
        handler.event(text, "stop")

    return answer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *arguments: Any) -> None:
        pass

    def page(self, status: int, body: str, content_type: str = "application/json", **headers: str) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in {"Content-Type": content_type, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def event(self, content: str, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
        self.wfile.write(b"data: " + json.dumps({"model": "scripted", "choices": [choice]}).encode() + b"\n\n")
        self.wfile.flush()

    def do_GET(self) -> None:
        if self.path.endswith("/models") and self.server.lists_models:
            self.page(200, json.dumps({"data": [{"id": "scripted", "max_model_len": self.server.context}]}))
        else:
            self.page(404, '{"error": {"message": "no such page"}}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = self.server.next_answer(body, self.headers)
        if callable(answer):
            return answer(self, body)
        if isinstance(answer, dict):
            return self.page(
                answer["status"],
                answer.get("body", "{}"),
                answer.get("type", "application/json"),
                **answer.get("headers", {}),
            )
        self.begin_stream()
        for at in range(0, len(answer), 40):
            self.event(answer[at : at + 40])
            if self.server.pause:
                time.sleep(self.server.pause)
        self.event("", "stop")
        usage = {"prompt_tokens": 100, "completion_tokens": len(answer) // 4}
        self.wfile.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n")
        self.close_connection = True


class ModelServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, answers: list[Answer], *, context: int = 32768, lists_models: bool = True, pause: float = 0
    ) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.context, self.lists_models, self.pause = list(answers), context, lists_models, pause
        self.requests: list[dict] = []
        self.keys: list[str | None] = []
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away

    def next_answer(self, body: dict, headers: Any) -> Answer:
        with self._lock:
            self.requests.append(body)
            self.keys.append(headers.get("Authorization"))
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.shutdown()
        self.server_close()


def fenced(code: str) -> str:
    return f"Here is the kernel.\n\n```python\n{code}```\nIt is fast.\n"


# For command_line.GOOD on the CPU: softmax(tanh(x) * weight) along rows.
RIGHT = r'''
CPP_SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void tanh_softmax(const float* x, const float* weight, float* out, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * columns;
    float* to = out + row * columns;
    float top = -INFINITY;
    bool undefined = false;
    for (int64_t i = 0; i < columns; ++i) {
      to[i] = std::tanh(in[i]) * weight[i];
      undefined |= to[i] != to[i];
      top = to[i] > top ? to[i] : top;
    }
    double total = 0;
    for (int64_t i = 0; i < columns; ++i) {
      to[i] = undefined ? NAN : std::exp(to[i] - top);
      total += to[i];
    }
    for (int64_t i = 0; i < columns; ++i) to[i] = static_cast<float>(to[i] / total);
  }
}
"""

kernels = compile_cpp(CPP_SOURCE)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        kernels.tanh_softmax(pointer(x), pointer(self.weight), pointer(out), integer(x.shape[0]), integer(x.shape[1]))
        return out
'''
WRONG = RIGHT.replace("std::tanh(in[i]) * weight[i]", "std::tanh(in[i]) * weight[i] * 1.01f")
