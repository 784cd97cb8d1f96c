"""Runs one scenario and records the run, in memory or in a run folder, even if the run fails or is interrupted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fednet_emu.component.component import is_ours
from fednet_emu.emulation.build import build
from fednet_emu.emulation.final_model import FinalModel, final_model, save_model
from fednet_emu.emulation.guard import none_left_behind
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.emulation.provenance import dependencies, learning_head, processor, provenance
from fednet_emu.emulation.record import ground, recorded, scene
from fednet_emu.emulation.store import Head, Replies, Saver, Shelf, cache_folder, usable
from fednet_emu.errors import DataError
from fednet_emu.federation.federation import Federation
from fednet_emu.files.data_folder import data_folder, noting
from fednet_emu.learning.graph.host_time import HostTime
from fednet_emu.learning.graph.program import Program
from fednet_emu.learning.graph.spelling import Speller, Unwritable, own_code
from fednet_emu.records.folder import LEARNING, RunFolder
from fednet_emu.records.ledger import GROUND, SCENE, Ledger
from fednet_emu.scenario.model import Scenario, Training
from fednet_emu.scenario.yaml_text import dump
from fednet_emu.tracking.tracker import Tracker
from fednet_emu.tracking.tracking import Tracking

LOG = logging.getLogger("fednet_emu")


class Ended(NamedTuple):
    """The results of a run that has ended."""

    summary: dict[str, Any]  # totals and final scores, as in summary.json
    ledger: Ledger  # all records of the run
    model: FinalModel | None  # the final model; None if it was not requested or does not exist, as in a timing-only run


def play(
    scenario: Scenario,
    name: str,
    out: Path | None,
    *,
    data_dir: Path | str | None = None,
    timing_only: bool = False,
    force: bool = False,
    keep_model: bool = False,
    on_round: Callable[[Federation], None] | None = None,
    track: Sequence[Tracker] = (),
    study: tuple[str, Path] | None = None,
    store: Path | None = None,
) -> Ended:
    """Run a scenario and return its results; write records to the folder `out` unless it is None.

    The folder is created only after the emulation has been built. The status in the folder states how the run ended:
    done, diverged, interrupted or failed. After an interruption or failure, the records so far are written before the
    exception propagates. A repeated call reads the learned values from the folder, and computes only missing values.

    Args:
        name: the scenario's name, for the records.
        out: the run folder; None writes nothing.
        timing_only: True to skip training and evaluation.
        force: True to replace an existing run in the folder, once the new run is done or has diverged; until then the
            new run is in the sub-folder `unfinished`.
        keep_model: True to return the final model, and to save a global model as `model.pt` in the folder.
        on_round: function that is called with the federation at the end of every round.
        track: the trackers of the run.
        study: name and folder of the study that the run belongs to, for trackers.
        store: the folder of learned values that runs share; None for the folder in the user's cache.
    """
    started, host = time.perf_counter(), HostTime()
    facts = {"name": name, "seed": scenario.seed, "timing_only": timing_only}
    model: FinalModel | None = None
    with none_left_behind(), ExitStack() as open_now:
        text = "" if out is None else dump(scenario)
        if out is not None:
            RunFolder.check(out, text, timing_only=timing_only, force=force)
        with host.part("building"), noting() as read:
            fed = build(scenario, data_dir=data_dir, timing_only=timing_only, host=host)
        folder, belongs = None, dict[str, str]()
        if out is not None:
            origin = provenance(scenario, read)
            belongs = dependencies(text, origin)
            folder = RunFolder.create(out, text, force=force, **facts, **origin)
            open_now.callback(folder.release)
            fed.ledger.keep_in(folder.path)
        savers: list[Saver] = []
        tracking = Tracking(track, folder, name, scenario.seed, study)
        fed.observers.extend([observer for observer in (tracking.flush, on_round) if observer is not None])
        open_now.push(lambda _kind, error, _where: tracking.close(error))  # when all records are written
        summary = open_now.enter_context(recorded(fed, folder, scenario, savers, facts, started))
        tracking.start(fed.ledger, fed.clock, partial(scenario.model_dump, mode="json"), summary)
        own = None if folder is None or scenario.training.checkpoint_s is None else folder.path / LEARNING
        savers += () if timing_only else _remember(fed, scenario, own, store, belongs)
        fed.observers.extend(savers)
        if own is not None and scenario.algorithm.own_learning:
            fed.kept = Replies(own, Head(belongs))
        if out is not None or keep_model:
            open_now.callback(describe, fed, scenario, data_dir)  # before the records are written
        fed.run(scenario.algorithm)
        model = final_model(fed, data_folder(data_dir)) if keep_model else None
        if model is not None and folder is not None:
            save_model(model, folder)
    return Ended(summary, fed.ledger, model)


def _remember(
    fed: Federation, scenario: Scenario, own: Path | None, store: Path | None, belongs: dict[str, str]
) -> list[Saver]:
    """Connect a run to stored learned values (its own folder and the shared store); return the savers of new values."""
    if scenario.algorithm.own_learning:
        LOG.info("learning is not shared: %s has its own learning", scenario.algorithm.kind)
        return []
    shared = usable(store or cache_folder()) if scenario.training.reuse else None
    if own is None and shared is None:
        return []
    speller, foreign = Speller(), "a sum on the actors of a Ray cluster" if scenario.training.engine == "ray" else ""
    with fed.graph.host.part("building"):
        try:
            head = Head(learning_head(scenario, fed.task, speller))
        except Unwritable as problem:
            foreign = str(problem)
            head = Head(belongs | {"code": own_code(), "processor": processor(fed.task.model.device)})
        shelf = Shelf(own, shared, head)
    program = Program(head.digest, shelf, own_code().encode(), speller)
    if foreign:
        program.end(foreign)
    fed.graph.use(program)
    return [Saver(shelf, scenario.training.checkpoint_s)]


MOST_TRIED_BYTE, MOST_TRIED_DEVICES = 1e9, 20_000
"""Maximum estimated memory in bytes, and maximum number of devices, of a scenario whose first round `tried` simulates.
With these limits, `tried` takes only seconds."""


def tried(outlook: Outlook) -> str:
    """Build a scenario and run its first round without training, to find the errors of a run before it starts.

    The error with which the run would end is raised. The result is the reason why the round was not simulated, or an
    empty text. Large scenarios, external algorithms and apps, and scenarios with missing files are not simulated.
    """
    scenario = outlook.scenario
    if any(scenario.untimed()) or not is_ours(type(scenario.algorithm)):
        return "code from outside the package is run in the run itself only"
    if outlook.cost.max_byte > MOST_TRIED_BYTE or scenario.devices.count > MOST_TRIED_DEVICES:
        return "it is large"
    stop = scenario.stop.model_copy(update={"rounds": 1})
    small = scenario.model_copy(update={"stop": stop, "training": Training(engine="serial")})
    try:
        play(small, scenario.title, None, data_dir=outlook.data_dir, timing_only=True)
    except DataError as error:
        return str(error)
    return ""


def describe(fed: Federation, scenario: Scenario, data_dir: Path | str | None) -> None:
    """Add the recorded positions of the devices to the ledger, and the map of path gains if there is one."""
    fed.ledger.described[SCENE] = scene(scenario, fed.network, fed.clock.now_s, data_dir).frame
    if fed.network.gains is not None:
        fed.ledger.described[GROUND] = partial(ground, fed.network.gains)
