"""The command `fednet trace`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

import fednet_emu as fe
from fednet_emu.cli.options import device_numbers
from fednet_emu.draw.trace import feed
from fednet_emu.errors import FednetError
from fednet_emu.screen import progress
from fednet_emu.screen.progress import Bar
from tests.commands import fednet


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run without training."""
    folder = tmp_path_factory.mktemp("trace") / "run"
    fe.run("quickstart", settings={"stop.rounds": 3}, out=folder, timing_only=True)
    return folder


def test_the_trace_is_in_the_run_folder_unless_said_otherwise(finished: Path, tmp_path: Path) -> None:
    """The path is all that is printed; --out may name a folder that does not exist yet."""
    result = fednet("trace", str(finished))
    elsewhere = fednet("trace", str(finished), "--out", str(tmp_path / "new" / "t.pftrace"), "--quiet")

    assert (result.exit_code, elsewhere.exit_code) == (0, 0)
    assert result.stdout == f"{finished / 'run.pftrace'}\n"
    assert (finished / "run.pftrace").read_bytes() == (tmp_path / "new" / "t.pftrace").read_bytes()


def test_from_until_and_devices_make_it_smaller(finished: Path, tmp_path: Path) -> None:
    """Only the devices that were asked for have tracks, and no counter is outside of the window."""
    path = tmp_path / "t.pftrace"

    result = fednet("trace", str(finished), "--out", str(path), "--from", "0.5", "--until", "1.0", "--devices", "1,7-9")

    assert result.exit_code == 0, result.output
    packets = Trace.FromString(path.read_bytes()).packet
    named = {packet.track_descriptor.name for packet in packets if packet.track_descriptor.name.startswith("dev-")}
    counted = [packet.timestamp for packet in packets if packet.track_event.HasField("double_counter_value")]
    assert named
    assert named <= {"dev-1", "dev-7", "dev-8", "dev-9"}
    assert 5e8 <= min(counted) <= max(counted) <= 1e9


def test_mistakes_end_with_exit_code_2(finished: Path, tmp_path: Path) -> None:
    """What is not a run, a window without devices or time, a list that is none, and a place that cannot be written."""
    (tmp_path / "file").write_text("in the way")
    run, nowhere = str(finished), str(tmp_path / "file" / "t.pftrace")

    wrong = {
        "no such run folder": fednet("trace", str(tmp_path / "none")),
        "no such device, got 99": fednet("trace", run, "--devices", "99"),
        "expected numbers and ranges, got '1,x'": fednet("trace", run, "--devices", "1,x"),
        "must be after the begin at 2 s, got 1 s": fednet("trace", run, "--from", "2", "--until", "1"),
        "choose another --out": fednet("trace", run, "--out", nowhere),
    }

    for problem, result in wrong.items():
        assert result.exit_code == 2, problem
        assert problem in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.usefixtures("cells_here")
def test_a_study_has_no_single_trace(tmp_path: Path) -> None:
    """For the folder of a study it is said that a run is needed."""
    settings = {"stop.rounds": 1}
    fe.sweep(
        "quickstart",
        grid={"network.uplink.access": ["tdma"]},
        seeds=1,
        settings=settings,
        out=tmp_path / "study",
        timing_only=True,
    )

    result = fednet("trace", str(tmp_path / "study"))

    assert result.exit_code == 2
    assert "is the folder of a study, got no single run; give the folder of one of its runs" in result.stderr


def test_progress_is_shown(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated time and slices grow with the parts that are read, up to the end of the run."""
    shown: list[tuple[str, float]] = []

    recorder = Bar(0.0, lambda text, part, _: shown.append((text, part)))
    monkeypatch.setattr(feed, "PART_ROWS", 10)
    monkeypatch.setattr(progress, "bar", lambda _progress: nullcontext(recorder))
    fe.Run.opened(finished).trace(tmp_path / "t.pftrace")

    parts = [part for _, part in shown]
    assert len(shown) > 5
    assert parts == sorted(parts)
    assert parts[-1] == pytest.approx(1.0)
    assert all(text.startswith("t = ") and text.endswith(" slices") for text, _ in shown)


@pytest.mark.parametrize(("text", "numbers"), [("7", [7]), ("0,3, 5-7", [0, 3, 5, 6, 7]), ("4-4", [4])])
def test_lists_of_devices(text: str, numbers: list[int]) -> None:
    """Numbers and ranges, both ends included, spaces allowed."""
    assert device_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1-", "-3", "1-2-3", "1.5", "9-3"])
def test_what_is_no_list_of_devices(text: str) -> None:
    """The sentence says what was given and how it should look."""
    with pytest.raises(FednetError, match=r"--devices: .* got '.*'; "):
        device_numbers(text)
