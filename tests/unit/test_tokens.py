"""Tokens: what is accepted, and how a file is replaced without locking anybody out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.shared.tokens import OLD_TOKEN_SEC, TokenError, TokenFile


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
    assert TokenFile(path, 0).accepts(header, 0) is accepted


def test_the_old_token_stays_valid_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    tokens = TokenFile(path, 0)
    replace(path, "new")
    assert tokens.current(2) == "new"
    assert tokens.accepts("Bearer old", 2)
    assert tokens.accepts("Bearer new", 2)
    assert not tokens.accepts("Bearer old", 2 + OLD_TOKEN_SEC)


@pytest.mark.parametrize("text", ["", "two words"])
def test_a_broken_replacement_keeps_the_token(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    tokens = TokenFile(path, 0)
    replace(path, text)
    assert tokens.accepts("Bearer old", 1000)


@pytest.mark.parametrize("text", [None, "", "two words", "ü"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(TokenError, match=str(path)):
        TokenFile(path, 0)
