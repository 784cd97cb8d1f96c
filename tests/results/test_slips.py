"""Slips of Python users: another kind by its name, and sentences for what was meant otherwise."""

import logging
from pathlib import Path
from typing import Any

import pytest

import fednet_emu as fe
from fednet_emu.emulation.given import changes
from fednet_emu.scenario.document import load
from fednet_emu.study.file import StudyFile
from fednet_emu.study.runs import runs_of

pytestmark = pytest.mark.usefixtures("cells_here")
SHORT = {"stop.rounds": 2}


class Clusters(fe.Algorithm):
    """An algorithm whose time tells one of its fields: each round takes as many seconds."""

    clusters: int = 1

    def run(self, fed: fe.Federation) -> fe.Process:
        w = fed.initial_model()
        for _ in fed.rounds():
            yield fed.sleep(self.clusters)
            fed.end_of_round(w, invited=1, arrived=1)


def timed(**given: Any) -> fe.Run:
    settings = {**SHORT, **given.pop("settings", {})}
    return fe.run("quickstart", settings=settings, timing_only=True, progress=False, **given)


def swept(grid: dict[str, Any], **given: Any) -> fe.Study:
    return fe.sweep("quickstart", grid=grid, seeds=1, settings=SHORT, timing_only=True, progress=False, **given)


def test_another_kind_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    """`algorithm="fedasync"` is `--set algorithm.kind=fedasync`; what it lacks is told in one line."""
    with caplog.at_level(logging.WARNING, "fednet_emu.settings"):
        run = timed(algorithm="fedasync", model="softmax")

    assert run.scenario == fe.check(
        "quickstart", settings={"algorithm.kind": "fedasync", "model.kind": "softmax", **SHORT}
    )
    assert "algorithm: fedasync in place of fedavg, so these settings do not apply: cohort" in caplog.messages
    assert run.scenario.algorithm.lr == 0.1  # type: ignore[attr-defined]


def runs(grid: dict[str, Any], **given: Any) -> dict[str, Any]:
    """The algorithms of the runs of a study, by the labels of their levels; nothing runs."""
    sources = {"base": "quickstart", "grid": grid, "seeds": 1}
    study = runs_of(StudyFile.of("quickstart", load("quickstart"), sources), [*changes(None, **given)])
    return {run.label.removesuffix(", seed=0"): run.scenario.algorithm for run in study}


@pytest.mark.parametrize("key", ["algorithm", "algorithm.kind"])
def test_kinds_can_be_swept(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every run has the settings of the quickstart; what one lacks is told once for all runs."""
    with caplog.at_level(logging.WARNING, "fednet_emu.settings"):
        found = runs({key: ["fedavg", "scaffold", "fedasync"], "algorithm.lr": [0.2, 0.1]})

    assert [(its.kind, its.lr, its.local_epochs) for its in found.values()] == [
        (kind, lr, 2) for kind in ("fedavg", "scaffold", "fedasync") for lr in (0.2, 0.1)
    ]
    assert found[f"{key}=fedavg, algorithm.lr=0.1"] == fe.check("quickstart").algorithm
    assert found[f"{key}=scaffold, algorithm.lr=0.1"].cohort == 10
    assert caplog.messages == ["algorithm: fedasync in place of fedavg, so these settings do not apply: cohort"]


def test_fields_of_an_object_of_a_local_class_can_be_swept() -> None:
    """Its class can be found by nobody but this function."""

    class Local(Clusters):
        pass

    found = runs({"algorithm.clusters": [1, 3]}, algorithm=Local())

    assert [(type(its), its.clusters) for its in found.values()] == [(Local, 1), (Local, 3)]


def test_objects_can_be_swept_by_name() -> None:
    """Variants have names of their own; a list of objects is named by what they print as."""
    variants = {"one": {"algorithm": Clusters()}, "three": {"algorithm": Clusters(clusters=3)}}

    assert runs({"pace": variants}) == {"pace=one": Clusters(), "pace=three": Clusters(clusters=3)}
    assert [*runs({"algorithm": [Clusters(), Clusters(clusters=3)]})] == [
        "algorithm=Clusters(clusters=1)",
        "algorithm=Clusters(clusters=3)",
    ]


def test_files_of_another_kind(tmp_path: Path) -> None:
    """A study for `run`, a scenario for `sweep` and a folder say what they are, before all problems of their keys."""
    study, scenario = tmp_path / "study.yaml", tmp_path / "scenario.yaml"
    study.write_text("base: quickstart\ngrid: {devices.count: [10, 20]}\n", encoding="utf-8")
    scenario.write_text("include: quickstart\nseed: 3\n", encoding="utf-8")

    with pytest.raises(fe.ScenarioError, match=r"study\.yaml: is a study, not a scenario"):
        fe.run(study)
    with pytest.raises(fe.ScenarioError, match=r"no such scenario, got .*, a folder; give the file in it"):
        fe.run(tmp_path)


def test_levels_are_compared_as_numbers() -> None:
    """Bandwidths of 1 and 2 MHz, however they are written."""
    study = swept({"channel.bandwidth_hz": [1e6, 2e6]})

    told = [
        study.compare(f"channel.bandwidth_hz={first}", f"channel.bandwidth_hz={second}").frame.to_csv()
        for first, second in (("1e+06", "2e+06"), ("1e6", "2e6"), ("1000000", "2000000.0"))
    ]
    assert told[0] == told[1] == told[2]
    assert study.run(**{"channel.bandwidth_hz": 2_000_000}).digest == study.run(**{"channel.bandwidth_hz": 2e6}).digest
    with pytest.raises(fe.FednetError, match=r"no such level of channel\.bandwidth_hz, got '3e6'"):
        study.compare("channel.bandwidth_hz=1e6", "channel.bandwidth_hz=3e6")


def test_exactly_one_of_is_told_beside_all_other_problems() -> None:
    """Wrong values do not hide that two settings exclude each other, nor the other way round."""
    with pytest.raises(fe.ScenarioError) as caught:
        fe.check("quickstart", settings={"algorithm.local_steps": 3, "algorithm.lr": -1, "algorithm.selection": "oart"})

    told = [problem.partition("  ")[2] for problem in caught.value.problems]
    assert len(told) == 3
    assert "algorithm.lr: must be >= 0, got -1" in told
    assert "algorithm.selection: no such kind of selection, got 'oart'; did you mean 'oort'?" in " ".join(told)
    assert (
        "algorithm: exactly one of local_epochs and local_steps is needed, got local_epochs: 2 and local_steps: 3"
        in told
    )
