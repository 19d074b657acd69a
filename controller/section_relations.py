"""How the sections of podvisor.toml must fit together, and with which words a controller refuses those that do not."""

from __future__ import annotations

from collections.abc import Iterator

from controller.sections import (
    AuthSection,
    ControllerSection,
    EtcdSection,
    FaultToleranceSection,
    TlsSection,
)
from supervisor.settings_file import (
    Mistake,
    Sections,
    build,
    tls_mistakes,
)
from supervisor.shared.listening import ANY_ADDRESS, is_loopback

TAKE_OVER_SEC = 15.0
"""How long a supervisor may hear nothing of a run while the one controller there is restarts."""
TAKE_OVER_LEASES = 2.0
"""The same while another of several controllers takes over, in leases."""


def relations(values: Sections) -> Iterator[Mistake]:
    tls = build(TlsSection, values["tls"])
    controller, etcd = build(ControllerSection, values["controller"]), build(EtcdSection, values["etcd"])
    yield from _safe_to_serve(controller, build(AuthSection, values["auth"]), tls)
    yield from tls_mistakes(tls.cert, tls.key, tls.client_ca)
    if controller.store == "sqlite" and not controller.state_dir:
        yield Mistake("controller", "state_dir", 'must be set, because controller.store is "sqlite"')
    take_over_sec = TAKE_OVER_SEC
    if controller.store == "etcd":
        yield from _elects(controller, etcd)
        take_over_sec = TAKE_OVER_LEASES * etcd.lease_sec
    yield from _periods(build(FaultToleranceSection, values["fault_tolerance_config"]), take_over_sec)


def _safe_to_serve(controller: ControllerSection, auth: AuthSection, tls: TlsSection) -> Iterator[Mistake]:
    if controller.port == controller.probe_port != 0:
        yield Mistake("controller", "probe_port", f"must differ from port, which is {controller.port} too")
    if not (is_loopback(controller.host) or auth.token_file or tls.client_ca or auth.allow_anonymous):
        yield Mistake(
            "controller",
            "host",
            f"{controller.host} can be reached from elsewhere: set auth.token_file or [tls],"
            " or auth.allow_anonymous = true",
        )


def _elects(controller: ControllerSection, etcd: EtcdSection) -> Iterator[Mistake]:
    if not etcd.endpoints:
        yield Mistake("etcd", "endpoints", 'must be set, because controller.store is "etcd"')
    if not etcd.prefix.endswith("/"):
        yield Mistake("etcd", "prefix", f"{etcd.prefix!r} must end with /, or it could begin another fleet's keys")
    if controller.host.strip("[]") in ANY_ADDRESS and controller.advertise_url is None:
        yield Mistake(
            "controller",
            "advertise_url",
            f"must be set, because {controller.host} says nothing about where supervisors reach this controller",
        )
    for one, other in (("user", "password_file"), ("cert", "key")):
        if bool(getattr(etcd, one)) != bool(getattr(etcd, other)):
            yield Mistake("etcd", one, f"must be set together with etcd.{other}")


def _periods(fault: FaultToleranceSection, take_over_sec: float) -> Iterator[Mistake]:
    section = "fault_tolerance_config"
    if fault.engine_restart_freeze_sec <= fault.engine_relaunch_complete_timeout_sec:
        yield Mistake(
            section,
            "engine_restart_freeze_sec",
            f"{fault.engine_restart_freeze_sec:g} s must be longer than"
            f" engine_relaunch_complete_timeout_sec ({fault.engine_relaunch_complete_timeout_sec:g} s):"
            " a supervisor would end itself while its engine may still load",
        )
    if fault.engine_restart_freeze_sec <= fault.rejoin_timeout_sec:
        yield Mistake(
            section,
            "engine_restart_freeze_sec",
            f"{fault.engine_restart_freeze_sec:g} s must be longer than"
            f" rejoin_timeout_sec ({fault.rejoin_timeout_sec:g} s):"
            " a supervisor would end itself while it still waits for a lost member",
        )
    silence = 3 * fault.engine_relaunch_poll_interval_sec + take_over_sec
    if fault.engine_restart_freeze_silence_sec < silence:
        yield Mistake(
            section,
            "engine_restart_freeze_silence_sec",
            f"{fault.engine_restart_freeze_silence_sec:g} s must be at least {silence:g} s:"
            f" three times engine_relaunch_poll_interval_sec plus {take_over_sec:g} s to take a run over",
        )
    stopped = fault.engine_relaunch_backoff_max_sec + fault.engine_relaunch_prepare_timeout_sec
    if fault.engine_restart_freeze_sec < stopped:
        yield Mistake(
            section,
            "engine_restart_freeze_sec",
            f"{fault.engine_restart_freeze_sec:g} s must be at least {stopped:g} s, which is"
            " engine_relaunch_backoff_max_sec plus engine_relaunch_prepare_timeout_sec:"
            " a supervisor would end itself in a back-off, its engine stopped",
        )
    if fault.engine_relaunch_backoff_max_sec < fault.engine_relaunch_backoff_sec:
        yield Mistake(
            section,
            "engine_relaunch_backoff_max_sec",
            f"{fault.engine_relaunch_backoff_max_sec:g} s must not be shorter than"
            f" engine_relaunch_backoff_sec ({fault.engine_relaunch_backoff_sec:g} s)",
        )
