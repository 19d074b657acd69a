"""What podvisor reads out of a rendered pod: by its own parsers, with the files and environment of that pod."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.cli.verify import Report, verify
from supervisor.settings import Settings, load_settings
from tests.deploy.choices import ENGINES, STORES
from tests.deploy.container import config_maps, environment_of, option, write_files
from tests.deploy.platforms import PlannedPod, pods_of
from tests.deploy.rendered import Manifests

choices = pytest.mark.parametrize("choice", ENGINES, ids=str)
stores = pytest.mark.parametrize("store", STORES)


def engine_pods(manifests: Manifests) -> list[PlannedPod]:
    return [pod for pod in pods_of(manifests) if pod.labels["app.kubernetes.io/component"] == "engine"]


def controller_pods(manifests: Manifests) -> list[PlannedPod]:
    return [pod for pod in pods_of(manifests) if pod.labels["app.kubernetes.io/component"] == "controller"]


def addressed(pods: list[PlannedPod]) -> Iterator[tuple[PlannedPod, str]]:
    for number, pod in enumerate(pods):
        yield pod, f"10.0.0.{11 + number}"


def supervisor_files(pod: PlannedPod, manifests: Manifests, root: Path) -> tuple[Path, Path]:
    """(settings file, directory of units) below `root`, as the command line names them."""
    write_files(config_maps(pod, "engine", manifests), root)
    command = pod.container("engine")["command"]
    return root / option(command, "config").lstrip("/"), root / option(command, "units").lstrip("/")


def verified(pod: PlannedPod, address: str, manifests: Manifests, root: Path) -> Report:
    config, units = supervisor_files(pod, manifests, root)
    return verify([units], config, environment_of(pod, "engine", address=address), elsewhere=True)


def settings_of(pod: PlannedPod, address: str, manifests: Manifests, root: Path) -> Settings:
    config, _ = supervisor_files(pod, manifests, root)
    return load_settings(config, environment_of(pod, "engine", address=address))
