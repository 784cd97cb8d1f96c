"""Log a run to the MLflow store that the user has configured, or to an MLflow database in the run folder."""

from __future__ import annotations

import importlib
import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any, final

from filelock import FileLock
from typing_extensions import override

from fednet_emu.errors import FednetError
from fednet_emu.tracking.tracker import Costs, Outcome, RunInfo, Tracker

FOLDER, DATABASE = "mlruns", "mlflow.db"
ID = "fednet_emu.id"
"""Name of the MLflow tag with the id of a run. A resumed run finds its MLflow run by this tag."""
STATUSES = {"done": "FINISHED", "interrupted": "KILLED"}
"""The MLflow status that corresponds to each run status. Any other run status corresponds to FAILED."""
PARAMETERS_AT_ONCE, METRICS_AT_ONCE, PARAMETER_LENGTH = 100, 1000, 6000
"""Maximum number of parameters, number of metrics, and length of a parameter in one request to the MLflow server."""
EVERY_S = 1.0
"""Host time in seconds after a request, from which on the next log call sends the collected metrics."""


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
            folder = run.store / FOLDER
            folder.mkdir(exist_ok=True)
            logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)
            logging.getLogger("alembic").setLevel(logging.WARNING)
            with FileLock(folder / ".lock"):  # runs of a study start at the same time
                self._open(run, f"sqlite:///{folder / DATABASE}", (folder / "artifacts").as_uri())

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
        """Return the rounds, and the times in ms, for which an earlier attempt of the run has sent a metric."""
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
