"""`Endpoints = N`: what units, ports and devices it makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.engine.model.devices import DevicesError, visible_devices
from supervisor.unit.endpoints import bootstrap_port, management_port, service_port, with_endpoints
from supervisor.unit.errors import ConfigurationError
from supervisor.unit.model import Dependencies, Engine, OnDependencyRestart, RestartRule, Unit
from supervisor.unit.parse import load_units

MONITOR = Unit(
    "monitor",
    Path("monitor.toml"),
    dependencies=Dependencies(
        after=("engine",),
        requires=("store", "engine"),
        on_restart=RestartRule(by_name=(("engine", OnDependencyRestart.RESTART),)),
    ),
)


def engine(endpoints: int, name: str = "engine", **fields: object) -> Unit:
    return Unit(name, Path(f"{name}.toml"), engine=replace(Engine(endpoints=endpoints), **fields))


def test_one_endpoint_keeps_its_name() -> None:
    (unit,) = with_endpoints([engine(1)])
    assert unit.name == "engine"
    assert unit.engine is not None
    assert (unit.engine.declared_by, unit.engine.endpoint_number) == ("engine", 0)


def test_several_are_units_of_their_own_and_who_names_the_file_means_all() -> None:
    first, second, monitor = with_endpoints([engine(2), MONITOR])
    assert [unit.name for unit in (first, second, monitor)] == ["engine@0", "engine@1", "monitor"]
    for number, unit in enumerate((first, second)):
        assert unit.engine is not None
        assert (unit.engine.declared_by, unit.engine.endpoint_number) == ("engine", number)
    needs = monitor.dependencies
    assert needs.after == ("engine@0", "engine@1")
    assert needs.requires == ("store", "engine@0", "engine@1")
    assert needs.on_restart.by_name == tuple((name, OnDependencyRestart.RESTART) for name in needs.after)


def test_an_instance_of_a_template_is_numbered_too() -> None:
    assert [unit.name for unit in with_endpoints([engine(2, "engine@big")])] == ["engine@big-0", "engine@big-1"]


def test_a_unit_that_has_an_endpoint_s_name_is_a_mistake(tmp_path: Path) -> None:
    text = '[Service]\nExecStart = ["a"]\n'
    (tmp_path / "engine.toml").write_text(text + "[Engine]\nEndpoints = 2\n")
    (tmp_path / "engine@1.toml").write_text(text)
    with pytest.raises(ConfigurationError) as error:
        load_units([tmp_path])
    (problem,) = error.value.problems
    assert (problem.line, problem.key) == (4, "Engine.Endpoints")
    assert "there is a unit 'engine@1' already" in problem.message


def test_ports_are_two_apart_so_that_a_management_port_fits_between() -> None:
    native, managed = Engine(base_port=10000), Engine(base_port=10000, mgmt_port=10001)
    assert [service_port(native, number) for number in range(3)] == [10000, 10002, 10004]
    assert [management_port(native, number) for number in range(3)] == [10000, 10002, 10004]
    assert [management_port(managed, number) for number in range(3)] == [10001, 10003, 10005]
    assert [bootstrap_port(native, number) for number in range(3)] == [8998, 8999, 9000]


# --- devices --------------------------------------------------------------------------------------------------------

UUIDS = "GPU-5c1a,MIG-77aa/1/0,GPU-09ef,GPU-bb32"


@pytest.mark.parametrize(
    "fields, environment, device_num, expected",
    [
        pytest.param({}, {"CUDA_VISIBLE_DEVICES": UUIDS}, 4, [{}], id="one endpoint sees all"),
        pytest.param({"endpoints": 2}, {}, 0, [{}, {}], id="no devices: CPU engines"),
        pytest.param(
            {"endpoints": 2},
            {"CUDA_VISIBLE_DEVICES": UUIDS},
            0,
            [{"CUDA_VISIBLE_DEVICES": "GPU-5c1a,MIG-77aa/1/0"}, {"CUDA_VISIBLE_DEVICES": "GPU-09ef,GPU-bb32"}],
            id="equal shares by default, names kept",
        ),
        pytest.param(
            {"endpoints": 2, "devices_per_endpoint": 1},
            {"ASCEND_RT_VISIBLE_DEVICES": "4, 5,6"},
            8,
            [{"ASCEND_RT_VISIBLE_DEVICES": "4"}, {"ASCEND_RT_VISIBLE_DEVICES": "5"}],
            id="the pod's own variable",
        ),
        pytest.param(
            {"endpoints": 2},
            {},
            4,
            [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}],
            id="counted",
        ),
        pytest.param(
            {"devices_per_endpoint": 2, "visible_devices_variable": "MY_DEVICES"},
            {"CUDA_VISIBLE_DEVICES": UUIDS, "MY_DEVICES": "a,b,c"},
            0,
            [{"MY_DEVICES": "a,b"}],
            id="a named variable, and one endpoint with less than all",
        ),
    ],
)
def test_devices_are_shared_out(
    fields: dict[str, object], environment: dict[str, str], device_num: int, expected: list[dict[str, str]]
) -> None:
    declared = engine(1)
    units = with_endpoints([replace(declared, engine=replace(Engine(), **fields))])
    assert [visible_devices(unit.engine, environment, device_num) for unit in units if unit.engine] == expected


@pytest.mark.parametrize(
    "fields, environment, message",
    [
        (
            {"endpoints": 2, "devices_per_endpoint": 2},
            {"CUDA_VISIBLE_DEVICES": "0,1,2"},
            "2 endpoints with 2 devices each need 4, this pod has 3 (CUDA_VISIBLE_DEVICES=0,1,2)",
        ),
        (
            {"endpoints": 2, "devices_per_endpoint": 1},
            {},
            "2 endpoints with 1 devices each need 2, this pod has 0 "
            "(CUDA_VISIBLE_DEVICES is not set, and supervisor.device_num counts them)",
        ),
        (
            {"endpoints": 2},
            {"CUDA_VISIBLE_DEVICES": "0,1,2"},
            "3 devices (CUDA_VISIBLE_DEVICES) cannot be shared out to 2 endpoints: set DevicesPerEndpoint",
        ),
    ],
)
def test_devices_that_do_not_suffice(fields: dict[str, object], environment: dict[str, str], message: str) -> None:
    with pytest.raises(DevicesError) as error:
        visible_devices(replace(Engine(), **fields), environment, 0)
    assert str(error.value) == message


@given(endpoints=st.integers(1, 8), share=st.integers(1, 8), spare=st.integers(0, 5))
def test_no_device_belongs_to_two_endpoints(endpoints: int, share: int, spare: int) -> None:
    devices = [f"GPU-{number}" for number in range(endpoints * share + spare)]
    seen: list[str] = []
    for unit in with_endpoints([engine(endpoints, devices_per_endpoint=share)]):
        assert unit.engine is not None
        shown = visible_devices(unit.engine, {"CUDA_VISIBLE_DEVICES": ",".join(devices)}, 0)
        seen += shown["CUDA_VISIBLE_DEVICES"].split(",")
    assert seen == devices[: endpoints * share]
