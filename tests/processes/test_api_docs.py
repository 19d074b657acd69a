"""What docs/api.md shows works as it stands there: every curl command is sent to a running controller."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from string import Template

import httpx
import pytest

from controller.sections import LimitsSection
from supervisor import wire
from supervisor.settings_file import keys_of
from supervisor.shared.tokens import TokenFile
from tests.processes.test_controller_process import COMMAND, controller
from tests.support.running_supervisor import toml
from tests.unit.controller_gang import registration

DOCS = Path(__file__).parents[2] / "docs"
API = (DOCS / "api.md").read_text()
COMMANDS = [line for line in API.splitlines() if line.startswith("curl ")]
TOKENS = re.search(r"```text\n(# role.*?)```", (DOCS / "security.md").read_text(), re.DOTALL)


def request(command: str, **variables: str) -> httpx.Request:
    """As curl would send it, as far as the page uses curl."""
    _, *words = shlex.split(Template(command).substitute(variables))
    method, url, headers, body = "GET", "", {}, None
    while words:
        match words.pop(0):
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-X":
                method = words.pop(0)
            case "-d":
                method, body = "POST", words.pop(0)
            case word:
                assert not word.startswith("-"), f"this test does not know {word}"
                url = word
    return httpx.Request(method, url, headers=headers, content=body)


async def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    assert len(COMMANDS) >= 9
    (tmp_path / "tokens").write_text("operate operator\nnode supervisor\n")
    (tmp_path / "podvisor.toml").write_text(toml({"auth": {"token_file": str(tmp_path / "tokens")}}))
    async with (
        controller(command=(*COMMAND, "--config", str(tmp_path / "podvisor.toml"))) as running,
        httpx.AsyncClient() as client,
    ):
        registered = await client.post(
            f"{running.url}/controller/register",
            content=wire.encode(registration(0, nnodes=2, features=wire.FEATURES)),
            headers={"Authorization": "Bearer supervisor"},
        )
        instance_id = registered.json()["instance_id"]
        for command in COMMANDS:
            answer = await client.send(request(command, CONTROLLER=running.url, TOKEN="operator", ID=instance_id))
            assert answer.is_success, f"{command}: {answer.status_code} {answer.text}"


def test_the_token_file_that_is_shown_is_one(tmp_path: Path) -> None:
    assert TOKENS is not None
    (tmp_path / "tokens").write_text(TOKENS[1])
    tokens = TokenFile(tmp_path / "tokens", 0)
    assert tokens.current_in("team-a", 0) == "s4-pods-of-team-a"
    assert str(tokens.rights_of("Bearer s3-team-a", 0)) == "operate in namespace team-a"


@pytest.mark.parametrize("name", LimitsSection.__slots__)
def test_the_limits_that_are_shown_are_the_defaults(name: str) -> None:
    assert f"| `{name}` | {keys_of(LimitsSection)[name].default:g} |" in API


@pytest.mark.parametrize("page", ["api.md", "security.md", "index.md", "routing.md", "real-programs.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", (DOCS / page).read_text()):
        text = (DOCS / (target or page)).read_text() if not (DOCS / target).is_dir() else ""
        headings = {
            re.sub(r"[^\w -]", "", line.lstrip("# ")).lower().replace(" ", "-")
            for line in text.splitlines()
            if line.startswith("#")
        }
        assert not anchor or anchor in headings, f"{target}#{anchor}"
