"""podvisor.toml -> Settings of the controller, once, with located errors, and from them the numbers of its decisions.

How a file is read stands in `supervisor.settings_file`; which keys there are in `sections`. The supervisor's sections
and keys may stand in the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controller.model.limits import Limits
from controller.model.settings import (
    FleetSettings,
    InstanceSettings,
    OnMemberLost,
    OnPrefillRelaunch,
    Phase2Scope,
    RelaunchSettings,
    StrategySettings,
)
from controller.policy import Policy
from controller.section_relations import relations
from controller.sections import (
    SECTIONS,
    AuthSection,
    ControllerSection,
    EtcdSection,
    FaultToleranceSection,
    InstanceSection,
    KubernetesSection,
    LimitsSection,
    PdSection,
    TlsSection,
)
from supervisor.settings_file import (
    Foreign,
    build,
    keys_of,
    read_sections,
)

FOREIGN: Foreign = {
    "supervisor": None,
    "parallel": None,
    "fault_tolerance_config": frozenset({"engine_restart_wait_timeout_sec", "enable_fault_tolerance"}),
}


@dataclass(frozen=True, slots=True)
class Settings:
    controller: ControllerSection = field(default_factory=ControllerSection)
    etcd: EtcdSection = field(default_factory=EtcdSection)
    instance: InstanceSection = field(default_factory=InstanceSection)
    fault_tolerance_config: FaultToleranceSection = field(default_factory=FaultToleranceSection)
    pd: PdSection = field(default_factory=PdSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    auth: AuthSection = field(default_factory=AuthSection)
    tls: TlsSection = field(default_factory=TlsSection)
    kubernetes: KubernetesSection = field(default_factory=KubernetesSection)

    def policy(self) -> Policy:
        """The numbers by which the decisions are made."""
        fault = self.fault_tolerance_config
        return Policy(
            relaunch=RelaunchSettings(
                enable_engine_relaunch=fault.enable_engine_relaunch,
                engine_relaunch_complete_timeout_sec=fault.engine_relaunch_complete_timeout_sec,
                engine_relaunch_poll_interval_sec=fault.engine_relaunch_poll_interval_sec,
                engine_relaunch_dispatch_retries=fault.engine_relaunch_dispatch_retries,
                engine_relaunch_nm_unreachable_threshold=fault.engine_relaunch_nm_unreachable_threshold,
                engine_relaunch_prepare_timeout_sec=fault.engine_relaunch_prepare_timeout_sec,
                engine_relaunch_max_attempts=fault.engine_relaunch_max_attempts,
                engine_relaunch_stable_sec=fault.engine_relaunch_stable_sec,
                engine_relaunch_backoff_sec=fault.engine_relaunch_backoff_sec,
                engine_relaunch_backoff_max_sec=fault.engine_relaunch_backoff_max_sec,
                engine_relaunch_phase2_scope=Phase2Scope(fault.engine_relaunch_phase2_scope),
                on_member_lost=OnMemberLost(fault.on_member_lost),
                rejoin_timeout_sec=fault.rejoin_timeout_sec,
                phase2_timeout_sec=fault.phase2_timeout_sec,
                on_prefill_relaunch=OnPrefillRelaunch(self.pd.on_prefill_relaunch),
            ),
            instance=InstanceSettings(
                heartbeat_timeout_active_sec=self.instance.heartbeat_timeout_active_sec,
                heartbeat_timeout_inactive_sec=self.instance.heartbeat_timeout_inactive_sec,
            ),
            fleet=FleetSettings(
                max_phase2_fraction=fault.max_phase2_fraction,
                canary_min_interval_sec=fault.canary_min_interval_sec,
            ),
            strategies=StrategySettings(switches=self._switches()),
            check_interval_sec=fault.strategy_center_check_interval,
            assemble_timeout_sec=self.instance.instance_assemble_timeout,
            max_concurrent_runs=fault.max_concurrent_runs,
            limits=Limits(
                requests_per_sec=self.limits.requests_per_sec,
                requests_in_flight=self.limits.requests_in_flight,
                event_followers=self.limits.event_followers,
            ),
        )

    def _switches(self) -> frozenset[str]:
        fault = self.fault_tolerance_config
        switches = {
            "enable_token_reinference": fault.enable_token_reinference,
            "enable_uce_recovery": fault.enable_uce_recovery,
            "enable_elastic_scaling": fault.enable_elastic_scaling,
            "enable_scale_p2d": fault.enable_scale_p2d,
        }
        return frozenset(name for name, is_on in switches.items() if is_on)


def load(path: Path | None, environment: Mapping[str, str], *, foreign: Foreign = FOREIGN) -> Settings:
    """`foreign`: what others read in the same file.

    Raises ConfigurationError with all problems of the file and the environment.
    """
    sections = {name: keys_of(section) for name, section in SECTIONS.items()}
    values = read_sections(path, environment, sections, foreign=foreign, relations=relations)
    return Settings(
        controller=build(ControllerSection, values["controller"]),
        etcd=build(EtcdSection, values["etcd"]),
        instance=build(InstanceSection, values["instance"]),
        fault_tolerance_config=build(FaultToleranceSection, values["fault_tolerance_config"]),
        pd=build(PdSection, values["pd"]),
        limits=build(LimitsSection, values["limits"]),
        auth=build(AuthSection, values["auth"]),
        tls=build(TlsSection, values["tls"]),
        kubernetes=build(KubernetesSection, values["kubernetes"]),
    )
