"""Tokens: what is accepted, and how a file is replaced without locking anybody out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.shared.tokens import OLD_TOKEN_SEC, Role, TokenError, TokenFile


def replace(path: Path, text: str) -> None:
    """As a ConfigMap or Secret is updated: another file under the same name."""
    other = path.with_name("other")
    other.write_text(text)
    os.replace(other, path)


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
    assert TokenFile(path, 0).role_of(header, 0) is (Role.NODE if accepted else None)


def test_the_old_token_stays_valid_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    tokens = TokenFile(path, 0)
    replace(path, "new")
    assert tokens.current(2) == "new"
    assert tokens.role_of("Bearer old", 2)
    assert tokens.role_of("Bearer new", 2)
    assert not tokens.role_of("Bearer old", 2 + OLD_TOKEN_SEC)


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
    assert TokenFile(path, 0).role_of(f"Bearer {token}", 0) is role


def test_the_token_that_may_do_most_is_the_one_we_show(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(ROLES)
    assert TokenFile(path, 0).current(0) == "supervisor"
    path.write_text("operate a\nread b\noperate c\n")
    assert TokenFile(path, 0).current(0) == "a"


def test_a_token_whose_role_was_taken_away_keeps_it_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("operate somebody")
    tokens = TokenFile(path, 0)
    replace(path, "read somebody")
    assert tokens.role_of("Bearer somebody", 2) is Role.OPERATE
    assert tokens.role_of("Bearer somebody", 2 + OLD_TOKEN_SEC) is Role.READ


def test_a_line_that_is_none_is_named_without_its_secret(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("read looker\nadmin s3cret\n")
    with pytest.raises(TokenError, match=f"{path}:2: expected TOKEN or ROLE TOKEN") as error:
        TokenFile(path, 0)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("text", ["", "two words"])
def test_a_broken_replacement_keeps_the_token(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    tokens = TokenFile(path, 0)
    replace(path, text)
    assert tokens.role_of("Bearer old", 1000)


@pytest.mark.parametrize("text", [None, "", "two words", "ü"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(TokenError, match=str(path)):
        TokenFile(path, 0)
