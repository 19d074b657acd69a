"""How the controller's exceptions are answered."""

from __future__ import annotations

from controller.operators import Conflict, NoSuchRun
from controller.reception import Unknown
from controller.roster import NoSuchInstance
from controller.store.base import CannotWrite, Deposed
from controller.terms import Incredible
from supervisor.shared import http_app
from supervisor.wire import ErrorCode

ERRORS: http_app.Errors = {
    NoSuchInstance: (404, ErrorCode.UNKNOWN),
    NoSuchRun: (404, ErrorCode.UNKNOWN),
    Conflict: (409, ErrorCode.CONFLICT),
    Incredible: (400, ErrorCode.MALFORMED),
    Unknown: (503, ErrorCode.UNKNOWN),
    Deposed: (421, ErrorCode.NOT_LEADER),
    CannotWrite: (503, ErrorCode.FAILED),
}
