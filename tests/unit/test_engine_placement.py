"""Where this pod's engine stands in its gang, whether that fits the pod, and the variables made of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from supervisor.engine.model.placement import Place, misfit, placed, standalone, variables
from supervisor.unit.endpoints import management_port
from supervisor.unit.model import Engine
from supervisor.wire import DeviceInfo, Endpoint, StartCmdMsg

ENGINE = Engine(base_port=10000, bootstrap_port=8998)


def endpoint(**fields: Any) -> Endpoint:
    return replace(Endpoint(id=1, ip="10.0.0.2", business_port="10000", mgmt_port="10000"), **fields)


def placement(**fields: Any) -> StartCmdMsg:
    defaults: dict[str, Any] = {
        "job_name": "qwen",
        "role": "prefill",
        "instance_id": 7,
        "endpoints": (endpoint(),),
        "master_dp_ip": "10.0.0.1",
        "node_rank": 1,
        "epoch": 3,
        "nnodes": 2,
        "master_port": 29501,
        "dp_size": 2,
        "node_addrs": ("10.0.0.1", "10.0.0.2"),
    }
    return StartCmdMsg(**defaults | fields)


def why_not(given: StartCmdMsg, engine: Engine = ENGINE) -> str | None:
    return misfit(given, engine, job_name="qwen", pod_ip="10.0.0.2")


# --- does it fit this pod? ------------------------------------------------------------------------------------------


def test_a_placement_that_fits() -> None:
    assert why_not(placement()) is None


def test_an_unextended_peer_s_placement_fits() -> None:
    bare = msgspec.json.decode(
        b'{"job_name": "qwen", "role": "union", "instance_id": 1, "master_dp_ip": "10.0.0.2",'
        b' "endpoints": [{"id": 0, "ip": "10.0.0.2", "business_port": "10000", "mgmt_port": "10000"}]}',
        type=StartCmdMsg,
    )
    assert why_not(bare) is None


@pytest.mark.seed("S10")
@pytest.mark.parametrize(
    "fields, says",
    [
        ({"job_name": "llama"}, "job_name 'llama' is not this pod's 'qwen'"),
        ({"endpoints": ()}, "0 endpoints were given, this pod declares 1"),
        ({"endpoints": (endpoint(), endpoint(id=2))}, "2 endpoints were given, this pod declares 1"),
        ({"endpoints": (endpoint(ip="10.0.0.9"),)}, "endpoint address 10.0.0.9 is not this pod's 10.0.0.2"),
        ({"endpoints": (endpoint(business_port="http"),)}, "'http' is no port of endpoint 1 (expected 1..65535)"),
        ({"endpoints": (endpoint(mgmt_port="65536"),)}, "'65536' is no port of endpoint 1 (expected 1..65535)"),
        ({"endpoints": (endpoint(business_port="0"),)}, "'0' is no port of endpoint 1 (expected 1..65535)"),
        ({"endpoints": (endpoint(business_port="-1"),)}, "'-1' is no port of endpoint 1 (expected 1..65535)"),
        ({"endpoints": (endpoint(business_port="²"),)}, "'²' is no port of endpoint 1 (expected 1..65535)"),
        ({"node_rank": 2}, "node_rank 2 is outside 0..1"),
        ({"node_rank": -1}, "node_rank -1 is outside 0..1"),
        ({"node_addrs": ("10.0.0.1",)}, "node_addrs has 1 addresses for nnodes 2"),
        pytest.param({"node_addrs": ()}, "node_addrs has 0 addresses for nnodes 2", id="F22: rank 0 without its peers"),
    ],
)
def test_why_a_placement_does_not_fit(fields: dict[str, Any], says: str) -> None:
    assert why_not(placement(**fields)) == says


# --- variables ------------------------------------------------------------------------------------------------------


@pytest.mark.seed("S32")
def test_the_placement_s_variables() -> None:
    devices = (DeviceInfo(device_id="GPU-ab", rank_id="2"), DeviceInfo(device_id="GPU-cd", rank_id="3"))
    given = placement(endpoints=(endpoint(device_infos=devices, mgmt_port="10001", bootstrap_port="9000"),))
    assert variables(given, ENGINE, pod_ip="10.0.0.2") == {
        "INSTANCE_ID": "7",
        "JOB_NAME": "qwen",
        "ROLE": "prefill",
        "EPOCH": "3",
        "NODE_RANK": "1",
        "NNODES": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29501",
        "NODE_ADDR_0": "10.0.0.1",
        "NODE_ADDR_1": "10.0.0.2",
        "NODE_ADDRS": "10.0.0.1,10.0.0.2",
        "DP_RANK": "1",
        "DP_SIZE": "2",
        "POD_IP": "10.0.0.2",
        "PORT": "10000",
        "MGMT_PORT": "10001",
        "BOOTSTRAP_PORT": "9000",
        "DEVICE_IDS": "GPU-ab,GPU-cd",
    }


@pytest.mark.seed("S22")
def test_the_bootstrap_port_is_the_unit_s_unless_the_placement_names_one() -> None:
    assert variables(placement(), ENGINE, pod_ip="10.0.0.2")["BOOTSTRAP_PORT"] == "8998"


def test_what_is_not_known_is_not_set() -> None:
    """An undefined variable in a unit file is an error; an empty one would be a silent mistake."""
    bare = placement(master_port=None, node_addrs=(), nnodes=1, node_rank=0)
    known = variables(bare, ENGINE, pod_ip="10.0.0.2")
    assert not {"MASTER_PORT", "NODE_ADDRS", "NODE_ADDR_0", "DEVICE_IDS"} & known.keys()


# --- standalone -----------------------------------------------------------------------------------------------------


def test_a_standalone_engine_is_the_only_rank_of_its_gang() -> None:
    made = standalone(ENGINE, job_name="qwen", role="union", pod_ip="10.0.0.2", epoch=4)
    known = variables(made, ENGINE, pod_ip="10.0.0.2")
    assert {name: known[name] for name in ("NODE_RANK", "NNODES", "MASTER_ADDR", "EPOCH", "DP_RANK", "DP_SIZE")} == {
        "NODE_RANK": "0",
        "NNODES": "1",
        "MASTER_ADDR": "127.0.0.1",
        "EPOCH": "4",
        "DP_RANK": "0",
        "DP_SIZE": "1",
    }
    assert known["NODE_ADDRS"] == "10.0.0.2"
    assert why_not(made) is None


def test_a_gang_without_a_controller_stands_where_its_settings_say() -> None:
    alone = standalone(ENGINE, job_name="qwen", role="union", pod_ip="10.0.0.2", epoch=4)
    made = placed(alone, Place(1, ("10.0.0.1", "10.0.0.2"), master_port=29500, dp_size=1))
    known = variables(made, ENGINE, pod_ip="10.0.0.2")
    assert {name: known[name] for name in ("NODE_RANK", "NNODES", "MASTER_ADDR", "MASTER_PORT", "DP_RANK")} == {
        "NODE_RANK": "1",
        "NNODES": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "DP_RANK": "1",
    }
    assert made.endpoints[0].headless, "one rank over both nodes"
    each = Place(1, made.node_addrs, master_port=29500, dp_size=2)
    assert not placed(alone, each).endpoints[0].headless
    assert placed(alone, replace(each, one_server=True)).endpoints[0].headless
    assert why_not(made) is None


@pytest.mark.parametrize("mgmt_port, expected", [(None, 10000), (10001, 10001)])
def test_the_management_port_is_the_service_port_where_the_engine_has_no_other(
    mgmt_port: int | None, expected: int
) -> None:
    assert management_port(Engine(mgmt_port=mgmt_port), 0) == expected
