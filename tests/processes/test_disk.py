"""Work on disks that hang: left behind in time, and never more than one thread for each who asks."""

from __future__ import annotations

import threading

import pytest
import trio

from supervisor.process.disk import Disk, NoAnswer


async def test_a_disk_that_hangs_costs_an_asker_one_thread_however_often_it_asks_and_others_none() -> None:
    disk, answer, asked = Disk(), threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    questions: list[str] = []

    def hang(question: str) -> str:
        questions.append(question)
        token.run_sync_soon(asked.set)
        answer.wait()
        return question

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(disk.ask, "a", lambda: hang("first"))
            await asked.wait()
            nursery.cancel_scope.cancel()
        for _ in range(3):
            with pytest.raises(NoAnswer, match="its file system does not answer within"):
                await disk.ask("a", lambda: hang("again"), within_sec=0.01)
        assert await disk.ask("b", lambda: "answered") == "answered"
        assert questions == ["first"]
    finally:
        answer.set()
    assert await disk.ask("a", lambda: "answered") == "answered"  # when its first thread is free
