"""A controller whose heartbeats take the ordinary route: `python -m tests.bench.fleet_ordinary PORT`."""

from __future__ import annotations

import sys

import trio

from controller.app import compose
from controller.election import Leadership
from controller.policy import Policy
from controller.store.memory import MemoryStore
from controller.supervisors import Supervisors
from supervisor.shared import logs
from supervisor.shared.listening import listen_tcp
from supervisor.shared.serving import serve


async def main(port: int) -> None:
    """Until it is killed."""
    logs.configure("info", "json")
    controller = await compose(Policy(), Leadership(MemoryStore()), Supervisors(), None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(controller.center.run)
        await serve(controller.app, listen_tcp("127.0.0.1", port), trio.Event())


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
