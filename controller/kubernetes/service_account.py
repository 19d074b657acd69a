"""Where the API is, and as whom a pod speaks to it: its service account's directory, kept current by the kubelet."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from controller.sections import KubernetesSection
from supervisor.shared.small_file import read_small


class NotInACluster(Exception):
    """The client is switched on where nothing says how to reach an API; what is missing, and what to do."""


class ServiceAccount:
    def __init__(self, settings: KubernetesSection, environment: Mapping[str, str]) -> None:
        """Raises NotInACluster."""
        self._directory = Path(settings.service_account_dir)
        self.url = settings.api_url or _url(environment)
        self.namespaces = settings.namespaces or (self._read("namespace"),)
        self.tls = self._trust() if self.url.startswith("https:") else None
        self._token, self._stamp = self._read("token"), self._now()

    def token(self) -> str:
        """As it is now: the kubelet writes another long before it ends. One that cannot be read is the old one."""
        stamp = self._now()
        if stamp != self._stamp:
            self.read_again()
        return self._token

    def read_again(self) -> bool:
        """Whether it is another; asked when the API refuses the one that it had."""
        before, self._stamp = self._token, self._now()
        try:
            self._token = self._read("token")
        except NotInACluster:
            return False
        return self._token != before

    def _now(self) -> tuple[int, int] | None:
        try:
            found = (self._directory / "token").stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _read(self, name: str) -> str:
        path = self._directory / name
        try:
            return read_small(path).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NotInACluster(
                f"kubernetes.enable is set, but {path} cannot be read ({error}): give the pod a service account"
                " (automountServiceAccountToken: true), or set kubernetes.service_account_dir"
            ) from error

    def _trust(self) -> ssl.SSLContext:
        path = self._directory / "ca.crt"
        try:
            return ssl.create_default_context(cafile=path)
        except (OSError, ssl.SSLError) as error:
            raise NotInACluster(f"kubernetes.enable is set, but {path} is no CA that can be used: {error}") from error


def _url(environment: Mapping[str, str]) -> str:
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise NotInACluster(
            "kubernetes.enable is set, but KUBERNETES_SERVICE_HOST is not: this is no pod; set kubernetes.api_url"
        )
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"
