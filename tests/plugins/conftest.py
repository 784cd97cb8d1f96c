"""Packages of others, installed into a folder of their own, and a process that has that folder on its path."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fednet_emu.component import plugins

PACKAGES = Path(__file__).parent / "packages"
ROOT = Path(__file__).parents[2]


def install(package, target):
    """What an installer leaves of a package: its modules, and its metadata with the entry points."""
    shutil.copytree(PACKAGES / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    info = target / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n", encoding="utf-8")
    (target / package / "entry_points.txt").rename(info / "entry_points.txt")
    files = (path.relative_to(target).as_posix() for path in (target / package).rglob("*.py"))
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files), encoding="utf-8")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    install("fednet_extras", target)
    install("fednet_broken", target)
    return target


@pytest.fixture
def installed(site, monkeypatch):
    """This process has the two packages installed, none of their modules imported yet; afterwards it has not."""

    def forget():
        plugins.offers.cache_clear()
        plugins.kind_of.cache_clear()
        for name in [name for name in sys.modules if name.partition(".")[0] in ("fednet_extras", "fednet_broken")]:
            del sys.modules[name]

    forget()
    with monkeypatch.context() as patch:
        patch.syspath_prepend(site)
        yield
    forget()


@pytest.fixture
def python(site, tmp_path):
    """Runs Python in an empty folder, with the two packages installed; gives the finished process."""

    def start(*arguments, path=()):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT), *map(str, path)])}
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return start
