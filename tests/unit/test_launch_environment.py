"""What an engine's environment is made of, and which interface its collectives are told to take."""

from __future__ import annotations

import pytest

from supervisor.engine.launchers import sglang, vllm
from supervisor.engine.launchers.environment import Unwanted, engine_environment
from supervisor.engine.launchers.fabric import Fabric, NoSuchInterface, fabric_of, network_environment

# Of a Service named `vllm` in the pod's namespace: https://kubernetes.io/docs/concepts/services-networking/service
LINKS = {
    "VLLM_SERVICE_HOST": "10.96.0.7",
    "VLLM_SERVICE_PORT": "8000",
    "VLLM_PORT": "tcp://10.96.0.7:8000",
    "VLLM_PORT_8000_TCP": "tcp://10.96.0.7:8000",
    "VLLM_PORT_8000_TCP_PORT": "8000",
}


def test_a_service_s_address_never_reaches_vllm_as_its_port() -> None:
    """vLLM 0.32.0, envs.py, get_vllm_port: a URI there is an error."""
    environment, left_out = engine_environment(LINKS, {}, vllm.UNWANTED)
    assert environment == {name: value for name, value in LINKS.items() if name != "VLLM_PORT"}
    assert left_out == ("VLLM_PORT (an address that Kubernetes sets for a Service of that name)",)


@pytest.mark.parametrize(
    ("unwanted", "given", "stays"),
    [
        (vllm.UNWANTED, {"VLLM_PORT": "41000"}, True),
        (vllm.UNWANTED, {"VLLM_DP_MASTER_PORT": "tcp://10.0.0.9:1"}, False),
        (vllm.UNWANTED, {"OTHER_PORT": "tcp://10.0.0.9:1"}, True),
        (vllm.UNWANTED, {"VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "1"}, False),
        (vllm.UNWANTED, {"VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "0"}, True),
        (sglang.UNWANTED, {"SGLANG_PORT": "tcp://[fd00::1]:30000"}, False),
        (sglang.UNWANTED, {"SGLANG_PORT": "30500"}, True),
    ],
)
def test_what_would_break_an_engine_is_left_out(
    unwanted: tuple[Unwanted, ...], given: dict[str, str], stays: bool
) -> None:
    environment, left_out = engine_environment(given, {}, unwanted)
    assert (environment == given) is stays
    assert bool(left_out) is not stays


def test_what_somebody_has_set_wins_over_the_launcher() -> None:
    environment, _ = engine_environment({"VLLM_HOST_IP": "192.0.2.1"}, {"VLLM_HOST_IP": "10.0.0.1", "A": "1"}, ())
    assert environment == {"VLLM_HOST_IP": "192.0.2.1", "A": "1"}


INTERFACES = {
    "lo": ("127.0.0.1", "::1"),
    "eth0": ("10.0.0.1", "fd00::1", "fe80::1"),
    "net1": ("192.168.7.1",),
    "net2": ("fe80::2",),
}


@pytest.mark.parametrize(
    ("wanted", "pod_ip", "expected"),
    [
        (None, "10.0.0.1", Fabric("eth0", "10.0.0.1")),
        (None, "fd00::1", Fabric("eth0", "fd00::1")),
        (None, "127.0.0.1", Fabric("lo", "127.0.0.1")),
        (None, "203.0.113.1", None),
        ("net1", "10.0.0.1", Fabric("net1", "192.168.7.1")),
        ("eth0", "fd00::1", Fabric("eth0", "fd00::1")),
    ],
)
def test_which_interface_it_is(wanted: str | None, pod_ip: str, expected: Fabric | None) -> None:
    assert fabric_of(INTERFACES, wanted, pod_ip) == expected


@pytest.mark.parametrize(
    ("wanted", "pod_ip", "words"),
    [
        ("eth9", "10.0.0.1", "no interface 'eth9' in this pod, only eth0, lo, net1, net2"),
        ("net1", "fd00::1", "'net1' has no IPv6 address, as the pod's address fd00::1 is"),
        ("net2", "fd00::1", "'net2' has no IPv6 address"),
    ],
)
def test_an_interface_that_leads_nowhere_is_refused(wanted: str, pod_ip: str, words: str) -> None:
    with pytest.raises(NoSuchInterface, match=words):
        fabric_of(INTERFACES, wanted, pod_ip)


def test_without_an_interface_only_the_address_is_told() -> None:
    assert network_environment("VLLM_HOST_IP", "10.0.0.1", None) == {"VLLM_HOST_IP": "10.0.0.1"}
    told = network_environment("VLLM_HOST_IP", "10.0.0.1", Fabric("net1", "192.168.7.1"))
    assert told["VLLM_HOST_IP"] == "192.168.7.1"
