"""The last exits of every unit in the state directory, so that they survive the container (design 3, Evidence first).

A file a unit, bounded in number and size. Nothing waits for it: it is written beside what happens, and a disk that
fails is logged and no more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import trio
from msgspec.structs import replace

from supervisor.process.state_files import StateFiles
from supervisor.service.exits import EXITS_KEPT
from supervisor.shared.error_window import ErrorWindow
from supervisor.wire import ExitView

log = logging.getLogger(__name__)

DIRECTORY = "exits"
MAX_FILES = 64
"""Units come and go with their files' names: the oldest go first."""
MAX_FILE_BYTES = 512 * 1024
MAX_LINE = 1000
WRITE_AGAIN_SEC = 0.2
"""A unit that dies over and over costs no more than this."""

Views = Callable[[], tuple[ExitView, ...]]


class Kept(msgspec.Struct, frozen=True):
    """The file of one unit."""

    exits: tuple[ExitView, ...]


class ExitArchive:
    """One per supervisor. `run` has written what was noted; `flush` what is left, at the end."""

    def __init__(self, state_dir: Path, boot_id: str, files: StateFiles) -> None:
        self._files = files
        self._directory = state_dir / DIRECTORY
        self._boot_id = boot_id
        self._noted: dict[str, Views] = {}
        self._news = trio.Event()
        self._errors = ErrorWindow()

    def earlier(self, unit: str) -> tuple[ExitView, ...]:
        """Of earlier containers, newest first."""
        path = self._path(unit)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Kept).exits[:EXITS_KEPT]
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("cannot read %s: %s; what was in it is not shown", path, error)
            return ()

    def note(self, unit: str, exits: Views) -> None:
        """They have changed."""
        self._noted[unit] = exits
        self._news.set()

    async def run(self) -> None:
        """Until cancelled; call `flush` afterwards."""
        try:
            await self._files.disk.ask("old exits", self._make_room)
        except OSError as error:
            log.warning("cannot look through %s: %s", self._directory, error)
        while True:
            await self._news.wait()
            self.flush()
            await trio.sleep(WRITE_AGAIN_SEC)

    def flush(self) -> None:
        self._news = trio.Event()
        noted, self._noted = self._noted, {}
        for unit, exits in noted.items():
            self._files.keep(self._path(unit), encoded(exits(), self._boot_id), partial(self._failed, unit))

    def _failed(self, unit: str, error: OSError) -> None:
        held_back = self._errors.admit("write", trio.current_time())
        if held_back is not None:
            log.error(
                "cannot keep the exits of %s in %s: %s; they are lost with this container",
                unit,
                self._directory,
                error,
                extra={"unit": unit, "held_back": held_back},
            )

    def _make_room(self) -> None:
        """Blocks. Raise OSError."""
        files = sorted(self._directory.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[MAX_FILES:]:
            path.unlink()

    def _path(self, unit: str) -> Path:
        return self._directory / f"{unit}.json"


def encoded(exits: tuple[ExitView, ...], boot_id: str) -> bytes:
    """As much as there is room for: of lines their beginning, of exits the newest."""
    views = [_short(view) for view in exits]
    views = [replace(view, boot_id=view.boot_id or boot_id) for view in views]
    while len(data := msgspec.json.encode(Kept(tuple(views)))) > MAX_FILE_BYTES and views:
        views.pop()
    return data


def _short(view: ExitView) -> ExitView:
    return replace(
        view,
        log_tail=tuple(line[:MAX_LINE] for line in view.log_tail),
        diagnosis=tuple(line[:MAX_LINE] for line in view.diagnosis),
    )
