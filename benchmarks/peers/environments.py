"""A virtual environment for each peer: torch first, then exactly the versions that its requirements file lists."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CONSTRAINTS = HERE.parents[1] / "constraints.txt"
WITHOUT_TORCH = ("fedjax", "fedjax_2024")


def install(peer: str, folder: Path) -> Path:
    """The interpreter of a peer's environment, which is made unless it is there and up to date.

    Everything but torch is installed without dependencies, so that none of them can bring another torch along.

    Raises:
        CalledProcessError: an installation fails; pip says why.
    """
    requirements = HERE / "requirements" / f"{peer}.txt"
    environment = folder / peer
    python, stamp = environment / "bin" / "python", environment / ".installed"
    wanted = hashlib.sha256(requirements.read_bytes() + CONSTRAINTS.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if peer not in WITHOUT_TORCH:
        subprocess.run([*pip, "--constraint", CONSTRAINTS, "torch"], check=True)
    subprocess.run([*pip, "--no-deps", "--requirement", requirements], check=True)
    stamp.write_text(wanted)
    return python
