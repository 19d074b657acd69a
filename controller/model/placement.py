"""Where the engines of each pod stand in their gang, in one epoch (design 7, StartCmdMsg; 8, Ports)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import msgspec

from controller.model.instance import Instance, endpoint_ids
from controller.model.member import Member
from controller.model.registration import port_range
from supervisor.wire import DeviceInfo, Endpoint, Ranktable, StartCmdMsg, rendezvous_port

DEFAULT_RENDEZVOUS_PORTS = range(29500, 29600)


def placement(instance: Instance, member: Member, *, epoch: int, run_id: str, term: int) -> StartCmdMsg:
    """Everything of a start but the moment. The instance must be complete: rank 0 is the master."""
    master = instance.members[0]
    return StartCmdMsg(
        job_name=instance.key.job_name,
        role=instance.spec.role,
        instance_id=instance.id,
        endpoints=_placed(instance, member),
        master_dp_ip=master.ip,
        ranktable=ranktable(instance),
        node_rank=member.node_rank,
        epoch=epoch,
        term=term,
        run_id=run_id,
        nnodes=instance.spec.nnodes,
        master_port=_master_port(master, epoch),
        dp_size=instance.spec.parallel.dp_size,
        node_addrs=tuple(m.ip for m in instance.members),
    )


def ranktable(instance: Instance) -> Ranktable | None:
    """One table of all pods, devices numbered over the whole gang; None unless every pod brought its own."""
    tables = [member.ranktable for member in instance.members]
    given = [table for table in tables if table is not None]
    if not given or len(given) < len(tables):
        return None
    ranks = count()
    servers = tuple(
        msgspec.structs.replace(
            server,
            device=tuple(msgspec.structs.replace(d, rank_id=str(next(ranks))) for d in server.device),
        )
        for table in given
        for server in table.server_list
    )
    return msgspec.structs.replace(given[0], server_count=str(len(servers)), server_list=servers)


@dataclass(frozen=True, slots=True)
class _Layout:
    """How data-parallel ranks and endpoints share out."""

    dp_size: int
    total: int

    def ranks(self, id_: int) -> tuple[int, int] | None:
        """First rank and count; None where the id is the rank."""
        if self.dp_size == self.total:
            return None
        if self.dp_size > self.total:
            each = self.dp_size // self.total
            return id_ * each, each
        return id_ * self.dp_size // self.total, 1


def _placed(instance: Instance, member: Member) -> tuple[Endpoint, ...]:
    spec = instance.spec
    layout = _Layout(spec.parallel.dp_size, spec.nnodes * spec.endpoints_per_node)
    return tuple(
        Endpoint(
            id=id_,
            ip=member.ip,
            business_port=member.business_ports[local],
            mgmt_port=member.mgmt_ports[local],
            device_infos=_devices(instance, member, local),
            headless=not spec.serves(member.node_rank),
            ranks=layout.ranks(id_),
            bootstrap_port=member.bootstrap_port if local == 0 else None,
            role=spec.role,
            model_name=spec.model_name,
        )
        for local, id_ in enumerate(endpoint_ids(instance, member))
    )


def _devices(instance: Instance, member: Member, local: int) -> tuple[DeviceInfo, ...]:
    """This endpoint's equal share of its pod's devices."""
    table = ranktable(instance)
    if table is None:
        return ()
    own = [device for s in table.server_list if s.container_ip == member.ip for device in s.device]
    share = len(own) // instance.spec.endpoints_per_node
    return tuple(own[local * share : (local + 1) * share])


def _master_port(master: Member, epoch: int) -> int:
    return rendezvous_port(port_range(master.rendezvous_ports or "") or DEFAULT_RENDEZVOUS_PORTS, epoch)
