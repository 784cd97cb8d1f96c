"""Count the functions and files that an upload passes from its request to its row, and the calls of a round.

Run `python qa/way_of_a_transfer.py` for a table, with `--list` for the functions as well, and with `--calls` for the
calls of each function. How it counts:

- Worlds: the small federation of `fednet_emu.testing`, timing only, with an algorithm whose client trains once and
  returns its model. The client is not marked as one that only computes, so that rounds are played by the event loop.
- Way of an upload: one device. The functions of `fednet_emu` that are called from `Federation.uplink` to the call that
  appends the row of the uplink, both included, in the third round: what is computed once per run is left out.
- Calls of a round: four devices. Calls of Python functions in the third round, from its message to its end: those of
  `fednet_emu`, which are the same on every machine, and all, which differ by the versions of NumPy and SimPy.

Comprehensions, lambdas and generated code are not counted, as Python versions differ in what is a function of its own;
resuming a generator counts as a call.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, NamedTuple

import fednet_emu as fe
from fednet_emu.federation.federation import Federation
from fednet_emu.records.rows import KINDS
from fednet_emu.records.table import Table
from fednet_emu.testing import small_federation

PACKAGE = str(Path(fe.__file__).parent)
UNICAST = "network.downlink.mode=unicast"
WORLDS = {
    "tdma": (),
    "tcp": ("network.transport=tcp", UNICAST),
    "nr-grants": ("network.uplink.access=nr-grants", "network.downlink.access=nr-grants"),
}
WARM_UP = 2
"""Rounds before the one that is counted."""
PLAN = fe.SgdPlan(lr=0.1, steps=1)
UPLINK = KINDS.index("uplink")


class Traced(fe.Algorithm):
    """Three rounds of training, the last of them with a profile function."""

    kind = "traced"
    profile: ClassVar[Callable[[FrameType, str, Any], None]]

    def run(self, fed: fe.Federation) -> fe.Process:
        """The server's process."""
        w = fed.initial_model()
        for t in range(WARM_UP + 1):
            if t == WARM_UP:
                sys.setprofile(type(self).profile)
            arrived = yield from fed.exchange(fed.devices(), w, self.client, t)
            w = arrived.average()
            fed.end_of_round(w)
        sys.setprofile(None)

    def client(self, fed: fe.Federation, k: fe.Device, w: Any, t: int) -> fe.Process:
        """A device: train."""
        trained = yield k.train(w, PLAN, t)
        return trained.params


class Way(NamedTuple):
    """What an upload passes: the qualified names of functions, by file, in the order of their first calls."""

    functions: dict[str, list[str]]

    @property
    def count(self) -> tuple[int, int]:
        """Numbers of functions and of files."""
        return sum(map(len, self.functions.values())), len(self.functions)


def way_of_an_upload(*settings: str) -> Way:
    """The way of an upload in the small federation with these settings."""
    fed = small_federation("devices.count=1", "algorithm.cohort=1", *settings, timing_only=True)
    functions: dict[str, list[str]] = {}
    on = False

    def see(frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal on
        code, own = frame.f_code, frame.f_locals
        if event != "call":
            return
        on = on or code is Federation.uplink.__code__
        if on and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            names = functions.setdefault(str(Path(code.co_filename).relative_to(PACKAGE)), [])
            if code.co_qualname not in names:
                names.append(code.co_qualname)
        if code is Table.append.__code__ and own["self"] is fed.ledger.transfers and own["row"][0] == UPLINK:
            on = False

    Traced.profile = staticmethod(see)
    fed.run(Traced())
    return Way(functions)


class Calls(NamedTuple):
    """How often each function is called in a round: those of the package, and all others; by file and name."""

    own: Counter[str]
    others: Counter[str]


def calls_of_a_round(*settings: str) -> Calls:
    """The calls of a round of the small federation with these settings."""
    fed = small_federation(*settings, timing_only=True)
    calls = Calls(Counter(), Counter())

    def see(frame: FrameType, event: str, _arg: Any) -> None:
        code = frame.f_code
        if event == "call" and not f"{code.co_filename}{code.co_name}".count("<"):
            counter = calls.own if code.co_filename.startswith(PACKAGE) else calls.others
            counter[f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_qualname}"] += 1

    Traced.profile = staticmethod(see)
    fed.run(Traced())
    return calls


def main() -> None:
    """Print a table of all worlds, and what the options ask for."""
    parser = argparse.ArgumentParser(description="Functions, files and calls on the way of an upload.")
    parser.add_argument("--list", action="store_true", help="list the functions that an upload passes")
    parser.add_argument("--calls", action="store_true", help="list how often a round calls each function")
    asked = parser.parse_args()
    print(f"{'world':<12}{'functions':>10}{'files':>7}{'calls of a round':>18}{'all':>7}")
    for world, settings in WORLDS.items():
        way, calls = way_of_an_upload(*settings), calls_of_a_round(*settings)
        functions, files = way.count
        own = calls.own.total()
        print(f"{world:<12}{functions:>10}{files:>7}{own:>18,}{own + calls.others.total():>7,}")
        for file, names in way.functions.items() if asked.list else ():
            print(f"  {file}: {', '.join(names)}")
        for name, count in calls.own.most_common() if asked.calls else ():
            print(f"  {count:>6} {name}")


if __name__ == "__main__":
    main()
