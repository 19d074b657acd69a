"""What comes over the wire and is no request, on real sockets: large heads, slow ones, garbage; and mutual TLS."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest

from supervisor.shared.tls import Tls, TlsFiles
from tests.processes.test_controller_process import COMMAND, controller
from tests.support.certificates import make_ca, make_certificate, section
from tests.support.raw_http import exchange
from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import toml

HEAD = b"GET /v1/instances HTTP/1.1\r\nHost: controller\r\n"


@pytest.mark.parametrize(
    "request_bytes, status",
    [
        (HEAD + b"X-Large: " + b"x" * 100_000 + b"\r\n\r\n", b"431"),
        (HEAD + b"".join(b"X-%d: y\r\n" % number for number in range(20_000)) + b"\r\n", b"431"),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: controller\r\n\r\n", b"431"),
        (HEAD + b"Content-Length: x\r\n\r\n", b"400"),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", b"501"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
        (b"GET\r\n\r\n", b"400"),
    ],
)
async def test_what_is_no_request_is_refused_and_costs_nobody_else(request_bytes: bytes, status: bytes) -> None:
    async with controller() as running:
        answer = await exchange(running.url, request_bytes)
        assert answer[:12] in (b"", b"HTTP/1.1 " + status)
        async with httpx.AsyncClient(base_url=running.url) as client:
            assert (await client.get("/v1/instances")).status_code == 200
        assert not [line for line in running.log if "Traceback" in line]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl(1)")
async def test_with_tls_only_holders_of_a_certificate_are_heard_but_by_the_probe_port(tmp_path: Path) -> None:
    make_ca(tmp_path)
    make_ca(tmp_path, "strangers")
    for name, ca in (("controller", "ca"), ("tool", "ca"), ("stranger", "strangers")):
        make_certificate(tmp_path, name, ca)
    (tmp_path / "podvisor.toml").write_text(toml({"tls": section(tmp_path, "controller")}))
    tool, stranger = (
        Tls(TlsFiles(tmp_path / f"{name}.crt", tmp_path / f"{name}.key", tmp_path / f"{ca}.crt"))
        for name, ca in (("tool", "ca"), ("stranger", "strangers"))
    )
    # The stranger trusts this controller, so that it is the controller who refuses.
    stranger.client.load_verify_locations(tmp_path / "ca.crt")

    async def status(url: str, tls: Tls | None) -> int | str:
        async with httpx.AsyncClient(verify=tls.client if tls else False, timeout=TIMEOUT_SEC) as client:
            try:
                return (await client.get(url)).status_code
            except httpx.TransportError as error:
                return type(error).__name__

    async with controller(command=(*COMMAND, "--config", str(tmp_path / "podvisor.toml"))) as running:
        assert running.url.startswith("https://")
        url = f"{running.url}/v1/instances"
        assert await status(url, tool) == 200
        for nobody in (None, stranger):
            assert await status(url, nobody) in ("ReadError", "RemoteProtocolError", "ConnectError")
        assert await status(url.replace("https", "http"), None) in ("ReadError", "RemoteProtocolError", "ConnectError")
        assert await status(f"{running.probe_url}/livez", None) == 200
