"""The command `fednet live`, which connects real programs through the emulated network of a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fednet_emu.cli.options import (
    OUTPUT,
    SCENARIO,
    DataDir,
    Force,
    Overrides,
    Page,
    Plots,
    Quiet,
    Seed,
    print_rows,
    with_seed,
)
from fednet_emu.cli.outcome import ERRORS, outcome
from fednet_emu.errors import FednetError

if TYPE_CHECKING:
    from collections.abc import Mapping


Client = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- CLIENT...",
        help="The command of each client; {server}, {device}, {devices} and {role} are filled in.",
    ),
]
Server = Annotated[
    str | None, typer.Option("--server", metavar="COMMAND", help="That of the server. [default: as the clients']")
]
FlowerApp = Annotated[
    str | None,
    typer.Option("--flower", metavar="APP", help="The folder of a Flower app, whose processes are the programs."),
]
Latency = Annotated[
    float | None,
    typer.Option(
        "--latency", min=0, max=10, help="Further one-way delay, in s. [default: half of transport.rtt_s, or 0.0005]"
    ),
]
QueueByte = Annotated[int, typer.Option("--queue", min=1500, help="Room in the queue of a link, in bytes.")]
Hold = Annotated[float, typer.Option("--hold", min=0, max=1, help="How long an empty link counts as on the air, in s.")]


def live(
    scenario: Annotated[str | None, SCENARIO] = None,
    client: Client = None,
    server: Server = None,
    flower: FlowerApp = None,
    check: Annotated[bool, typer.Option("--check", help="Only check whether this machine can do it.")] = False,
    latency_s: Latency = None,
    queue_byte: QueueByte = 262144,
    hold_s: Hold = 5e-3,
    tcp: Annotated[str | None, typer.Option("--tcp", help="Congestion control. [default: the host's]")] = None,
    boot_s: Annotated[float, typer.Option("--boot", min=0, help="Longest wait for the server to listen, in s.")] = 60,
    out: Annotated[Path | None, typer.Option("--out", help="The run folder. [default: results/NAME/live-N]")] = None,
    seed: Seed = None,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    force: Force = False,
    plots: Plots = True,
) -> None:
    """Run a scenario live: the packets of real programs pass through the emulated radio in real time (Linux only)."""
    folder: Path | None = out

    def interrupted() -> str:
        return "interrupted" if folder is None else f"interrupted; the records so far are in {folder}"

    with outcome(interrupted):
        from fednet_emu.realtime.play import able

        if check:
            for sentence in able():
                OUTPUT.out(sentence)
            return
        if scenario is None:
            raise FednetError("live: the scenario is missing; name one, or use --check to list missing requirements")
        from fednet_emu.analysis.summary import summary_rows
        from fednet_emu.realtime.options import LiveOptions
        from fednet_emu.results.live import LivePlan
        from fednet_emu.results.run import figures

        changes = with_seed(overrides, seed)
        plan = LivePlan.of(scenario, changes, client or (), server, flower, data_dir=data_dir, out=out)
        folder = plan.folder
        tell = (lambda _what: None) if quiet else ERRORS.print
        options = LiveOptions(latency_s, queue_byte, hold_s, tcp, boot_s)
        summary = plan.play(options, force=force, on_start=tell).summary
        if plots:
            Page().write(figures([folder]), folder / "figures")
        if quiet:
            return
        print_rows([*summary_rows(summary), *_live_rows(summary["live"]), ("run folder", str(folder))])


def _live_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("packets", f"{found['packets']:,}")]
    if found["packets"]:
        late = f"{1e3 * found['late_p50_s']:.3g} ms (half), {1e3 * found['late_p99_s']:.3g} ms (99 %)"
        rows.append(("  written late by", late))
    rows.append(
        ("  dropped", ", ".join(f"{count} {way}" for way, count in zip(("up", "down"), found["dropped"], strict=True)))
    )
    errors = found["errors"]
    starved = f", {found['starved']} starved" if found["starved"] else ""
    if errors:
        half, worst = errors[len(errors) // 2], errors[-1]
        rows.append(("messages compared", f"{len(errors)}{starved}"))
        rows.append(("  measured - predicted", f"{half:+.2%} (half), {worst:+.2%} (worst)"))
    if (start_s := found.get("start_s")) is not None:
        rows.append(("start of a process", f"{start_s:.3g} s (algorithm.control.start_s of this machine)"))
    return rows
