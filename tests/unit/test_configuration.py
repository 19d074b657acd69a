"""What one supervisor goes by: the digest that tells whether two pods would run the same engine."""

from pathlib import Path

import pytest

from supervisor.configuration import Configuration, Options, config_digest, configure, place_of, settled_variables
from supervisor.engine.model.placement import Place
from supervisor.unit.errors import ConfigurationError
from supervisor.unit.parse import load_units

ENGINE = """
[Engine]
Launcher = "llama-server"
Model = "/models/a.gguf"
{ports}
[Engine.Args]
ctx-size = {context}
alias-of-pod = "{words}"
"""


def digest(
    directory: Path, environment: dict[str, str], *, ports: str = "", context: int = 256, words: str = "x"
) -> str:
    (directory / "engine.toml").write_text(ENGINE.format(ports=ports, context=context, words=words))
    return config_digest(load_units([directory])[0], environment)


def test_pods_that_share_an_address_may_have_a_service_port_each(tmp_path: Path) -> None:
    one, other = (digest(tmp_path, {}, ports=f"BasePort = {port}") for port in (10200, 10400))
    assert one == other


@pytest.mark.parametrize(
    "environment, ports, context, words",
    [
        ({}, "", 512, "x"),
        ({}, "MgmtPort = 50053", 256, "x"),
        ({"SIZE": "2"}, "", 256, "${SIZE}"),
    ],
)
def test_what_makes_another_engine_makes_another_digest(
    tmp_path: Path, environment: dict[str, str], ports: str, context: int, words: str
) -> None:
    assert digest(tmp_path, environment) != digest(tmp_path, environment, ports=ports, context=context, words=words)


@pytest.mark.parametrize("variable", ["POD_NAME", "POD_IP", "NODE_RANK", "EPOCH", "LWS_WORKER_INDEX", "HOSTNAME"])
def test_what_differs_by_pod_or_rank_is_compared_as_written(tmp_path: Path, variable: str) -> None:
    words = f"${{{variable}}}"
    one, other = (digest(tmp_path, {variable: value}, words=words) for value in ("a", "b"))
    assert one == other


def test_a_variable_of_the_deployment_is_compared_by_its_value(tmp_path: Path) -> None:
    one, other = (digest(tmp_path, {"MODEL_SIZE": value}, words="${MODEL_SIZE}") for value in ("a", "b"))
    assert one != other


def configured(directory: Path, **environment: str) -> Configuration:
    digest(directory, {})  # writes the engine's file
    options = Options(config=None, units=(directory,), socket=directory / "s.sock")
    return configure(options, {"PODVISOR_SUPERVISOR__STATE_DIR": str(directory), **environment})


def test_what_settings_say_of_the_placement_is_known_from_the_start(tmp_path: Path) -> None:
    """A condition or a store's unit file may need it long before the controller has assembled anything."""
    alone = settled_variables(configured(tmp_path))
    assert (alone["NODE_RANK"], alone["NNODES"], alone["POD_IP"]) == ("0", "1", "127.0.0.1")
    second = configured(
        tmp_path,
        POD_IP="10.0.0.2",
        PODVISOR_SUPERVISOR__JOB_NAME="llama",
        PODVISOR_SUPERVISOR__NNODES="2",
        PODVISOR_SUPERVISOR__NODE_INDEX="1",
    )
    assert settled_variables(second) == {
        "JOB_NAME": "llama",
        "ROLE": "union",
        "NNODES": "2",
        "POD_IP": "10.0.0.2",
        "NODE_RANK": "1",
    }


def test_with_a_port_base_the_engine_s_ports_count_from_it_and_the_digest_does_not(tmp_path: Path) -> None:
    one, other = (configured(tmp_path, PODVISOR_SUPERVISOR__PORT_BASE=base) for base in ("20000", "20200"))
    (first,), (second,) = one.engines[0], other.engines[0]
    ports = first.engine
    assert ports is not None
    assert (ports.base_port, ports.bootstrap_port) == (20010, 20090)
    assert config_digest(first, {}) == config_digest(second, {})


TWO = {"PODVISOR_SUPERVISOR__NNODES": "2", "PODVISOR_SUPERVISOR__JOB_NAME": "llama", "POD_IP": "10.0.0.2"}
ADDRESSES = {"PODVISOR_SUPERVISOR__NODE_ADDRS": '["10.0.0.1", "10.0.0.2"]'}


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({"POD_IP": "10.0.0.2"}, Place(0, ("10.0.0.2",), 29500, 1)),
        (TWO | {"PODVISOR_SUPERVISOR__NODE_INDEX": "1"}, None),
        (TWO | ADDRESSES, None),
        (
            TWO | ADDRESSES | {"PODVISOR_SUPERVISOR__NODE_INDEX": "1", "PODVISOR_PARALLEL__DP_SIZE": "2"},
            Place(1, ("10.0.0.1", "10.0.0.2"), 29500, 2),
        ),
    ],
)
def test_where_this_pod_stands_when_no_controller_says_so(
    tmp_path: Path, environment: dict[str, str], expected: Place | None
) -> None:
    configuration = configured(tmp_path, **environment)
    assert place_of(configuration, configuration.engines[0][0]) == expected


def test_a_rank_that_only_the_controller_can_give_is_not_guessed(tmp_path: Path) -> None:
    unnumbered = configured(tmp_path, PODVISOR_SUPERVISOR__NNODES="2")
    assert "NODE_RANK" not in settled_variables(unnumbered)


def test_problems_of_settings_and_units_are_shown_together(tmp_path: Path) -> None:
    (tmp_path / "podvisor.toml").write_text("[supervisor]\nprot = 1\n")
    (tmp_path / "wrong.toml").write_text("[Service]\nExecStrat = ['x']\n")
    with pytest.raises(ConfigurationError) as error:
        configure(Options(tmp_path / "podvisor.toml", (tmp_path,), None), {})
    assert {problem.path.name for problem in error.value.problems} >= {"podvisor.toml", "wrong.toml"}


def test_an_address_that_cannot_be_found_out_is_not_guessed(tmp_path: Path) -> None:
    url = "http://controller.invalid:1026"
    settings = {
        "PODVISOR_SUPERVISOR__CONTROLLER_URL": f'["{url}"]',
        "PODVISOR_AUTH__ALLOW_ANONYMOUS": "true",
        "PODVISOR_SUPERVISOR__JOB_NAME": "llama",
    }
    with pytest.raises(ConfigurationError) as error:
        configured(tmp_path, **settings)
    assert [problem.key for problem in error.value.problems] == ["POD_IP"]
    assert url in str(error.value.problems[0])
    assert configured(tmp_path, POD_IP="10.0.0.2", **settings).pod_ip == "10.0.0.2"
