"""Run one scenario and keep its records, in memory or in a run folder, even if the run fails or is interrupted."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fednet_emu.data import noting
from fednet_emu.errors import Diverged
from fednet_emu.federation.federation import Federation
from fednet_emu.learning.engines.auto import AutoEngine
from fednet_emu.learning.engines.rule import RuleEngine
from fednet_emu.learning.graph.host_time import HostTime
from fednet_emu.records.divergence import divergence
from fednet_emu.records.idle import idle_s
from fednet_emu.records.ledger import KINDS, SCORES, Ledger
from fednet_emu.records.store import FINISHED, RunFolder
from fednet_emu.records.verify import verify
from fednet_emu.scenario.checkpoints import Saver, load_checkpoint
from fednet_emu.scenario.document import dump
from fednet_emu.scenario.emulation import build
from fednet_emu.scenario.final_model import FinalModel, final_model, save_model
from fednet_emu.scenario.model import Scenario
from fednet_emu.scenario.provenance import provenance
from fednet_emu.scenario.side_effects import none_left_behind
from fednet_emu.scenario.signals import graceful

LOG = logging.getLogger("fednet_emu")

APPROXIMATE = "events depend on learnt numbers: a timing-only run, which takes nominal ones, is an approximation"
"""Note that is printed or logged before a run whose events depend on learnt values."""


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


def run_scenario(scenario: Scenario, name: str, out: Path, **options: Any) -> dict[str, Any]:
    """Run a scenario into a folder and return its summary; the options are those of `play`."""
    return play(scenario, name, out, **options).summary


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
) -> Ended:
    """Run a scenario, in memory or into a folder.

    The folder is created only after everything has been built. It records how the run ended: done, diverged,
    interrupted or failed. In the last two cases, what was measured so far is written before the exception propagates,
    and the same call later continues from the last checkpoint.

    Args:
        scenario: what to run.
        name: the scenario's name, for the records.
        out: the run folder; None writes nothing.
        data_dir: the folder with data sets.
        timing_only: whether to leave out training.
        force: whether to overwrite a finished run.
        keep_model: whether to return the final model, and to save a global one as `model.pt` in the folder.
        on_round: called at the end of every round.
    """
    started, host = time.perf_counter(), HostTime()
    facts = {"name": name, "seed": scenario.seed, "timing_only": timing_only}
    model: FinalModel | None = None
    with none_left_behind():
        text = "" if out is None else dump(scenario)
        if out is not None:
            RunFolder.check(out, text, timing_only=timing_only, force=force)
        checkpoint = None if out is None or force or timing_only else load_checkpoint(out)
        with host.part("building"), noting() as read:
            fed = build(scenario, data_dir=data_dir, timing_only=timing_only, host=host)
        origin = {} if out is None else provenance(scenario, read)
        folder = None if out is None else RunFolder.create(out, text, force=force, **facts, **origin)
        saver = None if folder is None else Saver(folder, scenario.training.checkpoint_s)
        fed.observers.extend([observer for observer in (on_round, saver) if observer is not None])
        with _accounted(fed, folder, scenario, saver, facts, origin, started) as summary:
            if checkpoint is not None and saver is not None:
                LOG.info("going on from a checkpoint: %d values were read before", len(checkpoint.readings))
                saver.write(checkpoint)
                fed.resume(checkpoint)
                del checkpoint  # frees the memory of its values as the run takes them over
            fed.run(scenario.algorithm)
            model = final_model(fed) if keep_model else None
            if model is not None and folder is not None:
                save_model(model, folder)
    return Ended(summary, fed.ledger, model)


@contextmanager
def _accounted(
    fed: Federation,
    folder: RunFolder | None,
    scenario: Scenario,
    saver: Saver | None,
    facts: dict[str, Any],
    origin: dict[str, Any],
    started: float,
) -> Iterator[dict[str, Any]]:
    """Write all records of the run inside the `with` block, however it ends, and fill in its summary."""
    summary, status, reason = dict(facts), "failed", ""
    with _log_file(folder), graceful(fed.clock) as signals:
        LOG.info(
            "%s, seed %d: %d devices, %d parameters", facts["name"], facts["seed"], fed.n_devices, fed.task.model.size
        )
        if scenario.events_depend_on_learning:
            LOG.info("%s", APPROXIMATE)
        try:
            yield summary
            status = "done"
        except Diverged as error:
            status, reason = "diverged", str(error)
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        except BaseException as error:
            LOG.info("failed at t=%.9g s: %s", fed.clock.now_s, error)
            raise
        finally:
            signals.ignore()
            if status not in FINISHED and saver is not None:
                saver.save(fed)
            with fed.graph.host.part("records"):
                totals = _finish(fed, folder, scenario)
            if status == "done":
                reason = divergence(fed.ledger)
                status = "diverged" if reason else "done"
            summary.update(status=status, diverged=reason or None, **totals)
            parts = {part: spent._asdict() for part, spent in fed.graph.host.parts().items()}
            summary.update(host_s=time.perf_counter() - started, host_parts=parts)
            if reason:
                LOG.info("diverged: %s", reason)
            LOG.info("%s at t=%.9g s, after %.1f s of host time", status, fed.clock.now_s, summary["host_s"])
            if folder is not None and saver is not None:
                folder.write_json("summary.json", summary)
                folder.write_manifest(status, **facts, **origin, event_digest=summary["event_digest"])
                if status in FINISHED:
                    saver.discard()
                folder.release()


def _finish(fed: Federation, folder: RunFolder | None, scenario: Scenario) -> dict[str, Any]:
    """Write the tables, check the conservation laws, and return the totals."""
    fed.close()
    ledger = fed.ledger
    engine = fed.graph.engine
    for choice in engine.choices if isinstance(engine, AutoEngine | RuleEngine) else ():
        LOG.info("%s", choice)
    if folder is not None:
        for name, table in ledger.frames().items():
            folder.write_table(name, table)
    laws = _laws(ledger, scenario)
    for law, broken in laws.items():
        LOG.log(logging.ERROR if broken else logging.INFO, "law %s: %s", law, broken or "holds")
    return {
        "simulated_s": fed.clock.now_s,
        "rounds": fed.round,
        **{f"{kind}_bit": sent_bit for kind, sent_bit in zip(KINDS, ledger.sent_bit, strict=True)},
        "energy_j": ledger.energy_j,
        "idle_energy_j": scenario.channel.device.idle_w * float(idle_s(ledger, fed.n_devices, fed.clock.now).sum()),
        **_last_evaluation(fed),
        "event_digest": ledger.event_digest(),
        "verified": not any(laws.values()),
        "broken_laws": {law: broken for law, broken in laws.items() if broken},
        "events_depend_on_learning": scenario.events_depend_on_learning,
        "nominal_values": fed.nominal,
        "transfers": len(ledger.transfers),
        "wavefronts": fed.graph.statistics.wavefronts,
        "mean_wavefront": fed.graph.statistics.mean_wavefront,
    }


def _laws(ledger: Ledger, scenario: Scenario) -> dict[str, str]:
    """Check each conservation law that must hold for the scenario's access schemes; an empty text means it holds."""
    network = scenario.network
    access = {"uplink": network.uplink, "downlink": network.downlink, "sidelink": network.sidelink}
    one_cell = ("uplink", "downlink", "sidelink") if network.cells.count == 1 else ("sidelink",)
    exclusive = frozenset(  # recorded links are each device's own
        kind
        for kind, used in access.items()
        if kind in one_cell and used is not None and used.trace is None and used.access.one_at_a_time
    )
    side = network.sidelink
    in_turns = side is not None and (side.access.clustered or side.access.one_at_a_time)
    return verify(ledger, exclusive, frozenset({"sidelink"} if in_turns else ()))


def _last_evaluation(fed: Federation) -> dict[str, float | None]:
    evaluations = fed.ledger.evaluations
    if len(evaluations) == 0:
        return dict.fromkeys(SCORES)
    return {name: _finite(float(evaluations.column(name)[-1])) for name in SCORES}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@contextmanager
def _log_file(folder: RunFolder | None) -> Iterator[None]:
    """Write what this thread logs to the run's log file; other threads may run other scenarios at the same time."""
    if folder is None:
        yield
        return
    mine = threading.get_ident()
    handler = logging.FileHandler(folder.path / "log.txt", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(lambda record: record.thread == mine)
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        handler.close()
