"""What this supervisor did with its engines, in the state directory, so that it survives the container.

For people: which run, in which epoch, why, how far it got and what broke it. Nothing is decided from it.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from supervisor import wire
from supervisor.engine.model.history import History, noted
from supervisor.engine.model.operation import Operation
from supervisor.process.state_files import Keep

log = logging.getLogger(__name__)

HISTORY_FILE = "operations.json"


class RunHistory:
    def __init__(self, state_dir: Path, keep: Keep) -> None:
        self._keep = keep
        self._path = state_dir / HISTORY_FILE
        self.history = self._load()

    def record(self, operation: Operation) -> None:
        """Keep what `operation` knows, if it is news. A disk that fails is logged; it never stops a relaunch."""
        now = noted(self.history, operation, wire.timestamp(datetime.now(UTC)))
        if now is self.history:
            return
        self.history = now
        self._keep(self._path, wire.encode(now), self._failed)

    def _failed(self, error: OSError) -> None:
        log.error("cannot write %s: %s; what is done now is not told after a container restart", self._path, error)

    def _load(self) -> History:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=History)
        except FileNotFoundError:
            return History()
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("cannot read %s: %s; it is begun anew", self._path, error)
            return History()
