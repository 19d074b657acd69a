"""How the API says no: a Status, as the real one words it."""

from __future__ import annotations

from dataclasses import dataclass

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass
class ApiError(Exception):
    status: int
    message: str
    reason: str | None = None
    retry_after_sec: int | None = None

    @property
    def body(self) -> dict[str, object]:
        details = {} if self.retry_after_sec is None else {"retryAfterSeconds": self.retry_after_sec}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason or REASONS[self.status],
            "details": details,
            "code": self.status,
        }


def not_found(resource: str, name: str) -> ApiError:
    return ApiError(404, f'{resource} "{name}" not found')


def conflict(resource: str, name: str, why: str) -> ApiError:
    return ApiError(409, f'Operation cannot be fulfilled on {resource} "{name}": {why}')
