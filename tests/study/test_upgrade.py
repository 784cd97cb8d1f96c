"""`fednet upgrade`: former names in files are replaced, and nothing else in them."""

from pathlib import Path

from fednet_emu.scenario.wording import present_key
from tests.commands import fednet

SCENARIO = """\
include: quickstart
channel:
  {long_transfers}: {walk}   # walk along the blocks
"network": {{{movement_s}: 1, uplink: {{{loss}: none, access: {{"kind": {shared}, max_senders: 2}}}}}}
evaluation: {{{train_loss}: true}}
"""
STUDY = """\
title: train_loss of shared media
base: quickstart
grid:
  network.{movement_s}: [1, 2]
  network.uplink.access: [tdma, {{kind: {shared}, max_senders: 2}}]
"""
FORMER = ("long_transfers", "walk", "movement_s", "loss", "shared", "train_loss")
PRESENT = ("fading_model", "per-block", "position_update_s", "message_loss", "full-reuse", "worst_train_loss")


def test_upgrade_replaces_keys_kinds_and_values_of_scenarios_and_studies(tmp_path: Path) -> None:
    """Comments, layout, quotes and equal words in other places stay; each change is a line; again, there is none."""
    for name, text, count in (("scenario.yaml", SCENARIO, 6), ("study.yaml", STUDY, 2)):
        path = tmp_path / name
        path.write_text(text.format(**dict(zip(FORMER, FORMER, strict=True))))

        result = fednet("upgrade", str(path))

        assert result.exit_code == 0, result.output
        assert path.read_text() == text.format(**dict(zip(FORMER, PRESENT, strict=True)))
        assert result.stdout.count(" is now ") == count
        assert "has no former names" in fednet("upgrade", str(path)).stdout


def test_upgrade_replaces_the_value_and_no_equal_word_before_it(tmp_path: Path) -> None:
    """A scenario on one line, whose title begins with a former kind."""
    path, text = (
        tmp_path / "line.yaml",
        "{{title: shared air, include: quickstart, network: {{uplink: {{access: {}}}}}}}\n",
    )
    path.write_text(text.format("shared"))
    result = fednet("upgrade", str(path))
    assert result.stdout.count(" is now ") == 1
    assert path.read_text() == text.format("full-reuse")


def test_a_former_name_of_two_settings_has_the_present_name_of_its_group() -> None:
    """`loss` was a setting of the uplink and of d-psgd; elsewhere it is no former name."""
    known = ["access", "message_loss"], ["lr", "on_lost_message"], ["lr"]

    assert [present_key("loss", names) for names in known] == ["message_loss", "on_lost_message", None]


def test_upgrade_replaces_a_name_inside_a_key_path(tmp_path: Path) -> None:
    """The former name of a group of settings is replaced, although more keys follow it."""
    path = tmp_path / "study.yaml"
    path.write_text("title: lines\nbase: edge_servers\ngrid:\n  network.edges.backhaul.rate_bps: [1.0e+5, 1.0e+6]\n")

    result = fednet("upgrade", str(path))

    assert result.exit_code == 0, result.output
    assert "\n  network.edge_servers.backhaul.rate_bps: [1.0e+5, 1.0e+6]\n" in path.read_text()


def test_upgrade_replaces_names_before_it_reports_other_problems(tmp_path: Path) -> None:
    """A misspelt key is an error, after the former name is replaced."""
    path = tmp_path / "scenario.yaml"
    path.write_text("include: quickstart\nevaluation: {train_loss: true}\nseeed: 3\n")

    result = fednet("upgrade", str(path))

    assert result.exit_code == 2
    assert "train_loss is now worst_train_loss" in result.stdout
    assert "no such setting; did you mean 'seed'?" in result.stderr
    assert "worst_train_loss: true" in path.read_text()
