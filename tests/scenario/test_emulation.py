"""Claims about building an emulation."""

import numpy as np

from fednet_emu.scenario.emulation import build
from fednet_emu.scenario.load import load_scenario


def test_the_data_folder_may_be_a_string(tmp_path):
    """As it may be a path: whoever calls from a notebook should not have to know."""
    x, y = np.zeros((40, 3), np.float32), np.arange(40) % 2
    np.savez(tmp_path / "own.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    scenario = load_scenario("quickstart", ["data={kind: npz, path: own.npz}", "partition=iid"])

    assert build(scenario, data_dir=str(tmp_path)).task.data.x.shape == (40, 3)
