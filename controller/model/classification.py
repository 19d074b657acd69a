"""Fault reports as they come over the wire -> faults with a level, a category and a code (design 5)."""

from __future__ import annotations

from controller.model.fault import ENGINE_DEAD, ENGINE_UNHEALTHY, Fault, FaultIdentity, FaultLevel
from controller.model.member import Member, MemberKey
from supervisor.wire import EngineHealth, FaultCategory, HardwareFaultMsg, SoftwareFaultMsg, WireError

LEVELS = {level.name: level for level in FaultLevel} | {
    "NotHandleFault": FaultLevel.L1,
    "SubHealthFault": FaultLevel.L1,
    "RestartRequest": FaultLevel.L2,
    "RestartBusiness": FaultLevel.L3,
    "FreeRestartNPU": FaultLevel.L4,
    "RestartNPU": FaultLevel.L5,
    "SeparateNPU": FaultLevel.L6,
    "PreSeparateNPU": FaultLevel.L6,
}
"""By our names and by those that device plug-ins of the reference system's platform use."""
HIGHEST_CODE = 0xFFFF_FFFF
LONGEST_WORDS = 2000
"""Of what a reporter says, who may say anything; a death is not refused because too much is said of it."""


def software_fault(message: SoftwareFaultMsg, member: MemberKey) -> Fault:
    level, code = {
        EngineHealth.HEALTHY: (FaultLevel.HEALTHY, 0),
        EngineHealth.DEAD: (FaultLevel.L2, ENGINE_DEAD),
        EngineHealth.UNHEALTHY: (FaultLevel.L2, ENGINE_UNHEALTHY),
    }[message.engine_status]
    return Fault(
        identity=FaultIdentity(member, message.epoch, message.engine_id, message.pid),
        level=level,
        category=message.category,
        code=code,
        message=f"engine {message.engine_id} on {message.pod_ip}: {message.exception_message[:LONGEST_WORDS]}",
        boot_id=message.boot_id,
        probe_derived=message.exception_type.startswith("unhealthy:"),
        canary=message.exception_type == "unhealthy:canary",
    )


def check_hardware_report(message: HardwareFaultMsg) -> FaultLevel:
    """Raises WireError naming the field that cannot be right."""
    if message.pod_ip is None and message.node_name is None:
        raise WireError("pod_ip or node_name: one of them is needed, to find whose device it is")
    level = LEVELS.get(message.fault_level)
    if level is None:
        raise WireError(f"fault_level: {message.fault_level!r} is none of {', '.join(LEVELS)}")
    lowest = 0 if level is FaultLevel.HEALTHY else 1
    if not lowest <= message.fault_code <= HIGHEST_CODE:
        raise WireError(
            f"fault_code: {message.fault_code} is not from {lowest} to {HIGHEST_CODE:#x}; 0 stands for every code"
            " and goes with fault_level HEALTHY only"
        )
    return level


def hardware_fault(message: HardwareFaultMsg, level: FaultLevel, member: Member) -> Fault:
    """Of a device, or of the whole node, on which `member` runs."""
    where = f"device {message.device} of {member.address}" if message.device else f"the node of {member.address}"
    said = f": {message.message[:LONGEST_WORDS]}" if message.message else ""
    return Fault(
        identity=FaultIdentity(member.key, device=message.device, code=message.fault_code),
        level=level,
        category=FaultCategory.HARDWARE,
        code=message.fault_code,
        message=f"{where} has fault {message.fault_code:#x} of level {level.name}{said}",
        boot_id=member.boot_id,
    )
