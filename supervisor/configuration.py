"""What one `podvisor run` goes by, read and checked before anything is started: settings, units, paths, identity."""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from supervisor import wire
from supervisor.agreement import disagreements, one_server, parallel_config
from supervisor.engine.launchers.fabric import Fabric, NoSuchInterface, fabric_of
from supervisor.engine.model.placement import Place
from supervisor.identity import NODE_INDEXES
from supervisor.process.interfaces import addresses_by_interface
from supervisor.settings import Settings, load_settings, runtime_directories
from supervisor.settings_file import ENVIRONMENT
from supervisor.shared.tls import Tls, TlsError, tls_files
from supervisor.shared.tokens import TokenError, TokenFile
from supervisor.unit.errors import ConfigurationError, Problem
from supervisor.unit.expand import CREDENTIAL, ExpansionError, expand_unit, undefined_variables
from supervisor.unit.machine_checks import PLACEMENT, is_placement
from supervisor.unit.model import Engine, RestartWith, Unit
from supervisor.unit.parse import load, load_units
from supervisor.version import VERSION

BASE_PORT_ABOVE, BOOTSTRAP_PORT_ABOVE = 10, 90
"""Above `port_base`: what lies between is for further endpoints."""


BY_POD = frozenset({"HOSTNAME", "NODE_NAME", *NODE_INDEXES})
"""Beside POD_…: variables of the platform that differ between the pods of one instance."""


class Options(msgspec.Struct, frozen=True):
    """The command line."""

    config: Path | None
    units: tuple[Path, ...]
    socket: Path | None


class Configuration(msgspec.Struct, frozen=True):
    options: Options
    settings: Settings
    units: tuple[Unit, ...]
    environment: Mapping[str, str]
    socket: Path
    state_dir: Path
    pod_ip: str
    boot_id: str
    warnings: tuple[str, ...]
    fabric: Fabric | None = None
    previous_container: str | None = None
    """How the life before this one ended, if not in order."""

    @property
    def engines(self) -> tuple[tuple[Unit, ...], ...]:
        """The endpoints of each engine's file. The engine that may belong to a gang comes first."""
        by_file: dict[str, tuple[Unit, ...]] = {}
        for unit in sorted(self.units, key=_endpoint_number):
            if unit.engine is not None:
                by_file[unit.engine.declared_by] = (*by_file.get(unit.engine.declared_by, ()), unit)
        return tuple(sorted(by_file.values(), key=_stays_local))

    @property
    def coordinated(self) -> bool:
        return bool(self.settings.supervisor.controller_url)


def configure(options: Options, environment: Mapping[str, str]) -> Configuration:
    """Raise ConfigurationError with all problems of all files."""
    settings, units = read_files(options, environment)
    supervisor = settings.supervisor
    pod_ip = supervisor.pod_ip or _address_towards(supervisor.controller_url)
    directory, warnings = _runtime_directory(environment)
    return Configuration(
        options=options,
        settings=settings,
        units=ported(units, supervisor.port_base),
        environment=environment,
        socket=options.socket or Path(supervisor.socket or directory / "podvisor.sock"),
        state_dir=Path(supervisor.state_dir or directory),
        pod_ip=pod_ip,
        boot_id=str(uuid.uuid4()),
        warnings=warnings,
        fabric=_fabric(settings, pod_ip, options.config) if any(unit.engine for unit in units) else None,
    )


def read_files(options: Options, environment: Mapping[str, str]) -> tuple[Settings, tuple[Unit, ...]]:
    """What stands in them now. Raise ConfigurationError with all problems of all files."""
    problems: list[Problem] = []
    settings: Settings | None = None
    units: tuple[Unit, ...] = ()
    try:
        settings = load_settings(options.config, environment)
    except ConfigurationError as error:
        problems += error.problems
    try:
        units = load_units(options.units)
    except ConfigurationError as error:
        problems += error.problems
    if settings is not None:
        problems += _token_problems(settings, options.config)
        problems += _tls_problems(settings, options.config)
        problems += _disagreements(units, settings, options, environment)
    if settings is None or problems:
        raise ConfigurationError(problems)
    return settings, units


def settled_variables(configuration: Configuration) -> dict[str, str]:
    """The placement variables that hold for this pod whatever the controller says later."""
    section = configuration.settings.supervisor
    known: dict[str, object] = {
        "JOB_NAME": section.job_name,
        "ROLE": section.role,
        "NNODES": section.nnodes,
        "POD_IP": configuration.pod_ip,
        "NODE_RANK": section.node_index if section.nnodes > 1 else 0,
    }
    return {name: str(value) for name, value in known.items() if value is not None}


def identity_of(configuration: Configuration, unit: Unit, nm_port: int) -> wire.SupervisorIdentity:
    """Who this supervisor is, for the controller."""
    settings = configuration.settings
    supervisor, pod, fault = settings.supervisor, settings.pod, settings.fault_tolerance_config
    assert unit.engine is not None, f"{unit.name} is no engine"
    first, last = supervisor.rendezvous_ports
    return wire.SupervisorIdentity(
        job_name=supervisor.job_name,
        model_name=supervisor.model_name,
        role=supervisor.role,
        pod_ip=configuration.pod_ip,
        nm_port=str(nm_port),
        parallel_config=parallel_config(unit, settings, configuration.environment),
        device_num=supervisor.device_num,
        nnodes=supervisor.nnodes,
        enable_engine_relaunch=fault.enable_engine_relaunch,
        freeze_sec=fault.engine_restart_freeze_sec,
        namespace=pod.namespace,
        pod_name=pod.name,
        pod_uid=pod.uid,
        node_name=pod.node_name,
        boot_id=configuration.boot_id,
        node_index=supervisor.node_index,
        bootstrap_port=str(unit.engine.bootstrap_port),
        rendezvous_ports=f"{first}-{last}",
        one_server=one_server(unit),
        config_digest=config_digest(unit, configuration.environment),
        version=VERSION,
        protocol=wire.PROTOCOL,
        features=(*wire.FEATURES, *((wire.Action.RECOVER.value,) if unit.engine.recovers else ())),
        previous_container=configuration.previous_container,
    )


def local_ranks(configuration: Configuration) -> int:
    """How many ranks of its engine run in this pod, as far as the settings and the unit say."""
    if not configuration.engines:
        return 0
    unit = configuration.engines[0][0]
    declared = unit.engine.local_ranks if unit.engine is not None else None
    return declared or parallel_config(unit, configuration.settings, configuration.environment).local_world_size


def place_of(configuration: Configuration, unit: Unit) -> Place | None:
    """Where this pod's engine stands when no controller says so; None if the settings do not tell."""
    section = configuration.settings.supervisor
    addresses = (configuration.pod_ip,) if section.nnodes == 1 else section.node_addrs
    rank = 0 if section.nnodes == 1 else section.node_index
    if rank is None or len(addresses) != section.nnodes:
        return None
    dp_size = parallel_config(unit, configuration.settings, configuration.environment).dp_size
    return Place(rank, addresses, section.rendezvous_ports[0], dp_size, one_server(unit))


def config_digest(unit: Unit, environment: Mapping[str, str]) -> str:
    """The same in every pod of an instance that is to run the same engine (design 8, Rollouts).

    The engine's unit with its variables expanded; what differs by rank or by pod stands as written. Pods that
    share an address (hostNetwork) need a BasePort and a BootstrapPort each, and every placement carries its own, so
    these are left out.
    MgmtPort is not: node rank 0 of llama-server looks for its workers on its own.
    """
    by_pod = {name for name in environment if name in BY_POD or name.startswith("POD_")}
    by_rank = PLACEMENT | {name for name in undefined_variables(unit, frozenset()) if is_placement(name)}
    secret = {f"{CREDENTIAL}{name}" for name, _ in unit.service.execution.credentials}
    as_written = {name: f"${{{name}}}" for name in by_pod | by_rank | secret}
    try:
        shared = expand_unit(unit, {**environment, **as_written})
    except ExpansionError:
        shared = unit  # it will fail at its start with that message; until then what is written is compared
    assert shared.engine is not None, f"{unit.name} is no engine"
    engine = replace(shared.engine, base_port=0, bootstrap_port=0)
    return hashlib.sha256(repr(replace(shared, source=Path(), engine=engine)).encode()).hexdigest()[:16]


def _endpoint_number(unit: Unit) -> int:
    return unit.engine.endpoint_number if unit.engine is not None else 0


def _stays_local(endpoints: tuple[Unit, ...]) -> bool:
    engine = endpoints[0].engine
    return engine is not None and engine.restart_with is RestartWith.LOCAL


def ported(units: Sequence[Unit], port_base: int | None) -> tuple[Unit, ...]:
    return tuple(_ported(unit, port_base) for unit in units)


def _ported(unit: Unit, port_base: int | None) -> Unit:
    """With hostNetwork every port that the file leaves at its default counts from `port_base`."""
    if unit.engine is None or port_base is None:
        return unit
    above = {"base_port": port_base + BASE_PORT_ABOVE, "bootstrap_port": port_base + BOOTSTRAP_PORT_ABOVE}
    default = Engine()
    moved = {name: port for name, port in above.items() if getattr(unit.engine, name) == getattr(default, name)}
    return replace(unit, engine=replace(unit.engine, **moved))


def _token_problems(settings: Settings, config: Path | None) -> Iterator[Problem]:
    """It is read again whenever it changes; but a supervisor that cannot read it now would serve nobody."""
    path = settings.auth.token_file
    if path is None:
        return
    try:
        TokenFile(Path(path), now=0.0)
    except TokenError as error:
        yield Problem(config or ENVIRONMENT, None, "auth.token_file", str(error))


def _tls_problems(settings: Settings, config: Path | None) -> Iterator[Problem]:
    files = tls_files(settings.tls.cert, settings.tls.key, settings.tls.client_ca)
    if files is None:
        return
    try:
        Tls(files)
    except TlsError as error:
        yield Problem(config or ENVIRONMENT, None, "tls.cert", str(error))


def _disagreements(
    units: Sequence[Unit], settings: Settings, options: Options, environment: Mapping[str, str]
) -> Iterator[Problem]:
    engines = [unit for unit in units if unit.engine is not None and unit.engine.endpoint_number == 0]
    found = {unit.engine.declared_by: disagreements(unit, settings, environment) for unit in engines if unit.engine}
    if not any(found.values()):
        return
    # Only now are the lines worth the time of reading the files once more.
    for loaded in load(options.units):
        for path, message in found.get(loaded.unit.name, ()):
            yield loaded.document.problem(path, message)


def _fabric(settings: Settings, pod_ip: str, config: Path | None) -> Fabric | None:
    """Ranks of one pod meet on loopback; which interface leads to others, only several nodes ask.

    Raise ConfigurationError.
    """
    wanted = settings.supervisor.fabric_interface
    if wanted is None and settings.supervisor.nnodes == 1:
        return None
    try:
        return fabric_of(addresses_by_interface(), wanted, pod_ip)
    except NoSuchInterface as error:
        problem = Problem(config or ENVIRONMENT, None, "supervisor.fabric_interface", str(error))
        raise ConfigurationError([problem]) from error


def _runtime_directory(environment: Mapping[str, str]) -> tuple[Path, tuple[str, ...]]:
    preferred, fallback = runtime_directories(environment, os.getuid())
    if _can_be_made(preferred):
        return preferred, ()
    return fallback, (f"cannot write {preferred}: socket and state are in {fallback}",)


def _can_be_made(directory: Path) -> bool:
    existing = directory
    while not existing.exists():
        existing = existing.parent
    return os.access(existing, os.W_OK | os.X_OK)


def _address_towards(urls: Sequence[str]) -> str:
    """Our address on the way to the controller; nothing is sent. Loopback without a controller.

    Raise ConfigurationError: with a guess the controller would be told an address at which nobody finds us.
    """
    if not urls:
        return "127.0.0.1"
    target = urlsplit(urls[0])
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            target.hostname, target.port or 80, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        message = f"not set, and there is no way to {urls[0]} that would tell this pod's address: {error}"
        raise ConfigurationError([Problem(ENVIRONMENT, None, "POD_IP", message)]) from error
