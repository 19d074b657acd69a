"""How a request to the controller can end without an answer to it. Apart from the client, which costs an HTTP stack."""

from __future__ import annotations


class ControllerError(Exception):
    """The request had no effect that we know of; every message to the controller may be sent again."""


class ControllerUnreachable(ControllerError):
    """No answer, or none that could be read."""


class ControllerForgot(ControllerError):
    """503: this controller does not know us; register again."""


class ControllerRefused(ControllerError):
    """A definite no, with the code and the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
