"""What a launch needs from disk: environment files, credentials, the user database. Read anew for every start.

The reading alone is done in a thread; what is made of it, and what is remembered of secrets, on the loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from supervisor.process.disk import Disk
from supervisor.process.spawn import uid_of
from supervisor.service.credentials import CredentialError, Secrets, read_credentials
from supervisor.service.environment import EnvironmentFileError, account, read_environment_files
from supervisor.unit.expand import ExpansionError, expand
from supervisor.unit.model import Unit

T = TypeVar("T")


class LaunchError(Exception):
    """The unit cannot even be told what to execute; the unit fails with this message and its policy decides."""


class Declared(msgspec.Struct, frozen=True):
    """Which files, with the variables expanded."""

    environment: tuple[str, ...]
    credentials: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        return bool(self.environment or self.credentials)

    def __str__(self) -> str:
        return ", ".join(
            (
                *(f"EnvironmentFile {path}" for path in self.environment),
                *(f"LoadCredential {name}: {path}" for name, path in self.credentials),
            )
        )


class FromFiles(msgspec.Struct, frozen=True):
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    credentials: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The variables that stand for them in the strings of their unit."""


def declared_files(unit: Unit, known: Mapping[str, str]) -> Declared:
    """Raise LaunchError."""
    execution = unit.service.execution
    try:
        return Declared(
            tuple(expand(path, known) for path in execution.environment_files),
            tuple((name, expand(path, known)) for name, path in execution.credentials),
        )
    except ExpansionError as error:
        raise LaunchError(str(error)) from error


def read_declared(declared: Declared) -> FromFiles:
    """Blocks. Raise LaunchError."""
    try:
        return FromFiles(read_environment_files(declared.environment), read_credentials(declared.credentials))
    except (EnvironmentFileError, CredentialError) as error:
        raise LaunchError(str(error)) from error


class LaunchFiles:
    """One for a whole pod: units see each other's output, and so what must not be shown is known to all."""

    def __init__(self, disk: Disk | None = None, secrets: Secrets | None = None) -> None:
        self._disk = disk or Disk()
        self.secrets = secrets or Secrets()

    async def read(self, unit: Unit, known: Mapping[str, str]) -> FromFiles:
        """Raise LaunchError."""
        declared = declared_files(unit, known)
        if not declared:
            return FromFiles()
        try:
            found = await self._disk.ask(f"launch of {unit.name}", partial(read_declared, declared))
        except OSError as error:
            raise LaunchError(f"cannot read {declared}: {error.strerror}") from error
        self.secrets.remember(declared.credentials, found.credentials)
        return found

    async def uid_of(self, unit: str, user: str | None) -> int:
        """As `spawn.uid_of`. Raise LaunchError."""
        return os.geteuid() if user is None else await self._ask_users(unit, user, uid_of)

    async def account(self, unit: str, user: str | None) -> Mapping[str, str]:
        """As `environment.account`, of the user that a unit is run as. Raise LaunchError."""
        return {} if user is None else await self._ask_users(unit, user, account)

    async def _ask_users(self, unit: str, user: str, question: Callable[[str], T]) -> T:
        try:
            return await self._disk.ask(f"user of {unit}", partial(question, user))
        except OSError as error:
            raise LaunchError(f"cannot look up User = {user!r}: {error.strerror}") from error
