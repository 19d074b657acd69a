"""Mutual TLS on real sockets: a supervisor and a controller find each other, strangers are not heard."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import httpx
import pytest
import trio

from supervisor.shared.tls import Tls, TlsError, TlsFiles
from tests.support.certificates import make_ca, make_certificate, section
from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import (
    FOREVER,
    PODVISOR,
    Sections,
    podvisor,
    program,
    service,
    supervisor,
    toml,
    write_files,
)

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl(1)")

UNITS: dict[str, Sections | str] = {"web": service(*FOREVER)}


def files(directory: Path, name: str, ca: str = "ca") -> TlsFiles:
    return TlsFiles(directory / f"{name}.crt", directory / f"{name}.key", directory / f"{ca}.crt")


async def status(url: str, tls: Tls | None) -> int | str:
    async with httpx.AsyncClient(verify=tls.client if tls else False, timeout=TIMEOUT_SEC) as client:
        try:
            return (await client.get(f"{url}/v1/units")).status_code
        except httpx.TransportError as error:
            return type(error).__name__


async def test_only_holders_of_a_certificate_of_the_ca_are_heard(tmp_path: Path) -> None:
    make_ca(tmp_path)
    make_ca(tmp_path, "strangers")
    make_certificate(tmp_path, "pod")
    make_certificate(tmp_path, "operator")
    make_certificate(tmp_path, "stranger", "strangers")
    settings: Sections = {"supervisor": {"operations_listen": "127.0.0.1:0"}, "tls": section(tmp_path, "pod")}
    async with supervisor(tmp_path, UNITS, settings) as running:
        url = (await running.stderr.saw(r"the operations API is served at (https://\S+)"))[1]
        operator, stranger = Tls(files(tmp_path, "operator")), Tls(files(tmp_path, "stranger"))
        assert await status(url, operator) == 200
        # The stranger trusts this pod, so that it is the pod who refuses.
        stranger.client.load_verify_locations(tmp_path / "ca.crt")
        for nobody in (None, stranger):
            assert await status(url, nobody) in ("ReadError", "RemoteProtocolError", "ConnectError")
        assert await status(url.replace("https", "http"), None) in ("ReadError", "RemoteProtocolError", "ConnectError")
        assert (await running.command("status", "web")).returncode == 0, "the socket needs none"


async def test_a_certificate_that_was_replaced_is_shown_and_a_broken_one_is_not(tmp_path: Path) -> None:
    make_ca(tmp_path)
    make_certificate(tmp_path, "pod")
    make_certificate(tmp_path, "next")
    tls = Tls(files(tmp_path, "pod"))
    first = shown_by(tls)
    (tmp_path / "pod.key").write_text("half of a file")
    tls.look()
    assert shown_by(tls) == first
    for end in ("key", "crt"):
        os.replace(tmp_path / f"next.{end}", tmp_path / f"pod.{end}")
    tls.look()
    assert shown_by(tls) != first


async def test_a_certificate_without_its_key_yet_is_not_shown_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_ca(tmp_path)
    make_certificate(tmp_path, "pod")
    make_certificate(tmp_path, "next")
    tls = Tls(files(tmp_path, "pod"))
    first = shown_by(tls)
    os.replace(tmp_path / "next.crt", tmp_path / "pod.crt")
    for _ in range(3):
        tls.look()
        assert shown_by(tls) == first
    assert [record.getMessage()[:30] for record in caplog.records] == ["keeping the old certificate: c"]
    os.replace(tmp_path / "next.key", tmp_path / "pod.key")
    tls.look()
    assert shown_by(tls) != first


def shown_by(tls: Tls) -> bytes:
    """The certificate that its server side shows, without a network."""
    import ssl

    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = tls.server.wrap_bio(to_server, to_client, server_side=True)
    client = tls.client.wrap_bio(to_client, to_server)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    certificate = client.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


async def test_a_supervisor_registers_with_its_controller_over_tls(tmp_path: Path) -> None:
    make_ca(tmp_path)
    for name in ("pod", "controller", "operator"):
        make_certificate(tmp_path, name)
    config = tmp_path / "controller.toml"
    own: Sections = {
        "controller": {"port": 0, "probe_port": 0, "store": "memory"},
        "instance": {"instance_assemble_timeout": 5},
        "tls": section(tmp_path, "controller"),
    }
    config.write_text(toml(own))
    async with program(*PODVISOR, "controller", "--config", str(config)) as controller:
        url = (await controller.stderr.saw('"url": *"(https://[^"]+)"'))[1]
        settings = {
            "supervisor": {"controller_url": [url], "pod_ip": "127.0.0.1", "port": 0, "job_name": "job"},
            "tls": section(tmp_path, "pod"),
        }
        units = {"engine": {**service(*FOREVER), "Engine": {"Launcher": "exec"}}}
        pod = tmp_path / "pod-files"
        pod.mkdir()
        async with supervisor(pod, units, settings) as running:
            await running.stderr.saw(f"registered with {url}")
            # The controller has assembled the instance and started its engine: it speaks to the pod over TLS too.
            await running.started("engine")
            mounted = tmp_path / "mounted"
            mounted.mkdir()
            for name, mounted_as in (("operator.crt", "tls.crt"), ("operator.key", "tls.key"), ("ca.crt", "ca.crt")):
                shutil.copy(tmp_path / name, mounted / mounted_as)
            asked = await podvisor("instances", "--controller", url, "--tls-dir", str(mounted))
            without = await podvisor("instances", "--controller", url)
        assert (asked.returncode, "job" in asked.stdout) == (0, True)
        assert without.returncode == 69
        controller.process.terminate()
        with trio.fail_after(TIMEOUT_SEC):
            assert await controller.process.wait() == 0


@pytest.mark.parametrize(
    "broken, said",
    [
        ("no-such", "tls.cert: cannot use the files of [tls]"),
        ("incomplete", "tls.client_ca: must be set with the other two; missing: client_ca"),
    ],
)
async def test_files_that_cannot_be_used_are_a_configuration_error(tmp_path: Path, broken: str, said: str) -> None:
    tls = section(tmp_path, "no-such")
    if broken == "incomplete":
        del tls["client_ca"]
    done = await podvisor(*write_files(tmp_path, UNITS, {"tls": tls}))
    assert done.returncode == 78
    assert said in done.stderr
    with pytest.raises(TlsError):
        Tls(files(tmp_path, "no-such"))
