"""`podvisor convert` as it is used: files in, files out, and the units run as the programs did."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.support.real_processes import told
from tests.support.running_supervisor import podvisor, supervisor

TELL = "import json, os, sys; open(sys.argv[1], 'a').write(json.dumps([sys.argv[2:], os.environ.get('X')]) + '\\n')"
CONF = """[program:web]
command=x
serverurl=http://elsewhere
[program:later]
command=y
autostart=false
"""


async def test_without_a_directory_units_are_shown(tmp_path: Path) -> None:
    (tmp_path / "supervisord.conf").write_text(CONF)
    done = await podvisor("convert", str(tmp_path / "supervisord.conf"))
    assert done.returncode == 0
    assert "# --- web.toml\n" in done.stdout
    assert "# --- later.toml.off\n" in done.stdout
    assert f"{tmp_path}/supervisord.conf:3: program:web.serverurl: lost: there is no XML-RPC server" in done.stderr
    assert done.stderr.endswith("2 files; 1 lost, 3 changed\n")


async def test_files_are_written_and_never_overwritten_unasked(tmp_path: Path) -> None:
    source, target = tmp_path / "supervisord.conf", tmp_path / "units"
    source.write_text(CONF)
    done = await podvisor("convert", str(source), "--output", str(target))
    assert (done.returncode, done.stdout) == (0, f"{target}/web.toml\n{target}/later.toml.off\n")
    assert "#   " + f"{source}:3: program:web.serverurl: lost" in (target / "web.toml").read_text()
    (target / "web.toml").write_text("# mine\n")
    again = await podvisor("convert", str(source), "--output", str(target))
    assert again.returncode == 1
    assert f"podvisor: {target}/web.toml: there is such a file: --force overwrites it" in again.stderr
    assert (target / "web.toml").read_text() == "# mine\n"
    forced = await podvisor("convert", str(source), "--output", str(target), "--force")
    assert forced.returncode == 0
    assert "ExecStart" in (target / "web.toml").read_text()


async def test_as_json(tmp_path: Path) -> None:
    source = tmp_path / "supervisord.conf"
    source.write_text(CONF)
    told = json.loads((await podvisor("convert", str(source), "--json")).stdout)
    assert [each["name"] for each in told["files"]] == ["web.toml", "later.toml.off"]
    assert {"kind": "lost", "path": str(source), "line": 3, "key": "program:web.serverurl"}.items() <= told["files"][0][
        "remarks"
    ][0].items()
    assert told["problems"] == []


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("gone.service", None, "cannot read: No such file or directory"),
        ("a.txt", b"hello", "expected a supervisord.conf with [program:x], or a systemd unit file NAME.service"),
        ("a.conf", b"command=x\n", ":1: found 'command=x', expected [section] first"),
        ("a.conf", b"[program:x]\nnothing\n", ":2: found 'nothing', expected key=value"),
        ("a.conf", b"\xff", "cannot read: not UTF-8 at byte 0"),
        ("a.conf", b"a\0b", "cannot read: it holds a NUL"),
        ("a.service", b"ExecStart=x\n", ":1: found 'ExecStart=x', expected [Section] first"),
        ("a.service", b"[Service]\nExecStart\n", ":2: Service: found 'ExecStart', expected Key=Value"),
    ],
)
async def test_what_cannot_be_read(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    source = tmp_path / name
    if content is not None:
        source.write_bytes(content)
    (tmp_path / "good.service").write_text("[Service]\nExecStart=/bin/x\n")
    arguments = (str(tmp_path / "good.service"), str(source), "--output", str(tmp_path / "units"))
    done = await podvisor("convert", *arguments)
    assert (done.returncode, done.stderr) == (78, f"podvisor: {source}{'' if said.startswith(':') else ': '}{said}\n")
    assert not (tmp_path / "units").exists()
    told = json.loads((await podvisor("convert", str(source), "--json")).stdout)
    assert told["problems"][0]["path"] == str(source)


async def test_with_no_unit_left_it_fails(tmp_path: Path) -> None:
    source = tmp_path / "a.service"
    source.write_text("[Service]\nRestart=always\n")
    done = await podvisor("convert", str(source))
    assert (done.returncode, done.stdout) == (1, "")
    assert "the key ExecStart is missing" in done.stderr


async def test_converted_units_run_as_they_did(tmp_path: Path) -> None:
    program, heard = tmp_path / "tell.py", tmp_path / "heard"
    program.write_text(TELL)
    (tmp_path / "supervisord.conf").write_text(f"""[program:worker]
process_name=%(program_name)s_%(process_num)02d
command={sys.executable} {program} {heard} 'a b' "$HOME" ${{X}} 100%% --n=%(process_num)02d --x=%(ENV_TOKEN)s
numprocs=2
autorestart=false
environment=X="it's ${{X}}"
""")
    (tmp_path / "job.service").write_text(f"""[Service]
Type=oneshot
Environment="OPTS=-v 'two words'" "X=a b"
EnvironmentFile=-{tmp_path}/more
ExecStart={sys.executable} {program} {heard} \\
    "--quoted=\\"${{X}}\\"" $OPTS %N $$HOME
""")
    (tmp_path / "more").write_text("OPTS=-q from file\n")
    done = await podvisor(
        "convert", str(tmp_path / "supervisord.conf"), str(tmp_path / "job.service"), "--output", str(tmp_path / "out")
    )
    assert done.returncode == 0
    units = {path.stem: path.read_text() for path in (tmp_path / "out").iterdir()}
    async with supervisor(tmp_path, units, TOKEN="secret") as running:
        lines = sorted(await told(heard, 3))
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
    common = ["a b", "$HOME", "${X}", "100%"]
    assert [json.loads(line) for line in lines] == [
        [['--quoted="a b"', "-q", "from", "file", "job", "$HOME"], "a b"],
        [[*common, "--n=00", "--x=secret"], "it's ${X}"],
        [[*common, "--n=01", "--x=secret"], "it's ${X}"],
    ]
