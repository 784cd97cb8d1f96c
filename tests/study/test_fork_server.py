"""What the process of a run finds done: the server that it is forked from has imported and looked up what runs need."""

from __future__ import annotations

import json

from tests.commands import Forked

LOOK = """
import gc, json, sys
from pathlib import Path
from fednet_emu.emulation.play import play
from fednet_emu.emulation.provenance import commit, source_hash
from fednet_emu.records.folder.manifest import versions
from fednet_emu.testing import small_scenario
known = [look_up.cache_info().currsize for look_up in (commit, source_hash, versions)]
frozen, there = gc.get_freeze_count(), set(sys.modules)
play(small_scenario("stop.rounds=1"), "small", Path(sys.argv[1]))
print(json.dumps([known, frozen, sorted(set(sys.modules) - there)]))
"""
LARGE = {"fednet_emu", "pandas", "scipy", "threadpoolctl", "torch"}


def test_a_run_imports_and_looks_up_nothing_itself(tmp_path) -> None:
    """Code, commit and versions are known, and a run with records imports no part of a library that takes long."""
    told = Forked("-c", LOOK, tmp_path / "run").ended()
    known, frozen, imported = json.loads(told.stdout)

    assert known == [1, 1, 1]
    assert frozen > 100_000
    assert not {name.partition(".")[0] for name in imported} & LARGE
