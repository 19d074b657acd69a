"""The numbers by which the decisions are made; `controller.settings` fills them from podvisor.toml.

Ranges and relations are checked there, where a mistake can be named by file and line. Durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase2Scope(StrEnum):
    """Whose containers restart when a start could not be dispatched to everybody."""

    ALL = "all"
    UNDISPATCHED = "undispatched"
    """The seed's letter in every case (S05)."""


class OnMemberLost(StrEnum):
    """What the other members do when one's container has restarted, or cannot be reached."""

    REJOIN = "rejoin"
    """They stop their engines in place and wait for it."""
    RESTART_ALL = "restart-all"
    """Their containers restart too (S28)."""


class OnPrefillRelaunch(StrEnum):
    """What decode instances do when a prefill comes back with new engines."""

    NONE = "none"
    RELAUNCH_DECODE = "relaunch-decode"
    """Their engines remember dead sessions for ever."""


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    heartbeat_interval_sec: float = 3.0
    """What the supervisors do; fresh means at most three of them old (C6)."""
    heartbeat_timeout_active_sec: float = 10.0
    heartbeat_timeout_inactive_sec: float = 300.0

    @property
    def fresh_sec(self) -> float:
        return 3 * self.heartbeat_interval_sec


@dataclass(frozen=True, slots=True)
class FleetSettings:
    max_phase2_fraction: float = 0.3
    window_sec: float = 600.0
    canary_min_interval_sec: float = 300.0
    """0: no instance is put off for another."""


@dataclass(frozen=True, slots=True)
class RelaunchSettings:
    """The first group carries the seed's names and can be set; the second is fixed by design 4."""

    enable_engine_relaunch: bool = True
    engine_relaunch_complete_timeout_sec: float = 600.0
    engine_relaunch_poll_interval_sec: float = 5.0
    engine_relaunch_dispatch_retries: int = 3
    engine_relaunch_nm_unreachable_threshold: int = 3
    engine_relaunch_prepare_timeout_sec: float = 120.0
    engine_relaunch_max_attempts: int = 3
    engine_relaunch_stable_sec: float = 600.0
    engine_relaunch_backoff_sec: float = 30.0
    engine_relaunch_backoff_max_sec: float = 600.0
    engine_relaunch_phase2_scope: Phase2Scope = Phase2Scope.ALL
    on_member_lost: OnMemberLost = OnMemberLost.REJOIN
    rejoin_timeout_sec: float = 300.0
    phase2_timeout_sec: float = 300.0
    on_prefill_relaunch: OnPrefillRelaunch = OnPrefillRelaunch.NONE

    status_timeout_sec: float = 2.0
    """Connecting included, which the client bounds by 1 s."""
    prepare_answer_timeout_sec: float = 12.0
    """A supervisor answers after 10 s at the latest, prepared or not."""
    start_answer_timeout_sec: float = 10.0
    farewell_timeout_sec: float = 3.0
    """Of one abort or stop, and of the whole clean-up of an aborted run."""
    retry_gap_sec: float = 1.0
    start_hard_cap_sec: float = 3600.0
    """The engines' TimeoutStartSec: AWAIT ends here, progress or not."""
    resumed_sec: float = 30.0
    """Of a step that is resumed, at least."""
    max_rereads: int = 3
    """How often one run takes a higher epoch because somebody answered `stale_epoch`."""

    @property
    def rejoins(self) -> bool:
        """Survivors that may not be relaunched in place cannot wait in place either."""
        return self.enable_engine_relaunch and self.on_member_lost is OnMemberLost.REJOIN

    @property
    def relaunches_decode(self) -> bool:
        """The one switch of the relaunch is that of this one too."""
        return self.enable_engine_relaunch and self.on_prefill_relaunch is OnPrefillRelaunch.RELAUNCH_DECODE


@dataclass(frozen=True, slots=True)
class StrategySettings:
    """Of the recoveries beside the relaunch."""

    switches: frozenset[str] = frozenset({"enable_token_reinference", "enable_uce_recovery"})
    """Names of the settings that are on."""
    recover_timeout_sec: float = 90.0
    """Until every engine has recovered itself and serves; a supervisor gives its own 60 s."""
    recover_answer_timeout_sec: float = 12.0
    """A supervisor answers after 10 s at the latest, done or not."""
    isolation_timeout_sec: float = 30.0
    """Until a decode instance is out of routing, before others are given up for it."""
    scale_drain_timeout_sec: int = 120
    """vLLM's default: how long it lets requests finish before ranks come or go."""
    scale_timeout_sec: float = 600.0
    """Of the whole rescaling: new ranks load their weights."""
