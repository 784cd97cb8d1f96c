"""Write TensorBoard event files to the run folder, with the simulated time as wall time."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from fednet_emu.errors import FednetError
from fednet_emu.records.folder.manifest import FINISHED
from fednet_emu.records.ledger import SCORES
from fednet_emu.tracking.tracker import Costs, Outcome, RunInfo, Tracker

FOLDER = "tensorboard"
SHOWN = ("scenario.yaml", "summary.json")
"""Files of the run folder that are logged as text."""


@final
class TensorBoard(Tracker):
    """Writes metrics as scalars over rounds, settings as hyperparameters, and files as text.

    The wall time of a metric is the simulated time. The files are in the folder `tensorboard/ID` of the run folder.
    TensorBoard cannot remove points, so all points of a resumed run are written again. The files of a replaced run are
    kept until the new run has finished.
    """

    def __init__(self) -> None:
        self._torch: Any = importlib.import_module("torch.utils.tensorboard")
        self._plugin: Any = importlib.import_module("tensorboard.plugins.hparams.plugin_data_pb2")
        self._status: Any = importlib.import_module("tensorboard.plugins.hparams.api_pb2").Status
        self._writer: Any = None
        self._end: Any = None
        self._folder = Path()

    @override
    def start(self, run: RunInfo) -> None:
        if run.folder is None:
            raise FednetError("track: tensorboard writes into the run folder, got a run without one; give it with out")
        self._folder = run.folder / FOLDER / run.id
        shutil.rmtree(self._folder, ignore_errors=True)
        self._writer = self._torch.SummaryWriter(str(self._folder))
        settings = {key: "null" if value is None else value for key, value in run.parameters.items()}
        first, begin, self._end = self._torch.summary.hparams(settings, dict.fromkeys(SCORES, 0.0))
        for summary in (first, begin):
            self._writer.file_writer.add_summary(summary)

    @override
    def log(self, metrics: Mapping[str, float], costs: Costs) -> None:
        for name, value in {**costs.metrics(), **metrics}.items():
            self._writer.add_scalar(name, value, costs.round, walltime=costs.simulated_s)

    @override
    def end(self, outcome: Outcome) -> None:
        for path in outcome.files:
            if path.name in SHOWN:
                text = path.read_text(encoding="utf-8")
                self._writer.add_text(path.name, "\n".join(f"    {line}" for line in text.splitlines()))
        ended = {"status": outcome.status, "reason": outcome.reason, "digest": outcome.summary.get("event_digest")}
        self._writer.add_text("outcome", json.dumps(ended))
        status = "STATUS_SUCCESS" if outcome.status == "done" else "STATUS_FAILURE"
        content = self._plugin.HParamsPluginData(
            session_end_info=self._plugin.SessionEndInfo(status=self._status.Value(status))
        )
        self._end.value[0].metadata.plugin_data.content = content.SerializeToString()
        self._writer.file_writer.add_summary(self._end)
        self._writer.close()
        if outcome.status in FINISHED:
            for other in self._folder.parent.iterdir():
                if other != self._folder and other.is_dir():
                    shutil.rmtree(other, ignore_errors=True)
