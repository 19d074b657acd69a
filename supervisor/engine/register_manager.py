"""Who this supervisor is and what it remembers: registration and metadata, apart from process management (S18).

It builds the messages by which the controller knows us, and keeps the highest epoch and term seen, the master's
address, the role and the launch parameters in the state directory. What is read back fences old commands after a
container restart; it never starts an engine in a new boot. Nothing here waits or speaks to anybody.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec

from supervisor import wire
from supervisor.engine.model.operation import Operation
from supervisor.process.state_files import Keep
from supervisor.wire import StartCmdMsg, Step

log = logging.getLogger(__name__)

STATE_FILE = "registration.json"


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The state file."""

    epoch: int = 0
    term: int = 0
    boot_id: str | None = None
    instance_id: int = 0
    master_dp_ip: str | None = None
    role: str | None = None
    placement: StartCmdMsg | None = None


class ServicePorts(msgspec.Struct, frozen=True):
    """Of this pod's endpoints, as text like everywhere on the wire."""

    business: tuple[str, ...]
    management: tuple[str, ...]


class RegisterManager:
    def __init__(self, identity: wire.SupervisorIdentity, ports: ServicePorts, state_dir: Path, keep: Keep) -> None:
        self.identity = identity
        self._ports = ports
        self._keep = keep
        self._path = state_dir / STATE_FILE
        self.remembered = self._load()

    def restart_params(self) -> StartCmdMsg | None:
        """The launch parameters of the engines that were last started or prepared here."""
        return self.remembered.placement

    def record(self, operation: Operation) -> None:
        """Keep what `operation` knows, if it is news. A disk that fails is logged; it never stops a relaunch."""
        placement = operation.placement
        now = Remembered(
            epoch=max(operation.epoch, self.remembered.epoch),
            term=max(operation.term, self.remembered.term),
            boot_id=operation.boot_id,
            instance_id=operation.instance_id,
            master_dp_ip=placement.master_dp_ip if placement is not None else None,
            role=placement.role if placement is not None else None,
            placement=placement,
        )
        if now == self.remembered:
            return
        self.remembered = now
        self._keep(self._path, msgspec.json.encode(now), self._failed)

    def register_message(self, operation: Operation) -> wire.RegisterMsg:
        return wire.RegisterMsg(
            **self._identity(),
            business_port=self._ports.business,
            mgmt_port=self._ports.management,
            held=operation.reason if operation.step is Step.HELD else None,
        )

    def reregister_message(self, operation: Operation, now: float) -> wire.ReregisterMsg | None:
        """For a controller that does not know our engines; None when none was ever started in this boot (design 7).

        None, too, for one that its own unit started beside those of other nodes: it is no rank of a gang.
        """
        placement = operation.placement
        if placement is None or not operation.ever_started:
            return None
        if placement.instance_id == 0 and placement.nnodes != self.identity.nnodes:
            return None
        return wire.ReregisterMsg(
            **self._identity(),
            instance_id=placement.instance_id,
            endpoints=placement.endpoints,
            node_rank=placement.node_rank,
            freeze_remaining_sec=operation.freeze_remaining(now),
        )

    def _identity(self) -> dict[str, Any]:
        known = self.remembered
        return msgspec.structs.asdict(msgspec.structs.replace(self.identity, epoch=known.epoch, term=known.term))

    def _load(self) -> Remembered:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Remembered)
        except FileNotFoundError:
            return Remembered()
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("cannot read %s: %s; starting from epoch 0", self._path, error)
            return Remembered()

    def _failed(self, error: OSError) -> None:
        log.error(
            "cannot write %s: %s; after a container restart older commands may be taken for new", self._path, error
        )
