"""Program for one element of a SLURM job array: `python -m fednet_emu.cli.slurm_element FOLDER ELEMENT ELEMENTS`."""

from __future__ import annotations

import sys
from pathlib import Path

from fednet_emu.study.slurm import run_element


def main(folder: str, element: str, elements: str) -> None:
    """Execute the runs that are assigned to one element of a job array, and print their outcomes."""
    for name, outcome in run_element(Path(folder), int(element), int(elements)):
        print(f"{name}: {outcome.status} {outcome.reason}".rstrip(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
