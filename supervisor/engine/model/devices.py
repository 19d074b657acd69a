"""Which of the pod's devices each of its engine processes gets (design 2, DevicesPerEndpoint).

The pod's list is what the device plugin put into the environment; its names (numbers, UUIDs, MIG slices) are kept
as they are. Without such a variable the devices are counted, `[supervisor] device_num`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.unit.model import Engine

VISIBLE_DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)
"""What NVIDIA's, Huawei's, AMD's and Intel's runtimes read; the first that is set in this pod is sliced."""


class DevicesError(Exception):
    """The pod's devices cannot be shared out as the unit says."""


def visible_devices(engine: Engine, environment: Mapping[str, str], device_num: int) -> dict[str, str]:
    """The variable that shows this endpoint its own devices alone; none if it may see all. Raise DevicesError."""
    if engine.devices_per_endpoint is None and engine.endpoints == 1:
        return {}
    variable = engine.visible_devices_variable or _variable_of_this_pod(environment)
    devices = _devices(environment.get(variable), device_num)
    if engine.devices_per_endpoint is None and not devices:
        return {}  # nothing to share out: engines on CPUs
    share = engine.devices_per_endpoint or _equal_share(engine.endpoints, devices, variable)
    needed = share * engine.endpoints
    if needed > len(devices):
        raise DevicesError(
            f"{engine.endpoints} endpoints with {share} devices each need {needed}, "
            f"this pod has {len(devices)} ({_source(environment, variable)})"
        )
    first = engine.endpoint_number * share
    return {variable: ",".join(devices[first : first + share])}


def _variable_of_this_pod(environment: Mapping[str, str]) -> str:
    return next((name for name in VISIBLE_DEVICES if environment.get(name)), VISIBLE_DEVICES[0])


def _devices(listed: str | None, device_num: int) -> Sequence[str]:
    if listed:
        return [name.strip() for name in listed.split(",") if name.strip()]
    return [str(number) for number in range(device_num)]


def _equal_share(endpoints: int, devices: Sequence[str], variable: str) -> int:
    share, rest = divmod(len(devices), endpoints)
    if rest or not share:
        raise DevicesError(
            f"{len(devices)} devices ({variable}) cannot be shared out to {endpoints} endpoints: set DevicesPerEndpoint"
        )
    return share


def _source(environment: Mapping[str, str], variable: str) -> str:
    if environment.get(variable):
        return f"{variable}={environment[variable]}"
    return f"{variable} is not set, and supervisor.device_num counts them"
