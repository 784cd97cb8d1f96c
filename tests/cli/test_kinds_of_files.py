"""The command line says what it was given, where that is not what the command wants."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fednet_emu.cli.app import app


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "run quickstart_access",
            "is a study, not a scenario, got 'quickstart_access'; fednet sweep quickstart_access",
        ),
        ("run study.yaml", "study.yaml: is a study, not a scenario, got 'study.yaml'; fednet sweep study.yaml"),
        ("sweep quickstart", "is a scenario, not a study, got 'quickstart'; fednet run quickstart"),
        ("sweep mine.yaml", "mine.yaml: is a scenario, not a study, got 'mine.yaml'; fednet run mine.yaml"),
        ("search mine.yaml", "mine.yaml: is a scenario, not a study, got 'mine.yaml'; fednet run mine.yaml"),
        ("run no/mine.yaml", "no such file, got 'no/mine.yaml'; give the path of a scenario"),
        ("check no/mine.yaml", "no such file, got 'no/mine.yaml'; give the path of a scenario"),
        ("sweep no/mine.yaml", "no such file, got 'no/mine.yaml'; give the path of a study"),
        ("run quickstat.yaml", "no such file, got 'quickstat.yaml'; did you mean 'quickstart'?"),
        ("run no", "no such scenario, got 'no', a folder; give the file in it"),
        ("check quickstart --set data=cifar10", "got 'cifar10'; write {kind: torchvision, name: CIFAR10}"),
        ("check quickstart --set data=mine.npz", "got 'mine.npz'; write {kind: npz, path: mine.npz}"),
        ("check quickstart --set algorithm={cohort:9}", "change single settings by their keys"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(
    command: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and one line that says what to do."""
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text("base: quickstart\ngrid: {devices.count: [10, 20]}\n", encoding="utf-8")
    Path("mine.yaml").write_text("include: quickstart\nseed: 2\n", encoding="utf-8")
    Path("no").mkdir()

    result = CliRunner().invoke(app, command.split())

    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_a_changed_kind_leaves_out_is_told_once(tmp_path: Path) -> None:
    """The command checks the scenario and runs it, and prints the line a single time."""
    options = ["--timing-only", "--quiet", "--no-plots", "--out", str(tmp_path / "run"), "--set", "stop.rounds=1"]

    result = CliRunner().invoke(app, ["run", "quickstart", "--set", "algorithm=fedasync", *options])

    assert result.exit_code == 0
    assert result.stderr == "algorithm: fedasync in place of fedavg, so these settings do not apply: cohort\n"
