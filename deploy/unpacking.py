"""__main__ of podvisor.pyz: unpacks the prefix that is inside, as far as it is not there, and becomes its bin/podvisor.

Extension modules cannot be loaded out of an archive, so everything is unpacked, into the first of these that this
user may write and execute from: $PODVISOR_CACHE, $XDG_CACHE_HOME/podvisor or $HOME/.cache/podvisor, podvisor-cache-UID
below $TMPDIR or /tmp. The directory is named by a digest of the content. Python 3.6 can parse this.
"""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from zipfile import ZipFile

ARCHIVE = os.path.dirname(os.path.abspath(__file__))
DIGEST = "digest"
EXIT_CONFIGURATION = 78


class CannotUnpack(Exception):
    """Its message says what is wrong with a directory."""


def main() -> None:
    refused = []
    for cache in caches(os.environ):
        try:
            become(unpacked(cache))
        except (CannotUnpack, OSError) as error:
            refused.append(f"{cache}: {error}")
    sys.stderr.write(
        f"podvisor: nowhere to unpack {ARCHIVE}: {'; '.join(refused)}; set PODVISOR_CACHE to a directory of yours that "
        "may be written and executed from\n"
    )
    sys.exit(EXIT_CONFIGURATION)


def caches(environment: "Mapping[str, str]") -> "list[str]":
    """Where it may be unpacked, the best first. One that is named is the only one."""
    if environment.get("PODVISOR_CACHE"):
        return [environment["PODVISOR_CACHE"]]
    home, temporary = environment.get("HOME", ""), environment.get("TMPDIR") or "/tmp"
    of_user = environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    places = [os.path.join(of_user, "podvisor"), os.path.join(temporary, f"podvisor-cache-{os.getuid()}")]
    return [place for place in places if os.path.isabs(place)]  # without HOME there is no directory of this user


def unpacked(cache: str) -> str:
    """The prefix in `cache`. What is missing comes one whole file after the other; nothing that is there is touched.

    So others may unpack at the same time, or run already and load late what a cleaner of old files has taken meanwhile.
    """
    os.makedirs(cache, mode=0o700, exist_ok=True)
    check(cache)
    with ZipFile(ARCHIVE) as archive:
        prefix = os.path.join(cache, archive.read(DIGEST).decode())
        missing = [name for name in archive.namelist() if not os.path.exists(os.path.join(prefix, name))]
        if missing:
            growing = tempfile.mkdtemp(dir=cache)
            try:
                archive.extractall(growing, missing)
                os.makedirs(prefix, mode=0o700, exist_ok=True)
                for name in missing:
                    move(os.path.join(growing, name), os.path.join(prefix, name))
            finally:
                shutil.rmtree(growing, ignore_errors=True)
    return prefix


def move(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if target.endswith("/bin/podvisor"):
        os.chmod(source, 0o755)
    os.rename(source, target)


def check(cache: str) -> None:
    """Whoever else may write there would have their code run by this user."""
    seen = os.lstat(cache)
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o022:
        raise CannotUnpack("is no directory that belongs to this user alone")
    if os.statvfs(cache).f_flag & os.ST_NOEXEC:
        raise CannotUnpack("is mounted noexec")


def become(prefix: str) -> None:
    launcher = os.path.join(prefix, "bin", "podvisor")
    os.execv(sys.executable, [sys.executable, "-I", "-S", launcher, *sys.argv[1:]])


if __name__ == "__main__":
    main()
