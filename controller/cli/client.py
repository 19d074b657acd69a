"""How the commands speak to the controller: HTTP, and errors as exit codes (design 3).

Exit codes: 1 refused, 4 no such instance or run, 69 no controller that leads can be reached.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar

import click
import httpx
import msgspec

from supervisor import wire
from supervisor.shared.asking import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, json_option, refused
from supervisor.shared.tls import Tls, TlsError, TlsFiles
from supervisor.shared.tokens import TokenError, TokenFile

CONNECT_SEC = 5.0
ANSWER_SEC = 30.0

Answer = TypeVar("Answer", bound=msgspec.Struct)


def _http_url(context: click.Context, parameter: click.Parameter, written: str) -> str:
    if not written.startswith(("http://", "https://")):
        raise click.BadParameter(f"found {written!r}, expected a URL such as http://{written}")
    return written


def controller_options(command: Callable[..., object]) -> Callable[..., object]:
    """`--controller URL` and how to be let in, which the command gets as its `controller`, and `--json`."""

    @wraps(command)
    def asking(*, url: str, token_file: Path | None, tls_dir: Path | None, **others: object) -> object:
        return command(controller=ControllerClient(url, token_file, tls_dir), **others)

    asked: Callable[..., object] = asking
    for option in (
        json_option,
        click.option(
            "--tls-dir",
            type=click.Path(path_type=Path, file_okay=False),
            envvar="PODVISOR_TLS_DIR",
            help="Directory with tls.crt, tls.key and ca.crt, for https.  [env: PODVISOR_TLS_DIR]",
        ),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path, dir_okay=False),
            envvar="PODVISOR_TOKEN_FILE",
            help="File with the bearer token.  [env: PODVISOR_TOKEN_FILE]",
        ),
        click.option(
            "--controller",
            "url",
            envvar="PODVISOR_CONTROLLER",
            default="http://127.0.0.1:1026",
            show_default=True,
            callback=_http_url,
            help="URL of the controller.  [env: PODVISOR_CONTROLLER]",
        ),
    ):
        asked = option(asked)
    return asked


class ControllerClient:
    """One conversation with the controller."""

    def __init__(
        self, url: str, token_file: Path | None, tls_dir: Path | None, *, answer_sec: float = ANSWER_SEC
    ) -> None:
        self._url = url
        self._answer_sec = answer_sec
        self._verify = _tls(tls_dir).client if tls_dir is not None else True
        self._headers = {"Authorization": f"Bearer {_token(token_file)}"} if token_file else {}

    def get(self, path: str, answer: type[Answer]) -> Answer:
        return self._asked("GET", path, None, answer)

    def post(self, path: str, body: msgspec.Struct, answer: type[Answer]) -> Answer:
        return self._asked("POST", path, body, answer)

    def _asked(self, method: str, path: str, body: msgspec.Struct | None, answer: type[Answer]) -> Answer:
        response = self._sent(method, path, body)
        if (leader := _leader(response)) is not None:
            # Also for what else is asked in this conversation.
            self._url = leader
            response = self._sent(method, path, body)
        if response.status_code == httpx.codes.UNAUTHORIZED and not self._headers:
            raise CommandFailed(
                f"the controller at {self._url} asks for a token: name the file with it, --token-file FILE or "
                "PODVISOR_TOKEN_FILE",
                EXIT_REFUSED,
            )
        if response.is_error:
            raise refused(response)
        return _decoded(answer, response, self._url)

    def _sent(self, method: str, path: str, body: msgspec.Struct | None) -> httpx.Response:
        content = wire.encode(body) if body is not None else None
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            # The environment's proxies are for the world outside the cluster.
            with httpx.Client(
                base_url=self._url,
                headers=self._headers,
                timeout=httpx.Timeout(self._answer_sec, connect=min(CONNECT_SEC, self._answer_sec)),
                trust_env=False,
                verify=self._verify,
            ) as client:
                return client.request(method, path, content=content, headers=headers)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise CommandFailed(
                f"cannot reach the controller at {self._url}: {error}; is `podvisor controller` running,"
                " and is this its URL (--controller or PODVISOR_CONTROLLER)?",
                EXIT_UNREACHABLE,
            ) from error


def _leader(response: httpx.Response) -> str | None:
    """Whom a standby names. It was shown our token just before, so that its word is as good as its own answer."""
    if response.status_code != httpx.codes.MISDIRECTED_REQUEST:
        return None
    try:
        return wire.decode(wire.ErrorBody, response.content).leader
    except wire.WireError:
        return None


def _tls(directory: Path) -> Tls:
    """The names of a Kubernetes secret of type tls."""
    try:
        return Tls(TlsFiles(directory / "tls.crt", directory / "tls.key", directory / "ca.crt"))
    except TlsError as error:
        raise CommandFailed(str(error), EXIT_REFUSED) from error


def _token(path: Path) -> str:
    try:
        return TokenFile(path, now=0.0).current(now=0.0)
    except TokenError as error:
        raise CommandFailed(str(error), EXIT_REFUSED) from error


def _decoded(answer: type[Answer], response: httpx.Response, url: str) -> Answer:
    try:
        return wire.decode(answer, response.content)
    except wire.WireError as error:
        raise CommandFailed(f"{url} answers, but not as a controller: {error}", EXIT_UNREACHABLE) from error
