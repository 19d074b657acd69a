"""The JSON Schema of a unit file takes what podvisor takes, and refuses what a schema can refuse."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from supervisor.cli import podvisor
from supervisor.unit.keys import SECTIONS, Key
from supervisor.unit.schema import schema
from supervisor.unit.values import Converter
from tests.unit.test_unit_values import REFUSED, TAKEN

SHIPPED = sorted((Path(__file__).parents[2] / "units").rglob("*.toml"))
VALIDATOR = Draft202012Validator(schema())


def places(text: str) -> list[str]:
    """Where a file is wrong."""
    errors: Iterable[ValidationError] = VALIDATOR.iter_errors(tomllib.loads(text))
    return sorted(error.json_path.removeprefix("$").removeprefix(".") for error in errors)


def keys_of(section: str) -> dict[str, Any]:
    """Their schemas, by name."""
    sections = schema()["properties"]
    assert isinstance(sections, dict)
    keys: dict[str, Any] = sections[section]["properties"]
    return keys


def test_it_is_a_schema_of_its_draft() -> None:
    Draft202012Validator.check_schema(schema())
    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_command_prints_it() -> None:
    for arguments in ([], ["--json"]):
        result = CliRunner().invoke(podvisor, ["schema", *arguments])
        assert (result.exit_code, json.loads(result.output)) == (0, schema())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_units_are_right(path: Path) -> None:
    refused = {error.json_path for error in VALIDATOR.iter_errors(tomllib.loads(path.read_text()))}
    assert refused == set()


@pytest.mark.parametrize(
    "text, expected",
    [
        ('[Service]\nExecStart = ["true"]\n', []),
        ('[Service]\nExecStart = "true"\n', ["Service.ExecStart"]),
        ('[Service]\nExecStrat = ["true"]\n', ["Service"]),
        ("[Sevice]\n", [""]),
        ('[Service]\nRestart = "sometimes"\n', ["Service.Restart"]),
        ('[Service]\nTimeoutStopSec = "soon"\n', ["Service.TimeoutStopSec"]),
        ('[Service]\nTimeoutStopSec = "1min 30s"\nRestartSec = 0.5\nTimeoutStartSec = "infinity"\n', []),
        ("[Service]\nTimeoutStopSec = -1\n", ["Service.TimeoutStopSec"]),
        ('[Service]\nLogRotateSize = "50 parsecs"\n', ["Service.LogRotateSize"]),
        ("[Service]\nNice = 20\n", ["Service.Nice"]),
        ("[Service]\nRemainAfterExit = 1\n", ["Service.RemainAfterExit"]),
        ('[Unit]\nAfter = ["a b"]\n', ["Unit.After"]),
        ('[Readiness]\nHttp = "http://127.0.0.1/"\n', []),
        ('[Readiness.Http]\nUrl = "http://127.0.0.1/"\nExpectStatus = [204, "300-399"]\n', []),
        ('[Readiness]\nHttp = { Method = "GET" }\n', ["Readiness.Http"]),
        ('[Readiness]\nHttp = "http://127.0.0.1/"\nTcp = "localhost:1"\n', ["Readiness"]),
        ("[Readiness]\nPeriodSec = 1\n", ["Readiness"]),
        ("[Readiness]\nTcp = 'localhost:1'\nOnFailure = 'restart'\n", ["Readiness"]),
        ("[Liveness]\nTcp = 'localhost:1'\nOnFailure = 'restart'\n", []),
        ("[Engine]\nBasePort = 70000\n", ["Engine.BasePort"]),
        ("[Engine.Args]\nctx-size = 512\njinja = true\nlora = { repeat = ['a'] }\n", []),
    ],
)  # fmt: skip
def test_a_file_is_judged_as_podvisor_judges_it(text: str, expected: list[str]) -> None:
    assert places(text) == expected


def judged(converter: Converter[object], found: object) -> bool:
    return Draft202012Validator(converter.schema).is_valid(found)


def test_what_a_key_takes_its_schema_takes() -> None:
    refused = [(converter.expected, found) for converter, found, _ in TAKEN if not judged(converter, found)]
    assert refused == []


def test_most_of_what_a_key_refuses_its_schema_refuses() -> None:
    taken = [(converter.expected, found) for converter, found, _ in REFUSED if judged(converter, found)]
    assert len(taken) < len(REFUSED) / 2, taken  # NUL bytes, unknown signals, limits that are turned round, …


def test_defaults_are_what_podvisor_would_read() -> None:
    found = {}
    for section in SECTIONS.values():
        made = keys_of(section.name)
        for entry in section.entries.values():
            if isinstance(entry, Key) and "default" in made[entry.name]:
                default = made[entry.name]["default"]
                assert Draft202012Validator(entry.convert.schema).is_valid(default)
                found[f"{section.name}.{entry.name}"] = entry.convert(default)
    assert (found["Service.TimeoutStopSec"], found["Liveness.PeriodSec"]) == (30.0, 10.0)
    assert (found["Service.Restart"], found["Service.KillSignal"], found["Service.SendSIGKILL"]) == (
        "on-failure", "SIGTERM", True)  # fmt: skip
    assert len(found) > 40
    assert all(value != math.inf for value in found.values())


def test_every_key_is_explained() -> None:
    for name, section in SECTIONS.items():
        made = keys_of(name)
        assert made.keys() == section.entries.keys()
        assert all(entry["description"] for entry in made.values())
