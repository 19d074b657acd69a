"""`podvisor reset-failed UNIT`."""

from supervisor.cli.unit_command import unit_command

command = unit_command("reset-failed", "Forget the failures of UNIT: its start limit begins anew.")
