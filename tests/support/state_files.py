"""State files that are written at once, for those who keep something in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from supervisor.process.state_files import StateFiles
from supervisor.shared.whole_file import write_whole
from tests.support.instant_disk import InstantDisk


def kept_at_once(path: Path, data: bytes, failed: Callable[[OSError], None]) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        failed(error)


class StateFilesAtOnce(StateFiles):
    def __init__(self) -> None:
        super().__init__(InstantDisk())

    def keep(self, path: Path, data: bytes, failed: Callable[[OSError], None]) -> None:
        kept_at_once(path, data, failed)
