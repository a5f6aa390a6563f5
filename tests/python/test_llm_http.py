"""The process that speaks HTTP for the models: bytes as they come, failures by name, and the key nowhere but in the
request.
"""

import os
import socket
import subprocess
import sys
import threading

import pytest

from kernelwright import protocol


class Worker:
    def __init__(self, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kernelwright.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), no_proxy="*", **environment),
        )
        self.channel = protocol.Channel(self.process.stdout.fileno(), self.process.stdin.fileno())

    def stream(self, method, params, on_event=lambda worker, event: None):
        """(all events, the last message)."""
        self.channel.send({"id": 1, "method": method, "params": params})
        events = []
        while "event" in (message := self.channel.receive()):
            events.append(message["event"])
            on_event(self, message["event"])
        return events, message

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=10)
        return self.process.stderr.read().decode()


@pytest.fixture
def server():
    """`server(bytes, …)`: an address that answers each connection with the next script (bytes, or a function of the
    socket).
    """
    listening = socket.create_server(("127.0.0.1", 0))
    requests = []

    def serve(scripts):
        for script in scripts:
            connection, _ = listening.accept()
            with connection:
                data = b""
                while b"\r\n\r\n" not in data:
                    data += connection.recv(65536)
                head, _, body = data.partition(b"\r\n\r\n")
                length = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.split(b"\r\n")
                        if line.lower().startswith(b"content-length")
                    ),
                    0,
                )
                while len(body) < length:
                    body += connection.recv(65536)
                requests.append((head.decode(), body.decode()))
                script(connection) if callable(script) else connection.sendall(script)

    def start(*scripts):
        threading.Thread(target=serve, args=(scripts,), daemon=True).start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}/v1/x"

    start.requests = requests
    yield start
    listening.close()


def params(url, **more):
    return {
        "url": url,
        "method": "POST",
        "body": "{}",
        "key_variable": "KW_TEST_KEY",
        "connect_seconds": 5,
        "silence_seconds": 2,
        **more,
    }


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_streams_bytes_as_text(server):
    pieces = [b"data: caf\xc3", b"\xa9\n\n"]
    url = server(CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n")
    worker = Worker(KW_TEST_KEY="secret-key-123")
    events, last = worker.stream("llm_http", params(url))
    worker.close()
    assert events[0]["status"] == 200 and events[0]["headers"]["content-type"] == "text/event-stream"
    assert "".join(event["data"] for event in events[1:]) == "data: café\n\n"
    assert last["result"] == {"complete": True, "cancelled": False}
    assert "Authorization: Bearer secret-key-123" in server.requests[0][0]


def test_a_key_in_the_answer_is_struck_out_wherever_it_is_cut(server):
    key = "secret-key-123"
    text = f'{{"error": "no such key {key}, I said {key}"}}'.encode()

    def drip(connection):
        connection.sendall(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(text))
        for at in range(0, len(text), 3):
            connection.sendall(text[at : at + 3])

    worker = Worker(KW_TEST_KEY=key)
    events, last = worker.stream("llm_http", params(server(drip)))
    log = worker.close()
    said = "".join(event["data"] for event in events[1:])
    assert events[0]["status"] == 401
    assert said == '{"error": "no such key ***, I said ***"}'
    assert key not in repr(last) + log


def test_no_key_no_header(server):
    worker = Worker()
    worker.stream("llm_http", params(server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")))
    worker.close()
    assert "Authorization" not in server.requests[0][0]


def hang(connection):
    connection.recv(1)


@pytest.mark.parametrize(
    "script, code",
    [
        (hang, "server-silent"),
        (lambda connection: (connection.sendall(CHUNKED + b"5\r\ndata:\r\n"), hang(connection)), "server-silent"),
        (CHUNKED + b"5\r\ndata:\r\n", "broken-answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "broken-answer"),
        (b"", "broken-answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "broken-answer"),
    ],
    ids=["hangs", "hangs midway", "half a stream", "half a body", "closes", "no HTTP"],
)
def test_broken_servers_have_names(server, script, code):
    worker = Worker()
    _, last = worker.stream("llm_http", params(server(script), silence_seconds=0.5))
    assert last["error"]["code"] == code, last
    assert "Traceback" not in last["error"]["message"]
    # The process is good for the next request.
    assert "result" in worker.stream("llm_http", params(server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")))[1]
    worker.close()


def test_nobody_there():
    worker = Worker()
    for url in ("http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"):
        assert worker.stream("llm_http", params(url))[1]["error"]["code"] == "no-server"
    assert worker.stream("llm_http", params("ftp://127.0.0.1/"))[1]["error"]["code"] == "bad-url"
    worker.close()


def test_https_to_a_plain_server_is_told():
    worker = Worker()
    sock = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=lambda: sock.accept()[0].sendall(b"HTTP/1.1 400 Bad\r\n\r\n"), daemon=True).start()
    url = f"https://127.0.0.1:{sock.getsockname()[1]}/v1"
    assert worker.stream("llm_http", params(url))[1]["error"]["code"] in ("tls", "no-server")
    worker.close()
    sock.close()


def test_a_request_can_be_cancelled_and_the_next_one_works(server):
    def endless(connection):
        connection.sendall(CHUNKED)
        try:
            while True:
                connection.sendall(b"6\r\nagain \r\n")
        except OSError:
            pass

    sent = []

    def cancel_once(worker, event):
        if "data" in event and not sent:
            sent.append(worker.channel.send({"cancel": 1}))

    worker = Worker()
    _, last = worker.stream("llm_http", params(server(endless)), cancel_once)
    assert last["result"]["cancelled"] is True
    assert "result" in worker.stream("llm_http", params(server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")))[1]
    worker.close()


def test_needs_no_pytorch():
    """Starting it costs tens of milliseconds, not seconds."""
    worker = Worker()
    events, last = worker.stream("source_facts", {"source": "import torch\nclass ModelNew: pass\n"})
    assert last["result"]["classes"][0]["name"] == "ModelNew"
    with open(f"/proc/{worker.process.pid}/maps") as maps:
        assert "libtorch" not in maps.read()
    worker.close()
