"""The unit files in units/ can be read, and start the real programs so that their own readiness probes pass."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from controller.demo.engines import Engines
from controller.demo.pod import Network, Pod, base_environment
from supervisor.unit.expand import expand_unit, undefined_variables
from supervisor.unit.parse import load_units
from tests.engines.probing import shipped, until_probed
from tests.pods.harness import UNITS
from tests.support.installed_engines import program

PROFILES = sorted(path.name for path in (UNITS / "profiles").iterdir())
GIVEN_TO_ENGINES = {"MODEL_PATH", "PORT"}
SMALL = {"MOONCAKE_SEGMENT_SIZE": "64MB", "LMCACHE_L1_SIZE_GB": "0.25", "LMCACHE_CHUNK_SIZE": "128"}
NEEDED_FIRST = {"mooncake-client": ["mooncake-master"], "redis-exporter": ["redis"]}


@pytest.mark.parametrize(
    "directory", [UNITS, *(UNITS / "profiles" / name for name in PROFILES)], ids=lambda path: path.name
)
def test_unit_files_can_be_read_and_name_their_variables(directory: Path) -> None:
    units = load_units([directory])
    assert units
    for unit in units:
        known = GIVEN_TO_ENGINES if unit.engine else set()
        assert undefined_variables(unit, known) == ()


@pytest.mark.engines
@pytest.mark.parametrize(
    "name", ["mooncake-master", "mooncake-client", "redis", "redis-exporter", "node-exporter", "lmcache"]
)
async def test_the_program_becomes_ready(network: Network, engines: Engines, name: str) -> None:
    pod = network.pods[0]
    async with AsyncExitStack() as stack:
        for needed in [*NEEDED_FIRST.get(name, []), name]:
            unit = expand_unit(shipped(needed), ports_of(pod) | SMALL)
            command = unit.service.exec_start
            assert command is not None
            argv = [program(engines, command.argv[0]), *command.argv[1:]]
            container = await stack.enter_async_context(pod.container(argv, log=pod.logs / needed))
            await until_probed(unit, container)


def ports_of(pod: Pod) -> dict[str, str]:
    """The files' own ports, moved where pods share the machine's."""
    ports = {
        "MOONCAKE_RPC_PORT": pod.port(50051),
        "MOONCAKE_METRICS_PORT": pod.port(9003),
        "MOONCAKE_NODE_PORT": pod.port(50052),
        "MOONCAKE_NODE_HTTP_PORT": pod.port(9300),
        "LMCACHE_PORT": pod.port(5555),
        "LMCACHE_HTTP_PORT": pod.port(8766),
        "REDIS_PORT": pod.port(6379),
        "REDIS_EXPORTER_PORT": pod.port(9121),
        "NODE_EXPORTER_PORT": pod.port(9100),
    }
    return {name: str(port) for name, port in ports.items()} | {
        "MOONCAKE_MASTER": f"127.0.0.1:{pod.port(50051)}",
        "PATH": base_environment()["PATH"],
    }
