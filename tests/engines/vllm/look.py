"""Run inside a pod by its Python: everything there that an engine may leave behind, as one JSON object on stdout."""

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil


def processes() -> Iterator[dict[str, object]]:
    for process in psutil.process_iter():
        try:
            with process.oneshot():
                yield {
                    "pid": process.pid,
                    "parent": process.ppid(),
                    "started": process.create_time(),
                    "title": " ".join(process.cmdline()) or process.name(),
                    "status": process.status(),
                    "resident": process.memory_info().rss,
                    "files": process.num_fds(),
                }
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue


def listening() -> list[list[int]]:
    """(port, pid) of every TCP listener; pid 0 where none is known."""
    found = psutil.net_connections("tcp")
    return sorted([socket_.laddr.port, socket_.pid or 0] for socket_ in found if socket_.status == psutil.CONN_LISTEN)


def sockets_in(directory: str) -> list[str]:
    return sorted(entry.name for entry in Path(directory).iterdir() if entry.is_socket())


print(
    json.dumps(
        {
            "host": socket.gethostname(),
            "processes": list(processes()),
            "listening": listening(),
            "segments": sorted(os.listdir("/dev/shm")),
            "sockets": sockets_in(tempfile.gettempdir()),
        }
    )
)
