"""Exit codes of the commands that ask a program over HTTP (design 3)."""

from __future__ import annotations

import httpx
import pytest

from supervisor import wire
from supervisor.shared.asking import refused
from supervisor.wire import ErrorBody, ErrorCode

REQUEST = httpx.Request("GET", "http://podvisor/v1/units/x")


@pytest.mark.parametrize(("status", "exit_code"), [(400, 1), (401, 1), (404, 4), (409, 1), (500, 1), (503, 69)])
def test_a_refusal_is_an_exit_code_and_its_message(status: int, exit_code: int) -> None:
    body = wire.encode(ErrorBody(error=ErrorCode.UNKNOWN, message="there is no unit 'x' here"))
    failure = refused(httpx.Response(status, content=body, request=REQUEST))
    assert (failure.exit_code, failure.message) == (exit_code, "there is no unit 'x' here")


def test_an_answer_that_is_not_podvisor_s_is_shown_as_it_is() -> None:
    failure = refused(httpx.Response(502, text="<html>Bad Gateway</html>", request=REQUEST))
    assert failure.exit_code == 1
    assert failure.message == "http://podvisor/v1/units/x answers 502: <html>Bad Gateway</html>"
