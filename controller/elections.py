"""Which election the settings ask for."""

from __future__ import annotations

import ssl
from pathlib import Path

from controller.election import Election, MemoryElection
from controller.sections import EtcdSection
from controller.settings import Settings
from controller.store.etcd import Keys
from controller.store.etcd_client import Access
from controller.store.etcd_election import EtcdElection
from controller.store.memory import MemoryStore
from controller.store.sqlite_election import SqliteElection
from supervisor.shared.small_file import read_small
from supervisor.shared.tls import TlsError


def election_of(settings: Settings, url: str) -> Election:
    """`url` is where supervisors reach this controller. Raises TlsError."""
    if settings.controller.store == "etcd":
        return EtcdElection(_access(settings.etcd), Keys(settings.etcd.prefix), url, settings.etcd.lease_sec)
    if settings.controller.store == "sqlite":
        return SqliteElection(url, Path(settings.controller.state_dir))
    return MemoryElection(url, MemoryStore())


def _access(etcd: EtcdSection) -> Access:
    return Access(
        etcd.endpoints,
        user=etcd.user,
        password=lambda: read_small(Path(etcd.password_file)).decode().strip(),
        tls=_tls(etcd) if etcd.ca or etcd.cert else None,
    )


def _tls(etcd: EtcdSection) -> ssl.SSLContext:
    """Names are compared here: etcd's addresses are known when its certificates are made."""
    try:
        context = ssl.create_default_context(cafile=etcd.ca or None)
        if etcd.cert:
            context.load_cert_chain(etcd.cert, etcd.key)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"cannot use the files of [etcd] (ca, cert, key): {error}") from error
    return context
