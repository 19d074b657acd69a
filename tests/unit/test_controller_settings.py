"""Settings of the controller: the seed's names and defaults, ranges and relations."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.settings import load
from supervisor.settings_file import ConfigurationError

ETCD = "[controller]\nstore = 'etcd'\nhost = '127.0.0.1'\n[etcd]\nendpoints = ['http://etcd:2379']\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "podvisor.toml"
    path.write_text(text)
    return path


@pytest.mark.seed("S24")
@pytest.mark.seed("S20")
def test_the_seeds_names_have_the_seeds_defaults() -> None:
    fault = load(None, {}).fault_tolerance_config
    assert fault.enable_engine_relaunch is True
    assert fault.engine_relaunch_complete_timeout_sec == 600
    assert fault.engine_relaunch_poll_interval_sec == 5
    assert fault.engine_relaunch_dispatch_retries == 3
    assert fault.engine_relaunch_nm_unreachable_threshold == 3


def test_a_file_overrides_and_the_environment_overrides_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[controller]\nport = 1\nprobe_port = 3\n[instance]\ninstance_assemble_timeout = 9")
    settings = load(path, {"PODVISOR_CONTROLLER__PORT": "2"})
    assert (settings.controller.port, settings.controller.probe_port) == (2, 3)
    assert settings.instance.instance_assemble_timeout == 9


def test_the_supervisors_part_of_a_shared_file_is_left_alone(tmp_path: Path) -> None:
    load(
        written(
            tmp_path,
            "[supervisor]\npod_ip = '10.0.0.1'\n[parallel]\ndp_size = 2\n"
            "[fault_tolerance_config]\nengine_restart_wait_timeout_sec = 180\n"
            "enable_fault_tolerance = true\n",
        ),
        {},
    )


@pytest.mark.seed("S24")
@pytest.mark.parametrize(
    "text, said",
    [
        ("[controller]\nhost = '0.0.0.0'", "set auth.token_file"),
        ("[controller]\nport = 5\nprobe_port = 5", "must differ from port"),
        ("[controller]\nstate_dir = ''", "state_dir: must be set, because controller.store is"),
        ("[controller]\nstore = 'etcd'", "etcd.endpoints: must be set"),
        (f"{ETCD}prefix = 'fleet'", "'fleet' must end with /"),
        (f"{ETCD}user = 'root'", "etcd.user: must be set together with etcd.password_file"),
        (f"{ETCD}cert = 'x'", "etcd.cert: must be set together with etcd.key"),
        (f"{ETCD}lease_sec = 1", "from 2 to 60"),
        (f"{ETCD}lease_sec = 30", "must be at least 75 s: three times"),
        (
            f"{ETCD}[auth]\nallow_anonymous = true\n".replace("127.0.0.1", "0.0.0.0"),
            "advertise_url: must be set, because 0.0.0.0",
        ),
        ("[controller]\nstroe = 'memory'", "store"),
        ("[tls]\ncert = 'x'", "must be set with the other two; missing: key, client_ca"),
        ("[fault_tolerance_config]\nengine_relaunch_dispatch_retries = 0", "from 1 to 10"),
        ("[fault_tolerance_config]\nengine_relaunch_complete_timeout_sec = 720", "must be longer than"),
        ("[fault_tolerance_config]\nengine_relaunch_poll_interval_sec = 16", "three times"),
        ("[fault_tolerance_config]\nengine_relaunch_backoff_max_sec = 1", "must not be shorter"),
        ("[fault_tolerance_config]\nengine_relaunch_backoff_max_sec = 601", "itself in a back-off"),
        ("[fault_tolerance_config]\nengine_relaunch_prepare_timeout_sec = 121", "itself in a back-off"),
        ("[fault_tolerance_config]\nmax_phase2_fraction = 1.5", "from 0 to 1"),
        ("[fault_tolerance_config]\nrejoin_timeout_sec = 720", "waits for a lost member"),
        ("[fault_tolerance_config]\non_member_lost = 'wait'", "restart-all"),
        ("[fault_tolerance_config]\nenable_engine_relaunch = 'yes'", "true or false"),
        ("[pd]\non_prefill_relaunch = 'all'", "relaunch-decode"),
    ],
)
def test_what_cannot_be_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(written(tmp_path, text), {})
    assert said in str(error.value)
    assert "podvisor.toml" in str(error.value)


def test_a_value_that_only_says_what_is_done_anyway_may_stand(tmp_path: Path) -> None:
    load(
        written(
            tmp_path,
            "[controller]\nstore = 'memory'\n[fault_tolerance_config]\non_member_lost = 'restart-all'\n",
        ),
        {},
    )


def test_decode_follows_only_where_it_is_asked_for_and_engines_are_relaunched_at_all(tmp_path: Path) -> None:
    asked = written(tmp_path, "[pd]\non_prefill_relaunch = 'relaunch-decode'")
    off = {"PODVISOR_FAULT_TOLERANCE_CONFIG__ENABLE_ENGINE_RELAUNCH": "false"}
    switched = [load(None, {}), load(asked, {}), load(asked, off)]
    assert [settings.policy().relaunch.relaunches_decode for settings in switched] == [False, True, False]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(written(tmp_path, "[controller]\nport = -1\nstore = 'papyrus'\n"), {})
    assert len(error.value.problems) == 2


def test_several_controllers_take_over_in_two_leases(tmp_path: Path) -> None:
    settings = load(written(tmp_path, f"{ETCD}lease_sec = 20"), {})
    assert (settings.etcd.lease_sec, settings.etcd.endpoints) == (20, ("http://etcd:2379",))
