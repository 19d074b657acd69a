"""The tables of the SQLite journal, version by version, and which versions this program can open.

A version is a major and a minor number. A migration that only adds tables, or columns with a default, is a minor
one: an older program opens what it has made and goes on, without what was added. Any other is a major one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

MINORS = 1000
"""PRAGMA user_version = major * MINORS + minor."""

MIGRATIONS: Mapping[int, tuple[str, ...]] = {
    1001: (
        "CREATE TABLE leader (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), term INTEGER NOT NULL)",
        "INSERT INTO leader VALUES (1, 0)",
        """CREATE TABLE instances (namespace TEXT NOT NULL, job_name TEXT NOT NULL, id INTEGER NOT NULL,
            deleted INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (namespace, job_name))""",
        """CREATE TABLE runs (written INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL UNIQUE,
            namespace TEXT NOT NULL, job_name TEXT NOT NULL, open INTEGER NOT NULL, body BLOB NOT NULL)""",
        """CREATE TABLE budgets (namespace TEXT NOT NULL, job_name TEXT NOT NULL, config_digest TEXT NOT NULL,
            body BLOB NOT NULL, PRIMARY KEY (namespace, job_name, config_digest))""",
    ),
    1002: (
        "CREATE TABLE events (id INTEGER PRIMARY KEY, body BLOB NOT NULL)",
        "CREATE TABLE event_series (name TEXT NOT NULL)",
        "INSERT INTO event_series VALUES (lower(hex(randomblob(4))))",
    ),
}
"""What leads to each version from the one before."""
NEWEST = max(MIGRATIONS)


class TooNew(Exception):
    """A later program has changed what stood there."""


def migrate(connection: sqlite3.Connection) -> None:
    """To NEWEST, each version in a transaction of its own. What a later minor version has made stays as it is.

    Raises TooNew, and sqlite3.Error.
    """
    found = version(connection)
    if found // MINORS > NEWEST // MINORS:
        raise TooNew(f"its schema is version {words(found)}, this program knows {words(NEWEST)}")
    for number, statements in MIGRATIONS.items():
        if number > found:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                for statement in statements:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")


def version(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def words(number: int) -> str:
    return f"{number // MINORS}.{number % MINORS}"
