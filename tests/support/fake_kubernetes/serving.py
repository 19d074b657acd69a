"""The fake API on a real port with TLS, for real clients: kubectl shows its token to nobody without."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from supervisor.shared.http_app import asgi
from supervisor.shared.serving import Connections
from tests.deploy.tools import INSTALL, tools_directory
from tests.support.certificates import make_ca, make_certificate
from tests.support.fake_kubernetes.server import FakeKubernetes

TOKEN = "controller-token-1"
USER = "podvisor-controller"


def find_kubectl() -> str | None:
    """The one that checks the manifests, else the machine's."""
    return shutil.which("kubectl", path=str(tools_directory() / "bin")) or shutil.which("kubectl")


KUBECTL = find_kubectl()
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason=f"no kubectl here: `{INSTALL}` installs it")


@dataclass(frozen=True)
class Served:
    """A fake API that listens, and a service account's directory for whoever is to speak to it."""

    fake: FakeKubernetes
    url: str
    account: Path

    def kubectl(self, *arguments: str, token: str = "admin") -> list[str]:
        """The command line; nothing of the user's own configuration is in it."""
        assert KUBECTL is not None
        ca = f"--certificate-authority={self.account / 'ca.crt'}"
        own = ["--kubeconfig=/dev/null", f"--cache-dir={self.account.parent / 'kubectl-cache'}"]
        return [KUBECTL, *own, f"--server={self.url}", f"--token={token}", ca, *arguments]


def write_account(directory: Path, ca: Path, namespace: str = "default") -> Path:
    """What the kubelet mounts into a pod."""
    directory.mkdir()
    (directory / "token").write_text(TOKEN)
    (directory / "namespace").write_text(namespace)
    shutil.copy(ca, directory / "ca.crt")
    return directory


@asynccontextmanager
async def served(fake: FakeKubernetes, directory: Path, host: str = "127.0.0.1") -> AsyncIterator[Served]:
    """`directory` gets the certificates and the account. Ends with the block, whatever is open."""
    make_ca(directory)
    make_certificate(directory, "api", address=host)
    account = write_account(directory / "service-account", directory / "ca.crt")
    fake.access.tokens[TOKEN] = USER
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "api.crt", directory / "api.key")
    (listener,) = await trio.open_tcp_listeners(0, host=host)
    port = listener.socket.getsockname()[1]
    connections = Connections(asgi(fake.app()), None)
    async with trio.open_nursery() as nursery:
        secured = trio.SSLListener(listener, context, https_compatible=True)
        nursery.start_soon(connections.serve, secured, trio.Event(), lambda: None)
        yield Served(fake, f"https://{host}:{port}", account)
        nursery.cancel_scope.cancel(reason="the block is over")
