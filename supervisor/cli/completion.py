"""`podvisor completion SHELL`: the script that teaches a shell to complete `podvisor`."""

from __future__ import annotations

import click

VARIABLE = "_PODVISOR_COMPLETE"
"""By which the script asks for completions; click answers when it is set."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    Commands, options and files are completed, and the names of units as the running supervisor knows them.

    \b
    Example: source <(podvisor completion bash)
    """
    from click.shell_completion import get_completion_class

    from supervisor.cli import podvisor

    kind = get_completion_class(shell)
    assert kind is not None, f"click knows {shell}"
    completion = kind(podvisor, {}, "podvisor", VARIABLE)
    click.echo(completion.source_template % completion.source_vars())
