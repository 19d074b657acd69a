"""A client that streams a completion, and knows whether what it got is whole."""

from __future__ import annotations

import json
from dataclasses import dataclass

import httpx
import trio

from tests.pods.harness import TIMEOUT_SEC


@dataclass(frozen=True)
class Streamed:
    """What a client has of one request when it is over."""

    status: int | None
    """None: there was no answer."""
    text: str
    tokens: int
    finish_reason: str | None
    """As the engine's last piece says."""
    is_said_done: bool
    """The line that ends a stream has come."""
    error: str
    """What the engine said instead of a piece, or the client's HTTP library raised; empty: it ended as HTTP says."""

    @property
    def looks_whole(self) -> bool:
        """To a client that knows HTTP and nothing of the engine."""
        return self.status == 200 and not self.error

    @property
    def is_whole(self) -> bool:
        return self.looks_whole and self.is_said_done and self.finish_reason is not None

    def __str__(self) -> str:
        return f"{self.status}, {self.tokens} tokens, {self.finish_reason}, {self.error or 'ended in order'}"


async def stream(
    http: httpx.AsyncClient, base: str, max_tokens: int, begun: trio.Event | None = None, prompt: str = "Hello"
) -> Streamed:
    """POST /v1/completions with `stream`, which the engine may not end before `max_tokens`. `begun` is set with the
    first token. Raises TooSlowError if the client would wait for ever: a clean error is one that comes."""
    question = {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "ignore_eos": True,
    }
    status, texts, finish_reason, is_said_done, error = None, [], None, False, ""
    with trio.fail_after(TIMEOUT_SEC):
        try:
            async with http.stream("POST", f"{base}/v1/completions", json=question, timeout=None) as answer:
                status = answer.status_code
                async for line in answer.aiter_lines():
                    data = line.removeprefix("data: ")
                    is_said_done = is_said_done or data == "[DONE]"
                    if status != 200 or data in ("", "[DONE]"):
                        continue
                    piece = json.loads(data)
                    if "choices" not in piece:
                        error = f"the engine says: {data}"
                        continue
                    choice = piece["choices"][0]
                    finish_reason = choice.get("finish_reason")
                    if finish_reason is None:
                        texts.append(choice["text"])
                        if begun is not None:
                            begun.set()
        except httpx.TransportError as broken:
            error = repr(broken)
    return Streamed(status, "".join(texts), len(texts), finish_reason, is_said_done, error)
