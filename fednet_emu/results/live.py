"""Run a scenario live, with real client and server programs in real time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fednet_emu.emulation.given import ScenarioLike, Settings, app_in, changes, scenario_of
from fednet_emu.emulation.load import warn
from fednet_emu.emulation.outlook import Outlook
from fednet_emu.errors import FednetError
from fednet_emu.files.data_folder import folder_to_write
from fednet_emu.realtime.options import Commands, LiveOptions
from fednet_emu.realtime.play import play_live
from fednet_emu.results.run import Run
from fednet_emu.scenario.overrides import Setting


class LivePlan(NamedTuple):
    """A planned live run, in which real programs communicate over the emulated network in real time.

    Attributes:
        name: the name of the scenario, as used in records.
        outlook: the validated scenario with estimates about its run, such as link rates.
        commands: the commands of the programs; None for the programs of a Flower app.
        folder: the run folder.
    """

    name: str
    outlook: Outlook
    commands: Commands | None
    folder: Path

    @classmethod
    def of(
        cls,
        scenario: ScenarioLike,
        settings: Settings | None,
        client: Sequence[str],
        server: str | None,
        flower: str | None,
        *,
        seed: int | None = None,
        data_dir: str | Path | None = None,
        out: str | Path | None = None,
    ) -> LivePlan:
        """Create a plan from a scenario and commands; see `live` for the arguments."""
        own: list[str | Setting] = []
        name, commands = None, None
        if flower is None:
            commands = Commands.of(server, client)
        elif client or server is not None:
            raise FednetError("--flower: brings its own programs, got further commands; leave out one or the other")
        else:
            scenario, name, given = app_in(flower, scenario)
            own += given
        from_scenario, outlook = scenario_of(scenario, [*own, *changes(settings, seed=seed)], data_dir=data_dir)
        warn(outlook)
        name = name or from_scenario
        default = Path("results") / name / f"live-{outlook.scenario.seed}"
        return cls(name, outlook, commands, default if out is None else folder_to_write(out, "out"))

    def play(
        self,
        options: LiveOptions,
        *,
        force: bool = False,
        on_start: Callable[[str], None] = lambda _what: None,
    ) -> Run:
        """Run the scenario live and return the results. `on_start` is called with a sentence at each start-up step."""
        play_live(self.outlook, self.name, self.folder, self.commands, options, force=force, on_start=on_start)
        return Run.opened(self.folder)


def live(
    scenario: ScenarioLike,
    client: Sequence[str] = (),
    *,
    server: str | None = None,
    flower: str | None = None,
    seed: int | None = None,
    settings: Settings | None = None,
    out: str | Path | None = None,
    latency_s: float | None = LiveOptions.latency_s,
    queue_byte: int = LiveOptions.queue_byte,
    hold_s: float = LiveOptions.hold_s,
    tcp: str | None = None,
    boot_s: float = LiveOptions.boot_s,
    data_dir: str | Path | None = None,
    force: bool = False,
) -> Run:
    """Run a scenario with real programs, whose packets pass through the emulated network in real time. Requires Linux.

    Args:
        scenario: a name of the library, a path, a mapping with the keys of a scenario file, or a `Scenario`.
        client: the command of each client, as a list of words. The placeholders `{server}`, `{device}`, `{devices}` and
            `{role}` are replaced.
        server: the command of the server, as typed in a shell; None for the command of the clients.
        flower: the folder of a Flower app, whose processes are run instead of the programs `client` and `server`.
        seed: a seed that replaces the seed of the scenario.
        settings: changes to the scenario, for example `{"network.uplink.access": "ofdma"}`.
        out: the run folder; None for `results/NAME/live-SEED`.
        latency_s: one-way delay in addition to the time on the air, in s. None stands for half of
            `network.transport.rtt_s`, or for 0.0005 s if the scenario has no transport.
        queue_byte: capacity of the send queue of a link, in bytes.
        hold_s: time in s for which a link still counts as transmitting after its queue has become empty.
        tcp: TCP congestion control algorithm; None for the setting of the host.
        boot_s: maximum wait in s until the server accepts connections, or until a Flower app begins.
        data_dir: the folder with data sets; None for the value of the environment variable FEDNET_DATA.
        force: True to replace an existing run in the folder, once the new run has ended.

    Raises:
        ScenarioError: the scenario has settings that are not possible in a live run.
        FednetError: this machine lacks a requirement, or a command is invalid.
        AppFailed: a program has ended with an error.
        DataError: the folder cannot be used.
    """
    plan = LivePlan.of(scenario, settings, client, server, flower, seed=seed, data_dir=data_dir, out=out)
    return plan.play(LiveOptions(latency_s, queue_byte, hold_s, tcp, boot_s), force=force)
