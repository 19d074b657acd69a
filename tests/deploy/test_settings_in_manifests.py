"""The settings, unit files and variables of the manifests, as podvisor itself reads them in each pod.

The chart's objects are the same ones (test_chart.py).
"""

from __future__ import annotations

import math
from pathlib import Path

from controller.settings import load as load_controller_settings
from supervisor.cli.verify import GRACE_PERIOD
from tests.deploy.choices import ENGINES, Choice, deployed
from tests.deploy.container import config_maps, environment_of, option, ports_of, write_files
from tests.deploy.reading import addressed, choices, controller_pods, engine_pods, settings_of, stores, verified


@choices
def test_podvisor_verify_finds_nothing_wrong_in_any_pod(choice: Choice, tmp_path: Path) -> None:
    manifests = deployed(choice, "sqlite")
    pods = engine_pods(manifests)
    assert len(pods) == choice.nnodes
    for pod, address in addressed(pods):
        report = verified(pod, address, manifests, tmp_path)
        assert report.problems == ()
        assert [unit.engine.launcher for unit in report.units if unit.engine is not None] == [choice.engine]
        # The engine's program and model are not on this machine; nothing else may be amiss.
        lacking = ("cannot find", "there is no '/models/")
        amiss = [warning for warning in report.warnings if not warning.message.startswith(lacking)]
        assert amiss == []


@choices
def test_the_grace_period_is_what_podvisor_verify_says(choice: Choice, tmp_path: Path) -> None:
    manifests = deployed(choice, "sqlite")
    for pod, address in addressed(engine_pods(manifests)):
        report = verified(pod, address, manifests, tmp_path)
        assert report.grace_period_sec is not None
        needed = math.ceil(report.grace_period_sec)
        given = pod.spec["terminationGracePeriodSeconds"]
        assert environment_of(pod, "engine", address=address)[GRACE_PERIOD] == str(given), "it has to be told"
        assert needed <= given <= needed + 30, "enough, and not much more: a node is drained for so long"


@choices
def test_every_pod_knows_which_instance_it_is_and_where_in_it(choice: Choice, tmp_path: Path) -> None:
    manifests = deployed(choice, "sqlite")
    known = [
        settings_of(pod, address, manifests, tmp_path).supervisor for pod, address in addressed(engine_pods(manifests))
    ]
    assert [each.node_index for each in known] == (list(range(choice.nnodes)) if choice.nnodes > 1 else [None])
    assert {each.nnodes for each in known} == {choice.nnodes}
    assert len({each.job_name for each in known}) == 1
    assert known[0].controller_url == ("http://podvisor-controller:1026",)
    assert known[0].exit_on_term == ("signal" if choice.platform == "volcano" else "success")
    pod = settings_of(engine_pods(manifests)[0], "10.0.0.11", manifests, tmp_path).pod
    assert (pod.namespace, pod.uid, pod.node_name, pod.ip) == ("default", "uid-1", "node-1", "10.0.0.11")


@choices
def test_probes_ports_and_settings_agree(choice: Choice, tmp_path: Path) -> None:
    manifests = deployed(choice, "sqlite")
    for pod, address in addressed(engine_pods(manifests)):
        supervisor = settings_of(pod, address, manifests, tmp_path).supervisor
        engine = next(unit.engine for unit in verified(pod, address, manifests, tmp_path).units if unit.engine)
        container = pod.container("engine")
        assert ports_of(container) == {
            "http": engine.base_port,
            "node-manager": supervisor.port,
            "probe": supervisor.probe_port,
        }
        probes = {probe: container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert probes == {
            "startupProbe": {"path": "/startupz", "port": "probe"},
            "livenessProbe": {"path": "/livez", "port": "probe"},
            "readinessProbe": {"path": "/readyz", "port": "probe"},
        }
        assert container["readinessProbe"]["periodSeconds"] == 2
        assert container["readinessProbe"]["failureThreshold"] == 1


@choices
def test_a_start_may_take_as_long_as_podvisor_lets_it(choice: Choice, tmp_path: Path) -> None:
    manifests = deployed(choice, "sqlite")
    pod = engine_pods(manifests)[0]
    cap = max(unit.service.start.timeout_sec for unit in verified(pod, "10.0.0.11", manifests, tmp_path).units)
    startup = pod.container("engine")["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] > cap
    for deployment in manifests.of("Deployment"):
        if deployment["metadata"]["name"] == "podvisor-engine":
            assert deployment["spec"]["progressDeadlineSeconds"] > cap


@choices
def test_paths_of_settings_are_mounts(choice: Choice, tmp_path: Path) -> None:
    """What outlives a container lies on a volume of the pod, shared memory in memory."""
    manifests = deployed(choice, "sqlite")
    pod = engine_pods(manifests)[0]
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in pod.container("engine")["volumeMounts"]}
    settings = settings_of(pod, "10.0.0.11", manifests, tmp_path)
    assert settings.supervisor.state_dir is None
    assert mounts["/run/podvisor"]["emptyDir"] == {}, "where state_dir and socket are by default"
    assert mounts["/dev/shm"]["emptyDir"]["medium"] == "Memory"
    assert settings.auth.token_file is not None
    assert mounts[str(Path(settings.auth.token_file).parent)]["secret"]["secretName"] == "podvisor-token"
    (copying,) = pod.spec["initContainers"]
    (copied,) = copying["volumeMounts"]
    program = Path(pod.container("engine")["command"][0])
    assert program == Path("/opt/podvisor/bin/podvisor")
    assert mounts["/opt/podvisor"] == volumes[copied["name"]], "where podvisor is run is what was copied to"
    assert copying["command"][-1].rstrip("/") == copied["mountPath"]


@stores
def test_the_controller_loads_its_settings(store: str, tmp_path: Path) -> None:
    manifests = deployed(ENGINES[0], store)
    for pod, address in addressed(controller_pods(manifests)):
        write_files(config_maps(pod, "controller", manifests), tmp_path)
        container = pod.container("controller")
        path = tmp_path / option(container["command"], "config").lstrip("/")
        settings = load_controller_settings(path, environment_of(pod, "controller", address=address))
        assert settings.controller.store == store
        assert settings.controller.host == "0.0.0.0"
        assert settings.controller.advertise_url == f"http://{address}:1026"
        assert ports_of(container) == {"api": settings.controller.port, "probe": settings.controller.probe_port}
        if store == "sqlite":
            mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
            assert str(Path(settings.controller.state_dir).parent) in mounts
