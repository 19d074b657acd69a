"""What one supervisor goes by: the digest that tells whether two pods would run the same engine."""

from pathlib import Path

import pytest

from supervisor.configuration import config_digest
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
    "environment, change",
    [
        ({}, {"context": 512}),
        ({}, {"ports": "MgmtPort = 50053"}),
        ({"SIZE": "2"}, {"words": "${SIZE}"}),
    ],
)
def test_what_makes_another_engine_makes_another_digest(
    tmp_path: Path, environment: dict[str, str], change: dict[str, object]
) -> None:
    assert digest(tmp_path, environment) != digest(tmp_path, environment, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("variable", ["POD_NAME", "POD_IP", "NODE_RANK", "EPOCH"])
def test_what_differs_by_pod_or_rank_is_compared_as_written(tmp_path: Path, variable: str) -> None:
    words = f"${{{variable}}}"
    one, other = (digest(tmp_path, {variable: value}, words=words) for value in ("a", "b"))
    assert one == other


def test_a_variable_of_the_deployment_is_compared_by_its_value(tmp_path: Path) -> None:
    one, other = (digest(tmp_path, {"MODEL_SIZE": value}, words="${MODEL_SIZE}") for value in ("a", "b"))
    assert one != other
