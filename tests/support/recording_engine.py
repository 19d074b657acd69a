"""Stands in for vLLM and SGLang where only their command line matters: a program, run with the arguments of one.

It writes down what it was started with, then meets the other ranks as the real one does: node rank 0 binds the
address that all were told and waits for everybody else before it serves HTTP. A rank of another epoch, or one that
was told another port, is never met. A rank that does not serve leaves with the one that does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def main(argv: list[str]) -> None:
    environment = dict(os.environ)
    directory = Path(environment["POD_VOLUME"], "launches")
    directory.mkdir(exist_ok=True)
    record = directory / f"{environment['EPOCH']}.json"
    record.with_suffix(".new").write_text(
        json.dumps({"argv": argv, "environment": environment, "pid": os.getpid()}), encoding="utf-8"
    )
    record.with_suffix(".new").rename(record)
    flags = {word: argv[index + 1] for index, word in enumerate(argv[:-1]) if word.startswith("--")}
    rank = _rank(flags)
    if rank > 0 and "--dist-init-addr" in flags:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # SGLang's followers wait for their leader's word
    held = _meet(rank, flags, environment["EPOCH"])
    if "--headless" in argv or (rank > 0 and "--dist-init-addr" in flags):
        held[0].recv(1)  # until the leader's end
        sys.exit(0)
    ThreadingHTTPServer((flags["--host"], int(flags["--port"])), _Health).serve_forever()


def _rank(flags: dict[str, str]) -> int:
    told = ("--node-rank", "--data-parallel-rank", "--data-parallel-start-rank")
    return next((int(flags[flag]) for flag in told if flag in flags), 0)


def _meet(rank: int, flags: dict[str, str], epoch: str) -> list[socket.socket]:
    host, port = _meeting(flags)
    if rank == 0:
        server = socket.create_server((host, port))
        expected = int(flags.get("--nnodes", "2")) - 1
        met = [server.accept()[0] for _ in range(expected)]
        for peer in met:
            assert peer.recv(10).decode() == epoch, "a rank of another epoch"
            peer.sendall(b"+")
        return [server, *met]
    while True:
        try:
            peer = socket.create_connection((host, port))
        except OSError:
            time.sleep(0.02)
            continue
        peer.sendall(epoch.encode())
        assert peer.recv(1) == b"+"
        return [peer]


def _meeting(flags: dict[str, str]) -> tuple[str, int]:
    if "--dist-init-addr" in flags:
        host, _, port = flags["--dist-init-addr"].rpartition(":")
        return host, int(port)
    if "--master-port" in flags:
        return flags["--master-addr"], int(flags["--master-port"])
    return flags["--data-parallel-address"], int(flags["--data-parallel-rpc-port"])


class _Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *words: object) -> None:
        """Nobody reads it."""


if __name__ == "__main__":
    main(sys.argv[1:])
