"""Log a run to W&B (Weights & Biases), offline for `wandb sync`, or online if WANDB_MODE is `online`."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from fednet_emu.errors import FednetError
from fednet_emu.tracking.tracker import Costs, Outcome, RunInfo, Tracker

PROJECT = "fednet_emu"


@final
class WeightsAndBiases(Tracker):
    """Logs a run to W&B: settings as the configuration, metrics over rounds, and the files of the run folder.

    The files of W&B are in the folder `wandb/` of the run or study. The name of the project is taken from the
    environment variable WANDB_PROJECT, and is `fednet_emu` by default. The group has the name of the study or scenario.
    The step of W&B counts log calls, because several calls can belong to one round; the axis of all charts is the
    metric `round`. The offline files of a resumed run are written again, unless they have been uploaded. After another
    upload, W&B still stores each step only once, because the steps are the same.
    """

    def __init__(self) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # must be set before wandb is imported
        self._wandb: Any = importlib.import_module("wandb")
        self._run: Any = None
        self._moments = 0

    @override
    def start(self, run: RunInfo) -> None:
        if run.store is None:
            raise FednetError("track: wandb writes into the run folder, got a run without one; give it with out")
        for earlier in (run.store / "wandb").glob(f"*run-*-{run.id}"):
            if not any(earlier.glob("*.synced")):
                shutil.rmtree(earlier, ignore_errors=True)
        self._run = self._wandb.init(
            mode=os.environ.get("WANDB_MODE") or "offline",
            dir=str(run.store),
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            group=run.group,
            name=run.name,
            id=run.id,
            resume="allow",
            reinit="create_new",
            config=dict(run.parameters),
            settings=self._wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
        )
        self._run.define_metric("round")
        self._run.define_metric("*", step_metric="round")

    @override
    def log(self, metrics: Mapping[str, float], costs: Costs) -> None:
        self._run.log({"round": costs.round, **costs.metrics(), **metrics}, step=self._moments)
        self._moments += 1

    @override
    def end(self, outcome: Outcome) -> None:
        totals = {f"run/{key}": value for key, value in outcome.summary.items() if isinstance(value, str | int | float)}
        self._run.summary.update({**totals, "run/status": outcome.status, "run/reason": outcome.reason})
        into = Path(self._run.dir)
        try:
            for path in outcome.files:
                shutil.copyfile(path, into / path.name)
                self._run.save(str(into / path.name), base_path=str(into), policy="now")
        finally:
            self._run.finish(exit_code=0 if outcome.status == "done" else 1)
