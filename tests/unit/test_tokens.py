"""Tokens: what is accepted, and how a file is replaced without locking anybody out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.shared.tokens import EVERY_RIGHT, OLD_TOKEN_SEC, Grant, Rights, Role, TokenError, TokenFile


def replace(path: Path, text: str) -> None:
    """As a ConfigMap or Secret is updated: another file under the same name."""
    other = path.with_name("other")
    other.write_text(text)
    os.replace(other, path)


def has_role(tokens: TokenFile, header: str, now: float) -> Role | None:
    rights = tokens.rights_of(header, now)
    return rights.role if rights is not None else None


@pytest.mark.parametrize(
    "header, accepted",
    [
        ("Bearer secret", True),
        ("bearer secret", True),
        ("Bearer secret ", True),
        ("Bearer secre", False),
        ("Basic secret", False),
        ("secret", False),
        ("", False),
        (None, False),
        ("Bearer sécret", False),
    ],
)
def test_only_the_token_is_accepted(tmp_path: Path, header: str | None, accepted: bool) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    assert TokenFile(path, 0).rights_of(header, 0) == (EVERY_RIGHT if accepted else None)


def test_the_old_token_stays_valid_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    tokens = TokenFile(path, 0)
    replace(path, "new")
    assert tokens.current(2) == "new"
    assert tokens.rights_of("Bearer old", 2)
    assert tokens.rights_of("Bearer new", 2)
    assert not tokens.rights_of("Bearer old", 2 + OLD_TOKEN_SEC)


ROLES = """
# people look
read   looker
operate operator-1
operate operator-2

node   supervisor
"""


@pytest.mark.parametrize(
    "token, role",
    [
        ("looker", Role.READ),
        ("operator-1", Role.OPERATE),
        ("operator-2", Role.OPERATE),
        ("supervisor", Role.NODE),
        ("read", None),
        ("#", None),
        ("", None),
    ],
)
def test_a_line_names_what_its_token_may_do(tmp_path: Path, token: str, role: Role | None) -> None:
    path = tmp_path / "token"
    path.write_text(ROLES)
    assert TokenFile(path, 0).rights_of(f"Bearer {token}", 0) == (Rights((Grant(role),)) if role else None)


def test_the_token_that_may_do_most_is_the_one_we_show(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(ROLES)
    assert TokenFile(path, 0).current(0) == "supervisor"
    path.write_text("operate a\nread b\noperate c\n")
    assert TokenFile(path, 0).current(0) == "a"


BOUND = """
node          everywhere
node@team-a   a
read@team-b   a
operate@team-b b
"""


@pytest.mark.parametrize(
    "token, namespace, role",
    [
        ("everywhere", "team-a", Role.NODE),
        ("everywhere", "team-c", Role.NODE),
        ("a", "team-a", Role.NODE),
        ("a", "team-b", Role.READ),
        ("a", "team-c", None),
        ("b", "team-a", None),
        ("b", "team-b", Role.OPERATE),
    ],
)
def test_a_line_may_bind_what_it_grants_to_a_namespace(
    tmp_path: Path, token: str, namespace: str, role: Role | None
) -> None:
    (tmp_path / "token").write_text(BOUND)
    rights = TokenFile(tmp_path / "token", 0).rights_of(f"Bearer {token}", 0)
    assert rights is not None
    assert rights.role_in(namespace) is role
    assert [wanted for wanted in Role if rights.may(wanted, namespace)] == [r for r in Role if role and r <= role]
    assert rights.may_everywhere(Role.READ) is (token == "everywhere")


@pytest.mark.parametrize(
    "lines, namespace, shown",
    [
        (BOUND, "team-a", "a"),
        (BOUND, "team-b", "everywhere"),
        ("node everywhere\nread@team-a dashboard\noperate@team-a person\n", "team-a", "everywhere"),
        ("operate@team-a person\nread looker\n", "team-a", None),
        (BOUND, "team-c", "everywhere"),
        ("node@team-a a\nread@team-b b\n", "team-c", None),
    ],
)
def test_a_program_shows_a_node_token_of_that_namespace_or_one_of_all(
    tmp_path: Path, lines: str, namespace: str, shown: str | None
) -> None:
    (tmp_path / "token").write_text(lines)
    assert TokenFile(tmp_path / "token", 0).current_in(namespace, 0) == shown


@pytest.mark.parametrize("line", ["read@ looker", "@team-a looker", "reader@team-a looker", "read@team-a looker more"])
def test_a_line_with_half_a_binding_is_a_mistake(tmp_path: Path, line: str) -> None:
    (tmp_path / "token").write_text(f"{line}\n")
    with pytest.raises(TokenError, match="token:1: expected TOKEN, ROLE TOKEN or ROLE@NAMESPACE TOKEN"):
        TokenFile(tmp_path / "token", 0)


def test_a_token_whose_role_was_taken_away_keeps_it_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("operate somebody")
    tokens = TokenFile(path, 0)
    replace(path, "read somebody")
    assert has_role(tokens, "Bearer somebody", 2) is Role.OPERATE
    assert has_role(tokens, "Bearer somebody", 2 + OLD_TOKEN_SEC) is Role.READ


def test_a_line_that_is_none_is_named_without_its_secret(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("read looker\nadmin s3cret\n")
    with pytest.raises(TokenError, match=f"{path}:2: expected TOKEN, ROLE TOKEN or ROLE@NAMESPACE TOKEN") as error:
        TokenFile(path, 0)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("text", ["", "two words"])
def test_a_broken_replacement_keeps_the_token(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    tokens = TokenFile(path, 0)
    replace(path, text)
    assert tokens.rights_of("Bearer old", 1000)


@pytest.mark.parametrize("text", [None, "", "two words", "ü"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(TokenError, match=str(path)):
        TokenFile(path, 0)
