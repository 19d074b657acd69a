"""Which runs are open as it stands on the disk, or in etcd: read past the controllers, in a world at rest."""

from __future__ import annotations

import base64
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import httpx
import trio

from controller.store.sqlite import FILE
from tests.chaos.world import World
from tests.support.real_etcd import etcd_url

OPEN_RUNS = "SELECT job_name, count(*) FROM runs WHERE open GROUP BY job_name"
OPEN_RUN = b"/podvisor/open-run/"
"""How keys of open runs begin in etcd; `0` comes after `/`."""


async def open_runs(world: World) -> Mapping[str, int] | None:
    """By job. None: it cannot be read."""
    if world.stage.etcd is not None:
        return await _in_etcd(world, world.stage.etcd)
    return await trio.to_thread.run_sync(_in_a_copy, world)


def _in_a_copy(world: World) -> Mapping[str, int] | None:
    """SQLite follows links, and so would look for the file outside of the container. Whoever reads a file in use may
    meet half of a write: then it cannot be read.
    """
    (name,) = world.stage.controllers
    first = world.first_process(name)
    if first is None:
        return None
    disk = Path(f"/proc/{first}/root{world.state(name)}")
    with tempfile.TemporaryDirectory() as directory:
        try:
            for part in disk.glob(f"{FILE}*"):
                if not part.name.endswith("-shm"):
                    shutil.copy(part, directory)
            connection = sqlite3.connect(f"file:{directory}/{FILE}?mode=rw", uri=True)
            try:
                return dict(connection.execute(OPEN_RUNS).fetchall())
            finally:
                connection.close()
        except (OSError, sqlite3.Error):
            return None


async def _in_etcd(world: World, name: str) -> Mapping[str, int] | None:
    keys = [base64.b64encode(key).decode() for key in (OPEN_RUN, OPEN_RUN[:-1] + b"0")]
    question = {"key": keys[0], "range_end": keys[1], "keys_only": True}
    try:
        answer = await world.http.post(f"{etcd_url(world.pod(name))}/v3/kv/range", json=question)
    except httpx.TransportError:
        return None
    if not answer.is_success:
        return None
    found = [base64.b64decode(row["key"]).rpartition(b"/")[2].decode() for row in answer.json().get("kvs", ())]
    return Counter(found)
