"""Questions to real engines, stores and monitors."""

import httpx
import trio

from controller.demo.pod import Container, Pod
from tests.pods.harness import eventually


async def status_of(client: httpx.AsyncClient, url: str) -> int | None:
    """The HTTP status; None while nobody listens."""
    try:
        return (await client.get(url)).status_code
    except httpx.TransportError:
        return None


async def until_ready(client: httpx.AsyncClient, url: str, container: Container) -> None:
    """Wait for 200. A container that ends meanwhile fails the test with its log."""

    async def ask() -> int | None:
        if container.exit_code is not None:
            raise AssertionError(
                f"exited with {container.exit_code}: {container.log.read_text(errors='replace')[-2000:]}"
            )
        return await status_of(client, url)

    await eventually(ask, lambda status: status == 200, f"200 from {url}")


async def complete(client: httpx.AsyncClient, base: str, max_tokens: int = 8, prompt: str = "Hello") -> str:
    """A completion's text, with temperature 0."""
    answer = await client.post(
        f"{base}/v1/completions", json={"prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    )
    return str(answer.raise_for_status().json()["choices"][0]["text"])


async def until_listening(pod: Pod, port: int) -> None:
    async def connect() -> bool:
        try:
            stream = await trio.open_tcp_stream(pod.address, port)
        except OSError:
            return False
        await stream.aclose()
        return True

    await eventually(connect, lambda yes: yes, f"a listener on {pod.address}:{port}")
