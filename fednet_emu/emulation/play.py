"""Run one scenario and keep its records, in memory or in a run folder, even if the run fails or is interrupted."""

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
from fednet_emu.emulation.checkpoints import Saver, kept_replies, load_checkpoint
from fednet_emu.emulation.final_model import FinalModel, final_model, save_model
from fednet_emu.emulation.guard import none_left_behind
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.emulation.provenance import dependencies, provenance
from fednet_emu.emulation.record import ground, recorded, scene
from fednet_emu.errors import DataError
from fednet_emu.federation.federation import Federation
from fednet_emu.files.data_folder import data_folder, noting
from fednet_emu.learning.graph.host_time import HostTime
from fednet_emu.records.folder.store import RunFolder
from fednet_emu.records.ledger import GROUND, SCENE, Ledger
from fednet_emu.scenario.model import Scenario, Training
from fednet_emu.scenario.yaml_text import dump
from fednet_emu.tracking.tracker import Tracker
from fednet_emu.tracking.tracking import Tracking

LOG = logging.getLogger("fednet_emu")


class Ended(NamedTuple):
    """The results of a run that has ended.

    Attributes:
        summary: totals and last scores, as in summary.json.
        ledger: all records of the run.
        model: the final model; None if it was not asked for or there is none, as in a timing-only run.
    """

    summary: dict[str, Any]
    ledger: Ledger
    model: FinalModel | None


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
) -> Ended:
    """Run a scenario, in memory or into a folder.

    The folder is created only after everything has been built. It records how the run ended: done, diverged,
    interrupted or failed. In the last two cases, what was measured so far is written before the exception propagates,
    and the same call later continues from the last checkpoint, or starts anew where there is none that can be used.

    Args:
        name: the scenario's name, for the records.
        out: the run folder; None writes nothing.
        timing_only: whether to leave out training.
        force: whether to replace a run that the folder already holds, once the new one is done or has diverged; until
            then the new one is in the sub-folder `unfinished`.
        keep_model: whether to return the final model, and to save a global one as `model.pt` in the folder.
        on_round: called at the end of every round.
        track: hear of the run.
        study: for trackers, the name and the folder of the study that the run belongs to.
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
        folder, saver, belongs = None, None, {}
        if out is not None:
            origin = provenance(scenario, read)
            belongs = dependencies(text, origin)
            folder = RunFolder.create(out, text, force=force, **facts, **origin)
            open_now.callback(folder.release)
            fed.ledger.keep_in(folder.path)
            if not scenario.algorithm.own_learning:
                saver = Saver(folder, scenario.training.checkpoint_s, belongs)
        tracking = Tracking(track, folder, name, scenario.seed, study)
        fed.observers.extend([observer for observer in (tracking.flush, on_round, saver) if observer is not None])
        open_now.push(lambda _kind, error, _where: tracking.close(error))  # when all records are written
        summary = open_now.enter_context(recorded(fed, folder, scenario, saver, facts, started))
        tracking.start(fed.ledger, fed.clock, partial(scenario.model_dump, mode="json"), summary)
        if folder is not None and saver is None and scenario.training.checkpoint_s is not None:
            fed.kept = open_now.enter_context(kept_replies(folder.path, belongs))
        if out is not None or keep_model:
            open_now.callback(describe, fed, scenario, data_dir)  # before the records are written
        if folder is not None and saver is not None and not timing_only:
            checkpoint = load_checkpoint(folder.path, belongs)
            if checkpoint is not None:
                LOG.info("going on from a checkpoint: %d values were read before", len(checkpoint.readings))
                fed.learner.resume(checkpoint)
        fed.run(scenario.algorithm)
        model = final_model(fed, data_folder(data_dir)) if keep_model else None
        if model is not None and folder is not None:
            save_model(model, folder)
    return Ended(summary, fed.ledger, model)


MOST_TRIED_BYTE, MOST_TRIED_DEVICES = 1e9, 20_000
"""Memory and devices up to which a scenario is tried, which then takes seconds."""


def tried(outlook: Outlook) -> str:
    """Build a scenario and run its first round without training, so that a check refuses what its run would refuse.

    Returns:
        Why it was not tried; empty if it was. Large scenarios, algorithms and apps from outside the package, and
        scenarios whose files are not there are not.

    Raises:
        FednetError: the run would end with this error.
    """
    scenario = outlook.scenario
    if any(scenario.untimed()) or not is_ours(type(scenario.algorithm)):
        return "code from outside the package is run in the run itself only"
    if outlook.cost.most_byte > MOST_TRIED_BYTE or scenario.devices.count > MOST_TRIED_DEVICES:
        return "it is large"
    stop = scenario.stop.model_copy(update={"rounds": 1})
    small = scenario.model_copy(update={"stop": stop, "training": Training(engine="serial")})
    try:
        play(small, scenario.title, None, data_dir=outlook.data_dir, timing_only=True)
    except DataError as error:
        return str(error)
    return ""


def describe(fed: Federation, scenario: Scenario, data_dir: Path | str | None) -> None:
    """Record where devices were until now, for pages and traces."""
    fed.ledger.described[SCENE] = scene(scenario, fed.network, fed.clock.now_s, data_dir).frame()
    if fed.network.gains is not None:
        fed.ledger.described[GROUND] = ground(fed.network.gains)
