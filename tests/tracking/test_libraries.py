"""What TensorBoard, MLflow and W&B have been told, read back: `make test-trackers` installs them."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import fednet_emu as fe
from fednet_emu.emulation.play import play
from fednet_emu.errors import FednetError
from fednet_emu.federation.federation import Federation
from fednet_emu.testing import small_scenario
from fednet_emu.tracking.tracker import trackers_of
from fednet_emu.tracking.tracking import flat
from tests.commands import Forked
from tests.tracking.read_back import (
    Points,
    mlflow_points,
    mlflow_runs,
    tensorboard_events,
    tensorboard_points,
    wandb_points,
    wandb_records,
)

READ = {"tensorboard": tensorboard_points, "mlflow": mlflow_points, "wandb": wandb_points}
MODULES = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
SETTINGS = ("data=digits", "evaluation.per_device=true", "evaluation.every_s=0.2", "stop.rounds=6")
SINGLE = 1e-6
"""TensorBoard keeps values with single precision."""

pytestmark = pytest.mark.filterwarnings("ignore", "error:track")  # the libraries have their own; ours are failures


def needs(name: str):
    missing = find_spec(MODULES[name]) is None
    return pytest.mark.skipif(missing, reason=f"needs {name}: pip install 'fednet-emu[{name}]'")


each = pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in READ])


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is configured where the tests run, they write where they say."""
    for variable in [*os.environ]:
        if variable.startswith(("WANDB_", "MLFLOW_")):
            monkeypatch.delenv(variable)


def expected(run: fe.Run) -> Points:
    """The points that the tables of a run stand for."""
    points: Points = {}
    for table, columns in (("evaluations", ("loss", "accuracy", "worst_accuracy", "std_accuracy")),):
        for row in getattr(run, table).to_dict("records"):
            for name in (*columns, "uplink_bit", "downlink_bit", "energy_j"):
                points.setdefault(name, []).append((row["round"], row["simulated_s"], row[name]))
    for row in run.rounds.to_dict("records"):
        for name in ("invited", "arrived"):
            points.setdefault(f"rounds/{name}", []).append((row["round"], row["ended_s"], row[name]))
    return points


def assert_told(got: Points, run: fe.Run) -> None:
    """Every point of the run's tables was told, in order and once."""
    wanted = expected(run)
    assert len(wanted["loss"]) > 7
    for name, points in wanted.items():
        assert [round_ for round_, _, _ in got[name]] == [round_ for round_, _, _ in points], name
        for place, precision in ((1, {"abs": 5.01e-4, "rel": 0}), (2, {"rel": SINGLE})):
            values = [point[place] for point in points]
            assert [point[place] for point in got[name]] == pytest.approx(values, **precision), name


@each
def test_every_point_is_read_back(name: str, tmp_path: Path):
    """The metrics, with round, simulated seconds, bits and joules, are the run's own tables."""
    run = fe.run(small_scenario(*SETTINGS), out=tmp_path / "run", track=name)

    got = READ[name](tmp_path / "run")
    assert_told(got, run)
    last = {axis: got[axis][-1][2] for axis in ("simulated_s", "sent_bit", "energy_j")}
    summary = run.summary
    assert last["simulated_s"] == pytest.approx(summary["simulated_s"], rel=SINGLE)
    assert last["sent_bit"] == pytest.approx(summary["uplink_bit"] + summary["downlink_bit"], rel=SINGLE)
    assert last["energy_j"] == pytest.approx(summary["energy_j"], rel=SINGLE)


@each
def test_neither_digest_nor_tables_change(name: str, tmp_path: Path):
    """A tracked run has the bytes of one that is not."""
    scenario = small_scenario(*SETTINGS)
    run = fe.run(scenario, out=tmp_path / "tracked", track=name)

    assert run.digest == fe.run(scenario, out=tmp_path / "plain").digest
    for table in (tmp_path / "plain").glob("*.parquet"):
        assert (tmp_path / "tracked" / table.name).read_bytes() == table.read_bytes()


@each
def test_a_resumed_run_goes_on_without_telling_anything_twice(name: str, tmp_path: Path):
    """Ctrl-C after round 4, and the same call again: one run, every point once."""
    scenario = small_scenario(*SETTINGS, "training.checkpoint_s=1.0e-9")

    def interrupt(fed: Federation) -> None:
        if fed.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(scenario, "small", tmp_path / "run", on_round=interrupt, track=trackers_of(name))
    before = READ[name](tmp_path / "run")
    assert before["rounds/arrived"][-1][0] == 4
    play(scenario, "small", tmp_path / "run", track=trackers_of(name))

    assert_told(READ[name](tmp_path / "run"), fe.open(tmp_path / "run"))


@each
def test_what_is_there_after_a_kill_is_told_once(name: str, tmp_path: Path):
    """A process that is killed in round 4 leaves no farewell; the next one makes the run whole."""
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from fednet_emu.emulation.play import play\n"
        "from fednet_emu.testing import small_scenario\n"
        "from fednet_emu.tracking.tracker import trackers_of\n"
        "kill = lambda fed: os.kill(os.getpid(), signal.SIGKILL) if fed.round == 4 else None\n"
        "name, out, *settings = sys.argv[1:]\n"
        "play(small_scenario(*settings), 'small', Path(out), on_round=kill, track=trackers_of(name))\n"
    )
    killed = Forked("-c", code, name, tmp_path / "run", *SETTINGS).ended()
    assert killed.returncode == -9
    play(small_scenario(*SETTINGS), "small", tmp_path / "run", track=trackers_of(name))

    assert_told(READ[name](tmp_path / "run"), fe.open(tmp_path / "run"))


def crashed(name: str, out: Path) -> None:
    def crash(fed: Federation) -> None:
        raise ZeroDivisionError("no way")

    with pytest.raises(ZeroDivisionError):
        play(small_scenario(*SETTINGS), "small", out, on_round=crash, track=trackers_of(name))


@needs("tensorboard")
def test_tensorboard_has_settings_texts_and_the_status(tmp_path: Path):
    """Settings are hyperparameters of the run; the files can be read; a crash is a failure."""
    from tensorboard.plugins.hparams.api_pb2 import Status
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    def status(run: Path) -> str:
        content = tensorboard_events(run).summary_metadata["_hparams_/session_end_info"].plugin_data.content
        return Status.Name(HParamsPluginData.FromString(content).session_end_info.status)

    run = fe.run(small_scenario(*SETTINGS), out=tmp_path / "run", track="tensorboard")
    events = tensorboard_events(tmp_path / "run")
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    settings = HParamsPluginData.FromString(content).session_start_info.hparams
    assert settings["algorithm.lr"].number_value == run.scenario.algorithm.lr
    assert settings["algorithm.kind"].string_value == "fedavg"
    assert settings.keys() == flat(run.scenario.model_dump(mode="json")).keys()
    (shown,) = events.Tensors("scenario.yaml/text_summary")
    (text,) = shown.tensor_proto.string_val
    written = (tmp_path / "run" / "scenario.yaml").read_text()
    assert text.decode() == "\n".join(f"    {line}" for line in written.splitlines())
    assert status(tmp_path / "run") == "STATUS_SUCCESS"
    crashed("tensorboard", tmp_path / "crash")
    assert status(tmp_path / "crash") == "STATUS_FAILURE"


@needs("tensorboard")
def test_tensorboard_shows_the_run_that_has_replaced_another(tmp_path: Path):
    """The events of a run stay until the one that replaces it is done."""
    scenario, out = small_scenario(*SETTINGS), tmp_path / "run"
    fe.run(scenario, out=out, track="tensorboard")

    def folders(_fed: Federation) -> None:
        seen.append(len(list((out / "tensorboard").iterdir())))

    seen: list[int] = []
    play(scenario, "small", out, on_round=folders, force=True, track=trackers_of("tensorboard"))
    assert seen == [2] * 6
    assert_told(tensorboard_points(out), fe.open(out))


@needs("mlflow")
def test_mlflow_has_settings_files_and_the_status(tmp_path: Path):
    """Settings are parameters, the run folder is the artifacts, a crash is a failure."""
    run = fe.run(small_scenario(*SETTINGS), out=tmp_path / "run", seed=3, track="mlflow")
    client, (told,) = mlflow_runs(tmp_path / "run")

    settings = flat(run.scenario.model_dump(mode="json"))
    assert told.data.params == {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()
    }
    assert (told.info.status, told.info.run_name) == ("FINISHED", run.name)
    assert told.data.tags["fednet_emu.digest"] == run.digest
    assert client.get_experiment(told.info.experiment_id).name == run.name
    names = {file.path for file in client.list_artifacts(told.info.run_id)}
    assert names >= {"scenario.yaml", "summary.json", "evaluations.parquet", "manifest.json", "model.pt", "log.txt"}
    kept = client.download_artifacts(told.info.run_id, "evaluations.parquet", str(tmp_path))
    assert Path(kept).read_bytes() == (tmp_path / "run" / "evaluations.parquet").read_bytes()
    crashed("mlflow", tmp_path / "crash")
    _, (told,) = mlflow_runs(tmp_path / "crash")
    assert (told.info.status, told.data.tags["fednet_emu.reason"]) == ("FAILED", "ZeroDivisionError: no way")


@needs("mlflow")
def test_mlflow_uses_the_store_that_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With MLFLOW_TRACKING_URI nothing of MLflow is in the run folder, and a run in memory can be tracked."""
    (tmp_path / "mlruns").mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlruns' / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    run = fe.run(small_scenario(*SETTINGS), track="mlflow")

    assert_told(mlflow_points(tmp_path), run)


@needs("mlflow")
def test_mlflow_is_told_once_even_where_the_store_takes_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A database ignores a point that it has; MLflow's store of files does not, so none is sent twice."""
    uri = (tmp_path / "files").as_uri()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    scenario, out = small_scenario(*SETTINGS), tmp_path / "run"

    def interrupt(fed: Federation) -> None:
        if fed.round == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(scenario, "small", out, on_round=interrupt, track=trackers_of("mlflow"))
    play(scenario, "small", out, track=trackers_of("mlflow"))

    assert_told(mlflow_points(out, uri), fe.open(out))


@needs("mlflow")
@needs("wandb")
def test_cells_of_a_study_are_runs_of_one_experiment(tmp_path: Path):
    """Cells that run at the same time share one database of MLflow, and one folder of W&B."""
    track, out = ["mlflow", "wandb"], tmp_path / "study"
    study = fe.sweep(small_scenario("stop.rounds=2"), seeds=3, out=out, workers=2, track=track)

    _, runs = mlflow_runs(out)
    assert not study.failures
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len({run.info.experiment_id for run in runs}) == 1
    assert sorted(run.data.tags["fednet_emu.seed"] for run in runs) == ["0", "1", "2"]
    assert len(list((out / "wandb").glob("offline-run-*/run-*.wandb"))) == 3


@needs("wandb")
def test_wandb_has_settings_files_and_the_status(tmp_path: Path):
    """Settings are the configuration, the files are beside the log, a crash ends with exit code 1."""

    def of_kind(out: Path, kind: str):
        return [getattr(record, kind) for record in wandb_records(out) if record.WhichOneof("record_type") == kind]

    run = fe.run(small_scenario(*SETTINGS), out=tmp_path / "run", track="wandb")
    out = tmp_path / "run"
    (told,) = of_kind(out, "run")
    settings = {item.key: json.loads(item.value_json) for item in told.config.update}
    assert settings.items() >= flat(run.scenario.model_dump(mode="json")).items()
    assert (told.project, told.run_group, told.display_name) == ("fednet_emu", run.name, run.name)
    (folder,) = (out / "wandb").glob("offline-run-*")
    saved = {item.path for record in of_kind(out, "files") for item in record.files}
    for name in ("scenario.yaml", "summary.json", "evaluations.parquet", "model.pt"):
        assert name in saved
        assert (folder / "files" / name).read_bytes() == (out / name).read_bytes()
    assert [record.exit_code for record in of_kind(out, "exit")] == [0]
    assert {record.name: record.step_metric for record in of_kind(out, "metric") if record.name} == {"round": ""}
    crashed("wandb", tmp_path / "crash")
    assert [record.exit_code for record in of_kind(tmp_path / "crash", "exit")] == [1]


@pytest.mark.parametrize("name", READ)
def test_a_missing_library_is_told_before_anything_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The error names the extra that brings it."""
    module = {"tensorboard": "torch.utils.tensorboard"}.get(name, f"{name}.entities" if name == "mlflow" else name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FednetError, match=rf"got '{name}'; pip install 'fednet-emu\[{name}\]'"):
        fe.run(small_scenario(), out=tmp_path / "run", track=name)

    assert not (tmp_path / "run").exists()


@each
def test_where_there_is_no_folder_nothing_is_written(name: str):
    """A run in memory leaves no files somewhere else."""
    with pytest.raises(FednetError, match=f"track: {name} writes into the run folder, got a run without one"):
        fe.run(small_scenario(), track=name)
