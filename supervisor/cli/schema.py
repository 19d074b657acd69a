"""`podvisor schema`: the JSON Schema of a unit file."""

from __future__ import annotations

import json

import click

from supervisor.shared.asking import json_option


@click.command("schema")
@json_option
def command(as_json: bool) -> None:
    """Print the JSON Schema (draft 2020-12) of a unit file.

    Editors that know TOML (taplo, Even Better TOML) complete and check by it when a unit file begins with the line
    `#:schema ./unit.schema.json`. It is JSON with or without --json, which puts it on one line.

    \b
    Example: podvisor schema > units/unit.schema.json
    """
    from supervisor.unit.schema import schema

    click.echo(json.dumps(schema(), ensure_ascii=False, indent=None if as_json else 2))
