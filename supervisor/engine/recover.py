"""[Engine] RecoverHttp and RecoverExec: an engine that runs is asked to recover without a restart.

Token re-inference after a fault of the interconnect, or the repair of an uncorrectable memory error: what it does is
the engine's business, how it is asked is the unit's. When it may be asked is decided in `model/`.
"""

from __future__ import annotations

import math

from supervisor.engine.endpoint_engine import EndpointEngine
from supervisor.process.children import SpawnError
from supervisor.service.checks import check_http
from supervisor.service.launch import LaunchError
from supervisor.wire import StartCmdMsg


async def ask_to_recover(
    endpoint: EndpointEngine, placement: StartCmdMsg, recovery: str | None, fault_code: int | None
) -> str | None:
    """What is wrong; None if it has recovered, or has nothing of its own to recover. The caller sets the limit."""
    try:
        launch, engine = await endpoint.beside(placement)
        if engine.recover_http is not None:
            # A rank that serves no HTTP is recovered by the one that does.
            plan = await endpoint.plan(placement)
            return await check_http(engine.recover_http) if plan.serves_http else None
        if engine.recover_exec is None:
            return None
        told = {
            "MAINPID": str(endpoint.service.state.pid or ""),
            "PODVISOR_RECOVERY": recovery or "",
            "PODVISOR_FAULT_CODE": "" if fault_code is None else f"{fault_code:#x}",
        }
        report = await endpoint.service.run_beside(launch, engine.recover_exec, timeout_sec=math.inf, environment=told)
    except SpawnError as error:
        return error.reason
    except (LaunchError, OSError) as error:
        return str(error)
    return None if report.failure is None else f"RecoverExec {report.words}"
