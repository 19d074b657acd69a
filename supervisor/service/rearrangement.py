"""What is carried out on the set of units in one run: a cold start, a reload. Values only; `units.py` does it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from supervisor.service.launch import LaunchFactory
from supervisor.service.service import Service
from supervisor.unit.graph import Graph
from supervisor.unit.model import Unit
from supervisor.unit.state import Rules


class Definition(msgspec.Struct, frozen=True):
    """A declaration as a service goes by it."""

    unit: Unit
    rules: Rules
    launch: LaunchFactory


class Rearrangement(msgspec.Struct, frozen=True):
    graph: Graph
    """Of the units that are here afterwards."""
    added: tuple[Service, ...] = ()
    redefined: Mapping[str, Definition] = msgspec.field(default_factory=dict)
    stop: frozenset[str] = frozenset()
    """Stopped before anything else happens, those that come after others first."""
    removed: frozenset[str] = frozenset()
    """Of those stopped: here no more."""
    start: frozenset[str] = frozenset()
    """Asked to start in the end; each waits for those it comes After."""

    @property
    def declared(self) -> Mapping[str, Unit]:
        """Of the services that are new, or go by another declaration afterwards."""
        added = {service.unit.name: service.unit for service in self.added}
        return added | {name: definition.unit for name, definition in self.redefined.items()}
