"""The control socket: a stale one is replaced, and of several that begin at once one wins."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from supervisor.shared.listening import CannotListen, listen_unix


def leave_a_stale_one(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
        stale.bind(str(path))


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))
    return True


@pytest.mark.parametrize("round_", range(20))
def test_of_several_that_find_a_stale_socket_one_wins_and_keeps_it(round_: int, tmp_path: Path) -> None:
    path = tmp_path / "podvisor.sock"
    leave_a_stale_one(path)
    won: list[socket.socket] = []
    lost: list[str] = []
    at_once = threading.Barrier(8)

    def begin() -> None:
        at_once.wait()
        try:
            won.append(listen_unix(path))
        except CannotListen as error:
            lost.append(str(error))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)
    assert all("another supervisor answers there" in words for words in lost)
    assert connects(path)
    won[0].close()
