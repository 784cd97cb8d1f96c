"""What trackers have written, read back with their own libraries: metrics as lists of (round, simulated s, value)."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Points = dict[str, list[tuple[int, float, float]]]


def tensorboard_events(run: Path) -> Any:
    """The accumulator of the one run that TensorBoard finds in a run folder, loaded without sampling."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, TENSORS, EventAccumulator

    (folder,) = (run / "tensorboard").iterdir()
    return EventAccumulator(str(folder), {SCALARS: 0, TENSORS: 0}).Reload()


def tensorboard_points(run: Path) -> Points:
    events = tensorboard_events(run)
    return {
        tag: [(event.step, event.wall_time, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def mlflow_runs(store: Path, uri: str | None = None) -> tuple[Any, list[Any]]:
    """MLflow's client for the database in a folder, or for a store; and all runs in it."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri or f"sqlite:///{store / 'mlruns' / 'mlflow.db'}")
    return client, list(client.search_runs([each.experiment_id for each in client.search_experiments()]))


def mlflow_points(store: Path, uri: str | None = None) -> Points:
    """The history of every metric of the one run; its timestamp is simulated time."""
    client, (run,) = mlflow_runs(store, uri)
    histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    return {
        name: sorted((point.step, point.timestamp / 1e3, point.value) for point in points)
        for name, points in histories.items()
    }


def wandb_records(store: Path) -> list[Any]:
    """All records of the one offline run in a folder, as W&B's own messages.

    The file is a log as LevelDB has it: after seven bytes, blocks of 32 KiB with pieces of records. Each piece has a
    checksum, a length and a kind: 1 whole, 2 first, 3 middle, 4 last.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = (store / "wandb").glob("offline-run-*/run-*.wandb")
    for _ in range(300):  # W&B's own process writes the end of the file a moment after the run has ended
        records = [Record.FromString(content) for content in _contents(path.read_bytes())]
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            break
        time.sleep(0.1)
    return records


def _contents(data: bytes, block: int = 1 << 15) -> Iterator[bytes]:
    place, parts = 7, list[bytes]()
    while place + 7 <= len(data):
        if block - place % block < 7:
            place += block - place % block
            continue
        _checksum, length, kind = struct.unpack("<IHB", data[place : place + 7])
        parts.append(data[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in {1, 4}:
            yield b"".join(parts)
            parts.clear()


def wandb_rows(store: Path) -> list[dict[str, float]]:
    rows = [record.history for record in wandb_records(store) if record.WhichOneof("record_type") == "history"]
    return [{_key(item): json.loads(item.value_json) for item in row.item} for row in rows]


def wandb_points(store: Path) -> Points:
    """Every metric; its round and its simulated time are in the same row."""
    points: Points = {}
    for row in wandb_rows(store):
        for name, value in row.items():
            if name != "round" and not name.startswith("_"):
                points.setdefault(name, []).append((int(row["round"]), row["simulated_s"], value))
    return points


def _key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)
