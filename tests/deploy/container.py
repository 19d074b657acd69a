"""What a kubelet makes of a pod's specification before it starts a container: its environment and its files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.deploy.platforms import PlannedPod
from tests.deploy.rendered import Manifests

_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def environment_of(pod: PlannedPod, container: str, *, address: str, uid: str = "uid-1") -> dict[str, str]:
    """With the downward API and $(NAME) resolved. AssertionError for what the kubelet would leave unresolved."""
    fields = {
        "metadata.name": pod.name,
        "metadata.namespace": "default",
        "metadata.uid": uid,
        "spec.nodeName": "node-1",
        "status.podIP": address,
        **{f"metadata.labels['{name}']": value for name, value in pod.labels.items()},
    }
    known: dict[str, str] = {}
    for variable in pod.container(container)["env"]:
        if "valueFrom" in variable:
            known[variable["name"]] = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            continue
        missing = [name for name in _REFERENCE.findall(variable["value"]) if name not in known]
        assert not missing, f"{variable['name']} refers to {missing}, which stand after it or nowhere"
        known[variable["name"]] = _REFERENCE.sub(lambda found: known[found[1]], variable["value"])
    return {**known, **pod.variables}


def config_maps(pod: PlannedPod, container: str, manifests: Manifests) -> dict[str, Mapping[str, str]]:
    """Where ConfigMaps are mounted: mount path -> file name -> text."""
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    return {
        mount["mountPath"]: manifests.one("ConfigMap", volumes[mount["name"]]["configMap"]["name"])["data"]
        for mount in pod.container(container)["volumeMounts"]
        if "configMap" in volumes[mount["name"]]
    }


def write_files(mounts: Mapping[str, Mapping[str, str]], root: Path) -> None:
    """Below `root`, at the paths that they have in the container."""
    for mount_path, files in mounts.items():
        directory = root / mount_path.lstrip("/")
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text)


def option(command: Sequence[str], name: str) -> str:
    """Of a command line: the value of `--name=value`."""
    return next(word.removeprefix(f"--{name}=") for word in command if word.startswith(f"--{name}="))


def ports_of(container: Mapping[str, Any]) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container["ports"]}
