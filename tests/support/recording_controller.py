"""A controller that writes down what it is told and decides nothing, over real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from tests.support.real_processes import TIMEOUT_SEC


class RecordingController:
    def __init__(self) -> None:
        self.url = ""
        self.faults: list[dict[str, Any]] = []
        self.statuses: list[dict[str, str]] = []
        """As heartbeats tell them, one for each change."""
        self.refuses_faults = 0
        """So many reports yet."""
        self.refused = 0
        self._news = trio.Event()

    async def fault(self, number: int) -> dict[str, Any]:
        """The `number`th report that was taken, once it was."""
        await self._until(lambda: len(self.faults) >= number)
        return self.faults[number - 1]

    async def status(self, wanted: str) -> None:
        """Until the last heartbeat says so of every endpoint."""
        await self._until(lambda: bool(self.statuses) and set(self.statuses[-1].values()) == {wanted})

    async def serve(self, stream: trio.SocketStream) -> None:
        data = b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    data += await self._part(stream)
                head, _, data = data.partition(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                )
                while len(data) < length:
                    data += await self._part(stream)
                body, data = data[:length], data[length:]
                status, answer = self._answer(head.split(b" ")[1].decode(), json.loads(body))
                said = json.dumps(answer).encode()
                await stream.send_all(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(said), said))
        except (trio.BrokenResourceError, EOFError):
            pass
        finally:
            await stream.aclose()

    def _answer(self, path: str, message: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        self._news.set()
        self._news = trio.Event()
        if path.endswith("/heartbeat") and (not self.statuses or self.statuses[-1] != message["status"]):
            self.statuses.append(message["status"])
        if not path.endswith("/report_software_fault"):
            return b"200 OK", {}
        if self.refused < self.refuses_faults:
            self.refused += 1
            return b"500 No", {"error": "failed", "message": "not now"}
        self.faults.append(message)
        return b"200 OK", {"recovery": "none"}

    async def _part(self, stream: trio.SocketStream) -> bytes:
        part = bytes(await stream.receive_some())
        if not part:
            raise EOFError
        return part

    async def _until(self, condition: Any) -> None:
        with trio.fail_after(TIMEOUT_SEC):
            while not condition():
                await self._news.wait()


@asynccontextmanager
async def recording_controller() -> AsyncIterator[RecordingController]:
    it = RecordingController()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, it.serve, 0, host="127.0.0.1"))
        it.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        yield it
        nursery.cancel_scope.cancel()
