"""What the tests in pods add to `controller.demo.cluster`: our fallback engine as a container, shipped units."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from controller.demo import fallback_engine as fallback_engine_module
from controller.demo.cluster import (
    CONTROLLER_PORT,
    PODVISOR,
    PROBE_PORT,
    SUPERVISOR_PORT,
    TIMEOUT_SEC,
    Cluster,
    Tables,
    cluster,
    controller_spec,
    eventually,
    running_cluster,
    supervisor_spec,
    write_settings,
    write_units,
)
from controller.demo.kubelet import ContainerSpec
from controller.demo.pod import Network, Pod

__all__ = [
    "CONTROLLER_PORT",
    "FALLBACK_ENGINE",
    "PODVISOR",
    "PROBE_PORT",
    "SUPERVISOR_PORT",
    "TIMEOUT_SEC",
    "UNITS",
    "Cluster",
    "PodsFactory",
    "Tables",
    "cluster",
    "controller_spec",
    "eventually",
    "fallback_engine",
    "running_cluster",
    "supervisor_spec",
    "write_settings",
    "write_units",
]

PodsFactory = Callable[[int], Awaitable[Network]]
"""Makes so many pods; the fixture `pods`."""

FALLBACK_ENGINE = Path(fallback_engine_module.__file__)
UNITS = Path(__file__).parents[2] / "units"


def fallback_engine(pod: Pod, *flags: str, port: int = 8000, **spec: Any) -> ContainerSpec:
    """Our fallback engine as a pod's container; `spec` are further fields of ContainerSpec."""
    listen = [f"--host={pod.address}", f"--port={pod.port(port)}"]
    return ContainerSpec([sys.executable, "-I", str(FALLBACK_ENGINE), *listen, *flags], **spec)
