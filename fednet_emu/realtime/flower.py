"""A Flower app in a live run: the programs SuperLink, SuperNode and `flwr run`, and records of the app's actions."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fednet_emu.devices.stragglers import SlowWindow
from fednet_emu.errors import ScenarioError
from fednet_emu.federation.federation import Federation
from fednet_emu.flower.algorithm import Flower
from fednet_emu.flower.control import TASK_POLL_S
from fednet_emu.kernel.clock import NS_PER_S
from fednet_emu.kernel.streams import mix, uniform
from fednet_emu.realtime.packets import SERVER_NODE, address
from fednet_emu.realtime.programs import programs_user
from fednet_emu.records.ledger import SERVER
from fednet_emu.records.rows import KINDS, ComputeRow, EvaluationRow, RoundRow
from fednet_emu.scenario.model import Scenario

OLDEST = (1, 41)
"""The first version of Flower whose SuperLink uses HTTP, which is the oldest version for live runs."""
PORT = 8000
_REGISTERED = b"SuperNode ID: "
_HOOK = Path(__file__).parent / "hook"
_DRAWS = 1000
_CONFIG = '[superlink]\ndefault = "live"\n\n[superlink.live]\naddress = "{address}"\ninsecure = true\n'
_SCRATCH = "flower"


class FlowerPrograms:
    """The programs of a Flower app: SuperLink and `flwr run` on the server, and a SuperNode on each device.

    Args:
        fed: the federation, which provides the ledger and the speeds of devices.
        scenario: the scenario, whose algorithm must be the app.
        folder: the run folder; it contains a folder for files of Flower until `close` is called.

    Raises:
        ScenarioError: the app or the scenario is not suitable for live runs.
    """

    def __init__(self, fed: Federation, scenario: Scenario, folder: Path) -> None:
        assert isinstance(scenario.algorithm, Flower)
        self._app, self._fed, self._scenario = scenario.algorithm, fed, scenario
        self._scratch = folder / _SCRATCH
        self._bin = Path(sys.executable).parent
        self._read, self._notes = 0, list[dict[str, Any]]()
        _refuse(self._app, scenario, self._bin)

    def prepare(self) -> None:
        """Create the folders for files of Flower, owned by the user who runs the programs."""
        self.close()
        for device in range(SERVER, self._fed.n_devices):
            home = self._scratch / f"home-{device}"
            home.mkdir(parents=True)
            (home / "config.toml").write_text(_CONFIG.format(address=_link()), encoding="utf-8")
        for place in (self._scratch, *self._scratch.rglob("*")):
            os.chown(place, *programs_user())

    def close(self) -> None:
        """Remove the folders for files of Flower."""
        shutil.rmtree(self._scratch, ignore_errors=True)

    # ---- programs ----------------------------------------------------------------------------------------------------

    def filled(self, device: int, devices: int) -> tuple[list[str], dict[str, str]]:
        """Return the command of a device or of the server, and the environment variables for the command."""
        if device == SERVER:
            where = ["--host", address(SERVER_NODE), "--port", str(PORT)]
            command = ["flower-superlink", "--insecure", *where, "--disable-runtime-dependency-installation"]
        else:
            config = f"partition-id={device} num-partitions={devices}"
            command = ["flower-supernode", "--insecure", "--superlink", _link(), "--node-config", config]
        return [str(self._bin / command[0]), *command[1:]], self._environment(device)

    def run(self) -> tuple[list[str], dict[str, str]]:
        """Return the command that submits the app and waits for its end, and the command's environment variables."""
        settings = " ".join(f"{key}={json.dumps(value)}" for key, value in self._app.run_config.items())
        how = ["--run-config", settings] if settings else []
        app = str(Path(self._app.app).expanduser().resolve())
        return [str(self._bin / "flwr"), "run", app, "live", "--stream", *how], self._environment(SERVER)

    def _environment(self, device: int) -> dict[str, str]:
        return {
            "PATH": os.pathsep.join([str(self._bin), os.environ.get("PATH", os.defpath)]),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_HOOK), os.environ.get("PYTHONPATH")])),
            "FLWR_HOME": str(self._scratch / f"home-{device}"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FEDNET_NOTES": str(self._file(device)),
            "FEDNET_WORK": json.dumps(self._work(device)) if device != SERVER else "{}",
        }

    def _work(self, device: int) -> dict[str, Any]:
        """Return the quantities that determine the computing times of a device in the scenario, such as its speed."""
        work, processors = self._app.work, self._fed.processors
        training, evaluation = work.flop_per_example, work.evaluate_flop_per_example
        if training is not None and evaluation is None:
            evaluation = training / 3
        key, straggler = mix(self._fed.streams.key("straggler"), device), self._scenario.devices.straggler
        return {
            "flop_per_example": {"train": training or 0.0, "evaluate": evaluation or 0.0},
            "overhead_s": processors.nominal(device, 0.0)[0],
            "flop_per_s": processors.flop_per_s(device),
            "factors": [straggler.duration_s(1.0, device, 0.0, uniform(key, count)) for count in range(_DRAWS)],
        }

    # ---- notes: lines of JSON that the processes of the app write (see `hook`) ---------------------------------------

    def registered(self, outputs: list[Path]) -> bool:
        """Return True if all SuperNodes have written to their output files that they are registered."""
        return all(path.exists() and _REGISTERED in path.read_bytes() for path in outputs)

    def look(self) -> None:
        """Read the notes (JSON records of events) that the server has written since the last call."""
        path = self._file(SERVER)
        if path.exists() and path.stat().st_size > self._read:
            with path.open("rb") as file:
                file.seek(self._read)
                whole, _, _ = file.read().rpartition(b"\n")
            self._read += len(whole) + 1 if whole else 0
            self._notes += map(json.loads, whole.splitlines())

    @property
    def began_ns(self) -> int | None:
        """Start time of the `ServerApp` in ns on the host's monotonic clock; None before the start."""
        return next((note["ns"] for note in self._notes if note["what"] == "begin"), None)

    @property
    def error(self) -> str | None:
        """Traceback of the `ServerApp`; empty if the `ServerApp` ended without exception, None if it has not ended."""
        return next((note["error"] for note in self._notes if note["what"] == "end"), None)

    def _file(self, device: int) -> Path:
        return self._scratch / f"notes-{device}.jsonl"

    # ---- records -----------------------------------------------------------------------------------------------------

    def write(self, origin_ns: int) -> float | None:
        """Write the recorded events to the tables `computes`, `rounds` and `evaluations`, and the metrics to series.

        Times are counted in ns from `origin_ns` on the host's monotonic clock.

        Returns:
            Mean time in s to start a Flower process on this machine, for the setting `start_s` of `algorithm.control`:
                the mean time from the arrival of a message to the start of its computation, minus half of SuperExec's
                polling interval. None if there were no computations.
        """
        self.look()
        files = [(device, self._file(device)) for device in range(self._fed.n_devices)]
        lines = [(device, line) for device, file in files if file.exists() for line in file.read_text().splitlines()]
        computes = [(device, json.loads(line)) for device, line in lines]
        for device, note in sorted(computes, key=lambda compute: compute[1]["ns"]):
            self._write_compute(device, note, origin_ns)
        books = _Rounds(self._fed)
        for note in self._notes:
            books.add(note, note["ns"] - origin_ns)
        return self._started_s(computes, origin_ns)

    def _started_s(self, computes: list[tuple[int, dict[str, Any]]], origin_ns: int) -> float | None:
        column = self._fed.ledger.transfers.column
        down = column("direction") == KINDS.index("downlink")
        receiver, ended_ns = column("receiver"), column("ended_ns")
        waits = []
        for device, note in computes:
            began_ns = note["began_ns"] - origin_ns
            before = ended_ns[down & (receiver == device) & (ended_ns <= began_ns)]
            if len(before):
                waits.append((began_ns - int(before.max())) / NS_PER_S)
        return sum(waits) / len(waits) - TASK_POLL_S / 2 if waits else None

    def _write_compute(self, device: int, note: Mapping[str, Any], origin_ns: int) -> None:
        began_ns, ended_ns, flop = note["began_ns"] - origin_ns, note["ns"] - origin_ns, note["flop"]
        fed, duration_s = self._fed, (note["ns"] - note["began_ns"]) / NS_PER_S
        energy_j = fed.processors.energy_j(device, flop, duration_s)
        fed.ledger.energy_j += energy_j
        fed.ledger.computes.append(
            ComputeRow(device, began_ns, ended_ns, flop, energy_j, input=-1, result=-1, stopped=0)
        )
        times = {"simulated_s": ended_ns / NS_PER_S, "own_s": note["own_s"], "wanted_s": note["wanted_s"]}
        fed.ledger.record("live_computes", device=device, message=note["kind"], **times)


class _Rounds:
    """Records rounds and scores from events on the server; a round ends when the next training messages are sent."""

    def __init__(self, fed: Federation) -> None:
        self._fed = fed
        self._number, self._since_ns = 0, 0
        self._invited = self._arrived = 0
        self._central = False

    def add(self, note: Mapping[str, Any], now_ns: int) -> None:
        what = note["what"]
        if what in ("sent", "end") and (what == "end" or note["count"].get("train")):
            self._end(now_ns)
        if what == "sent":
            self._invited += note["count"].get("train", 0)
        elif what == "got":
            self._arrived += note["count"].get("train", 0)
        elif what == "metrics":
            self._measure(note["source"], note["metrics"], now_ns)

    def _end(self, now_ns: int) -> None:
        if self._invited:
            self._number += 1
            row = RoundRow(self._number, self._since_ns, now_ns, self._invited, self._arrived)
            self._fed.ledger.add_round(row)
        self._since_ns, self._invited, self._arrived = now_ns, 0, 0

    def _measure(self, source: str, metrics: Mapping[str, float], now_ns: int) -> None:
        from fednet_emu.flower.scores import ACCURACY, LOSS, found

        number = self._number + bool(self._invited)
        at = {"round": number, "simulated_s": now_ns / NS_PER_S, "source": source}
        for name, value in metrics.items():
            self._fed.ledger.record("server_metrics", **at, metric=name, value=float(value))
        self._central = self._central or source == "central"
        loss, accuracy = found(metrics, LOSS), found(metrics, ACCURACY)
        if source == ("central" if self._central else "evaluate") and (loss, accuracy) != (None, None):
            self._evaluate(number, now_ns, loss, accuracy)

    def _evaluate(self, number: int, now_ns: int, loss: float | None, accuracy: float | None) -> None:
        ledger = self._fed.ledger
        column = ledger.transfers.column
        over = column("ended_ns") <= now_ns
        sent = [float(column("transmitted_bit")[over & (column("direction") == kind)].sum()) for kind in range(3)]
        drawn_j = float((column("energy_j") + column("rx_energy_j"))[over].sum()) + ledger.idle.until_j(now_ns)
        scores = [math.nan if score is None else score for score in (loss, accuracy)]
        unknown = [math.nan] * (len(EvaluationRow._fields) - 8)
        row = EvaluationRow._make([number, now_ns, *map(round, sent), drawn_j, *scores, *unknown])
        ledger.add_evaluation(row, [math.nan] * len(ledger.metrics))


def _link() -> str:
    return f"{address(SERVER_NODE)}:{PORT}"


def _refuse(app: Flower, scenario: Scenario, programs: Path) -> None:
    found = version("flwr")
    if tuple(map(int, found.split(".")[:2])) < OLDEST:
        raise ScenarioError(
            f"algorithm.kind: is played live with Flower 1.41 or later, got {found}; install a later one"
        )
    if not (programs / "flower-superlink").exists():
        raise ScenarioError(f"algorithm.kind: the programs of Flower are missing in {programs}; install flwr there")
    if isinstance(scenario.devices.straggler, SlowWindow) and app.work.flop_per_example:
        raise ScenarioError(
            "devices.straggler: clients are padded by a factor of each message, got slow-window; choose another law"
        )
