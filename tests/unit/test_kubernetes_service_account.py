"""Where the API is and as whom it is spoken to: what the cluster mounts and says, and what is said when it does not."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from controller.kubernetes.kubernetes import kubernetes_of
from controller.kubernetes.service_account import NotInACluster, ServiceAccount
from controller.sections import KubernetesSection

IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


def mounted(
    directory: Path, *, api_url: str | None = "http://127.0.0.1:1", namespaces: tuple[str, ...] = ()
) -> KubernetesSection:
    (directory / "token").write_text("first\n")
    (directory / "namespace").write_text("ml")
    return KubernetesSection(enable=True, api_url=api_url, namespaces=namespaces, service_account_dir=str(directory))


def rewrite(directory: Path, token: str) -> None:
    """As the kubelet does: another file in its place."""
    (directory / "new").write_text(token)
    os.replace(directory / "new", directory / "token")


def test_it_is_off_unless_switched_on() -> None:
    assert kubernetes_of(KubernetesSection(), {}) is None


def test_the_account_says_token_and_namespace(tmp_path: Path) -> None:
    account = ServiceAccount(mounted(tmp_path), {})
    assert (account.token(), account.namespaces, account.tls) == ("first", ("ml",), None)
    assert ServiceAccount(mounted(tmp_path, namespaces=("a", "b")), {}).namespaces == ("a", "b")


def test_a_new_token_is_read_when_the_file_is_another_and_only_then(tmp_path: Path) -> None:
    account = ServiceAccount(mounted(tmp_path), {})
    rewrite(tmp_path, "second")
    assert account.token() == "second"
    assert account.read_again() is False
    rewrite(tmp_path, "third")
    assert account.read_again() is True
    (tmp_path / "token").unlink()
    assert account.token() == "third", "one that cannot be read is the old one"


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        (IN_CLUSTER, "https://10.96.0.1:6443"),
        ({"KUBERNETES_SERVICE_HOST": "fd00::1"}, "https://[fd00::1]:443"),
    ],
)
def test_the_api_is_where_the_cluster_says_and_needs_its_ca(
    tmp_path: Path, environment: dict[str, str], url: str
) -> None:
    with pytest.raises(NotInACluster, match=r"ca\.crt"):
        ServiceAccount(mounted(tmp_path, api_url=None), environment)
    assert ServiceAccount(mounted(tmp_path), environment).url == "http://127.0.0.1:1"
    with pytest.raises(NotInACluster) as refused:
        ServiceAccount(mounted(tmp_path, api_url=url), {})
    assert "ca.crt" in str(refused.value)


def test_outside_a_cluster_it_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(NotInACluster, match=r"KUBERNETES_SERVICE_HOST is not: .*api_url"):
        ServiceAccount(mounted(tmp_path, api_url=None), {})
    with pytest.raises(NotInACluster, match="automountServiceAccountToken"):
        ServiceAccount(replace(mounted(tmp_path), service_account_dir=str(tmp_path / "nowhere")), {})
