"""Gangs for tests of launchers, placed as the controller places them: by its registration, assembly and placement."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from controller.model.assembly import Joined, register
from controller.model.instance import Instance
from controller.model.placement import placement
from controller.model.settings import InstanceSettings
from supervisor.engine.launchers import LaunchPlan, plan_launch, rank_of
from supervisor.engine.launchers.fabric import Fabric
from supervisor.unit.model import Engine, Unit
from supervisor.unit.parallel import has_one_server, ranks_of_gang, sizes_of
from supervisor.wire import ParallelConfig, RegisterMsg, StartCmdMsg


def unit_of(engine: Engine, **fields: object) -> Unit:
    return replace(Unit(name="engine", source=Path("units/engine.toml"), engine=engine), **fields)


def addresses_of(nnodes: int, *, six: bool = False) -> tuple[str, ...]:
    return tuple(f"fd00::{rank + 1}" if six else f"10.0.0.{rank + 1}" for rank in range(nnodes))


def placed(
    engine: Engine, nnodes: int = 1, *, epoch: int = 1, role: str = "union", six: bool = False
) -> tuple[StartCmdMsg, ...]:
    """One start command for every node, in rank order."""
    sizes = sizes_of(engine)
    assert sizes is not None, "a launcher that knows the sizes"
    instance: Instance | None = None
    for index, address in enumerate(addresses_of(nnodes, six=six)):
        message = RegisterMsg(
            job_name="job",
            model_name="model",
            role=role,
            pod_ip=address,
            nm_port="1026",
            business_port=(str(engine.base_port),),
            mgmt_port=(str(engine.base_port),),
            nnodes=nnodes,
            node_index=index,
            parallel_config=ParallelConfig(dp_size=ranks_of_gang(engine, sizes, nnodes)),
            bootstrap_port=str(engine.bootstrap_port),
            rendezvous_ports="29500-29599",
            one_server=has_one_server(engine),
        )
        joined = register(instance, message, now=0.0, new_id=1, settings=InstanceSettings())
        assert isinstance(joined, Joined), joined
        instance = joined.instance
    assert instance is not None
    assert instance.complete
    return tuple(placement(instance, member, epoch=epoch, run_id="run", term=1) for member in instance.members)


def plans(
    engine: Engine,
    nnodes: int = 1,
    *,
    epoch: int = 1,
    role: str = "union",
    six: bool = False,
    interface: str | None = "eth0",
    fields: Mapping[str, object] | None = None,
) -> tuple[LaunchPlan, ...]:
    """What every node of the gang executes, in rank order."""
    unit = unit_of(engine, **(fields or {}))
    found = []
    for command, address in zip(
        placed(engine, nnodes, epoch=epoch, role=role, six=six), addresses_of(nnodes, six=six), strict=True
    ):
        fabric = Fabric(interface, address) if interface is not None and nnodes > 1 else None
        found.append(plan_launch(unit, rank_of(command, pod_ip=address, fabric=fabric)))
    return tuple(found)


def value_of(plan: LaunchPlan, flag: str) -> str | None:
    """What follows a flag in the command line; None if it is not there."""
    return plan.argv[plan.argv.index(flag) + 1] if flag in plan.argv else None


def with_args(engine: Engine, **args: object) -> Engine:
    """`tensor_parallel_size=2` for `--tensor-parallel-size 2`."""
    return replace(engine, args=tuple((name.replace("_", "-"), value) for name, value in args.items()))
