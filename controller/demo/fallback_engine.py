"""A stand-in engine of ours, for machines without real ones and for tests that want misbehaviour on command.

It says what it is in every completion. Standard library only, and no `http.server`: that looks its own
host name up when it binds, which takes seconds where no name server answers, and costs three times the
start-up. Run as a file.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time

TEXT = "This is podvisor's fallback engine, not a language model."
REQUEST_LIMIT = 64 * 1024
REQUEST_TIMEOUT_SEC = 5.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--load-sec", type=float, default=0.0, help="answer 503 for so long after the start")
    parser.add_argument("--rpc", metavar="HOST:PORT", help="a peer that each completion asks first")
    parser.add_argument("--worker", action="store_true", help="fork a child in a session of its own")
    parser.add_argument("--grandchild-holds-port", action="store_true", help="that child keeps the listening port")
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--fail-at-start", action="store_true", help="exit at once, with --exit-code or 1")
    parser.add_argument("--exit-code", type=int, help="exit with this code on SIGTERM")
    return parser.parse_args()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.listen(128)
    return listening


def _start_worker(listening: socket.socket, holds_port: bool) -> None:
    """A grandchild in a session of its own, as a daemon makes itself: no group and no parent leads to it any more."""
    child = os.fork()
    if child != 0:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    if not holds_port:
        listening.close()
    print(f"worker {os.getpid()}", flush=True)
    while True:
        signal.pause()


def _read_request(connection: socket.socket) -> tuple[str, str, bytes]:
    """Method, path and body. Raises ValueError on anything that is not a small HTTP request."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(4096)
        if not chunk or len(data) > REQUEST_LIMIT:
            raise ValueError("no HTTP request")
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    first, *headers = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    lengths = [header.partition(":")[2] for header in headers if header.lower().startswith("content-length:")]
    length = int(lengths[0]) if lengths else 0
    if length > REQUEST_LIMIT:
        raise ValueError("body too large")
    while len(body) < length and (chunk := connection.recv(4096)):
        body += chunk
    return method, path.partition("?")[0], body


def _send(connection: socket.socket, status: str, answer: object) -> None:
    body = json.dumps(answer).encode()
    headers = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close")
    connection.sendall("\r\n".join((f"HTTP/1.1 {status}", *headers, "", "")).encode() + body)


class Engine:
    def __init__(self, ready_at: float, peer: str | None) -> None:
        self._ready_at = ready_at
        self._peer = peer
        self._answered = 0
        self._ballast: list[bytearray] = []

    def answer(self, method: str, path: str, body: bytes) -> tuple[str, object]:
        if time.monotonic() < self._ready_at:
            return "503 Service Unavailable", {"error": {"message": "loading", "code": 503}}
        if (method, path) == ("GET", "/health"):
            return "200 OK", {"status": "ok"}
        if (method, path) == ("GET", "/v1/models"):
            return "200 OK", {"object": "list", "data": [{"id": "fallback", "object": "model"}]}
        if (method, path) == ("POST", "/v1/completions"):
            return self._complete(body)
        if (method, path) == ("POST", "/allocate"):
            return self._allocate(body)
        return "404 Not Found", {"error": {"message": f"no {method} {path} here", "code": 404}}

    def _complete(self, body: bytes) -> tuple[str, object]:
        if self._peer is not None:
            self._ask_peer(self._peer)
        limit = json.loads(body or b"{}").get("max_tokens", 16)
        self._answered += 1
        words = TEXT.split()[:limit]
        choice = {"index": 0, "text": " ".join(words), "finish_reason": "stop"}
        usage = {"completion_tokens": len(words)}
        return "200 OK", {"id": f"fallback-{self._answered}", "model": "fallback", "choices": [choice], "usage": usage}

    def _allocate(self, body: bytes) -> tuple[str, object]:
        """Take so many bytes of memory and keep them, for who wants to see it killed for that."""
        self._ballast.append(bytearray(b"x") * json.loads(body)["bytes"])
        return "200 OK", {"bytes": sum(map(len, self._ballast))}

    def _ask_peer(self, peer: str) -> None:
        """Like a real engine whose RPC peer is gone.

        /health stays good, and the next request kills it.
        """
        host, _, port = peer.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=REQUEST_TIMEOUT_SEC):
                return
        except OSError as error:
            print(f"cannot reach the RPC peer {peer}: {error}", flush=True)
            os.abort()


def main() -> None:
    arguments = _arguments()
    if arguments.fail_at_start:
        sys.exit("told to fail at the start" if arguments.exit_code is None else arguments.exit_code)
    if arguments.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif arguments.exit_code is not None:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(arguments.exit_code))
    listening = _listen(arguments.host, arguments.port)
    if arguments.worker or arguments.grandchild_holds_port:
        _start_worker(listening, arguments.grandchild_holds_port)
    engine = Engine(time.monotonic() + arguments.load_sec, arguments.rpc)
    print(f"listening on {arguments.host}:{arguments.port}", flush=True)
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(REQUEST_TIMEOUT_SEC)
            try:
                _send(connection, *engine.answer(*_read_request(connection)))
            except (OSError, ValueError) as error:
                print(f"bad request: {error}", flush=True)


if __name__ == "__main__":
    main()
