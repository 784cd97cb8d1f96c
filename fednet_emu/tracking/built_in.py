"""The trackers for MLflow, TensorBoard and W&B (Weights & Biases); each imports its library when it is created."""

from __future__ import annotations

import importlib
import json
import logging
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from filelock import FileLock
from typing_extensions import override

from fednet_emu.errors import FednetError
from fednet_emu.records.folder import FINISHED, SCENARIO, SUMMARY
from fednet_emu.records.ledger import SCORES
from fednet_emu.tracking.tracker import Costs, Outcome, RunInfo, Tracker

ID = "fednet_emu.id"
"""Name of the MLflow tag with the id of a run. A resumed run finds its MLflow run by this tag."""
STATUSES = {"done": "FINISHED", "interrupted": "KILLED"}
"""The MLflow status that corresponds to each run status. Any other run status corresponds to FAILED."""
PARAMETERS_AT_ONCE, METRICS_AT_ONCE, PARAMETER_LENGTH = 100, 1000, 6000
"""Maximum number of parameters, number of metrics, and length of a parameter in one request to the MLflow server."""
EVERY_S = 1.0
"""Minimum host time in seconds since the last request after which a log call sends the collected metrics."""


@final
class MLflow(Tracker):
    """Logs a run to MLflow: settings as parameters, metrics with the round as step, files as artifacts.

    The experiment has the name of the study or scenario. The timestamp of a metric is the simulated time. A resumed run
    continues in its MLflow run, and does not send the values again that have already been sent.
    """

    def __init__(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # must be set before MLflow is imported
        self._entities: Any = importlib.import_module("mlflow.entities")
        self._tracking: Any = importlib.import_module("mlflow.tracking")
        for database in ("sqlalchemy", "alembic"):
            importlib.import_module(database)
        self._client: Any = None
        self._run_id = ""
        self._resumed = False
        self._there: dict[str, set[tuple[int, int]]] = {}
        self._waiting: list[Any] = []
        self._sent = time.monotonic()

    @override
    def start(self, run: RunInfo) -> None:
        if self._tracking.is_tracking_uri_set():
            self._open(run, self._tracking.get_tracking_uri(), None)
        elif run.store is None:
            what = "mlflow writes into the run folder, got a run without one"
            raise FednetError(f"track: {what}; give it with out, or set MLFLOW_TRACKING_URI")
        else:
            folder = run.store / "mlruns"
            folder.mkdir(exist_ok=True)
            logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)
            logging.getLogger("alembic").setLevel(logging.WARNING)
            with FileLock(folder / ".lock"):  # runs of a study start at the same time
                self._open(run, f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri())

    def _open(self, run: RunInfo, uri: str, artifacts: str | None) -> None:
        self._client = client = self._tracking.MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name(run.group)
        number = client.create_experiment(run.group, artifacts) if experiment is None else experiment.experiment_id
        earlier = client.search_runs([number], f"tags.`{ID}` = '{run.id}'") if run.resumed else []
        if earlier:
            self._run_id, self._resumed = earlier[0].info.run_id, True
            client.update_run(self._run_id, status="RUNNING")
            return
        tags = {ID: run.id, "fednet_emu.seed": str(run.seed), "fednet_emu.folder": str(run.folder)}
        self._run_id = client.create_run(number, run_name=run.name, tags=tags).info.run_id
        texts = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in run.parameters.items()]
        parameters = [self._entities.Param(key, text[:PARAMETER_LENGTH]) for key, text in texts]
        for first in range(0, len(parameters), PARAMETERS_AT_ONCE):
            client.log_batch(self._run_id, params=parameters[first : first + PARAMETERS_AT_ONCE])

    @override
    def log(self, metrics: Mapping[str, float], costs: Costs) -> None:
        at_ms = round(costs.simulated_s * 1e3)
        for name, value in {**costs.metrics(), **metrics}.items():
            if not (self._resumed and (costs.round, at_ms) in self._history(name)):
                self._waiting.append(self._entities.Metric(name, value, at_ms, costs.round))
        if len(self._waiting) >= METRICS_AT_ONCE / 2 or time.monotonic() - self._sent >= EVERY_S:
            self._send()

    def _history(self, name: str) -> set[tuple[int, int]]:
        """Return the (round, time in ms) of each value of a metric that an earlier attempt of the run has sent."""
        if name not in self._there:
            points = self._client.get_metric_history(self._run_id, name)
            self._there[name] = {(point.step, point.timestamp) for point in points}
        return self._there[name]

    def _send(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:METRICS_AT_ONCE], self._waiting[METRICS_AT_ONCE:]
            self._client.log_batch(self._run_id, metrics=some)
        self._sent = time.monotonic()

    @override
    def end(self, outcome: Outcome) -> None:
        self._send()
        ended = {"status": outcome.status, "reason": outcome.reason, "digest": outcome.summary.get("event_digest", "")}
        for key, value in ended.items():
            self._client.set_tag(self._run_id, f"fednet_emu.{key}", value)
        try:
            for path in outcome.files:
                self._client.log_artifact(self._run_id, str(path))
        finally:
            self._client.set_terminated(self._run_id, STATUSES.get(outcome.status, "FAILED"))


SHOWN = (SCENARIO, SUMMARY)
"""Files of the run folder that are logged as text."""


@final
class TensorBoard(Tracker):
    """Writes metrics as scalars over rounds, settings as hyperparameters, and files as text.

    The wall time of a metric is the simulated time. The files are in the folder `tensorboard/ID` of the run folder.
    TensorBoard cannot remove points, so all points of a resumed run are written again. If a run is replaced, its files
    are kept until the new run has finished.
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
        self._folder = run.folder / "tensorboard" / run.id
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
            project=os.environ.get("WANDB_PROJECT") or "fednet_emu",
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
