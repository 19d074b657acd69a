"""A port on this machine's loopback that leads into a network of pods, for browsers and people.

And `carry`, which takes one connection on to another address, for whoever listens elsewhere.
"""

import socket
from functools import partial

import trio

CONNECT_TIMEOUT_SEC = 10.0
CHUNK = 64 * 1024


async def forward(
    address: str,
    port: int,
    *,
    local_port: int = 0,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `started` gives the local port.

    Connections that cannot be carried on are closed.
    """
    # Made by the standard library on purpose: trio's own would be made in the hub.
    listening = socket.create_server(("127.0.0.1", local_port))
    listening.setblocking(False)
    with listening:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, partial(carry, address=address, port=port), [listener])
            task_status.started(listening.getsockname()[1])


async def carry(near: trio.SocketStream, *, address: str, port: int) -> None:
    """Until both sides have ended. Returns at once when nobody answers there; the caller closes `near`."""
    try:
        with trio.fail_after(CONNECT_TIMEOUT_SEC):
            far = await trio.open_tcp_stream(address, port)
    except (OSError, trio.TooSlowError):
        return
    async with far, trio.open_nursery() as nursery:
        nursery.start_soon(_copy, near, far)
        nursery.start_soon(_copy, far, near)


async def _copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
    try:
        while chunk := await source.receive_some(CHUNK):
            await target.send_all(chunk)
        await target.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        await trio.aclose_forcefully(target)
        await trio.aclose_forcefully(source)
