"""What `--help` says of each command beside its options: a sentence in the list, an example, and where more stands."""

from __future__ import annotations

import typer

MORE: dict[str, tuple[str, str]] = {
    "run": ("fednet run quickstart --seed 1 --set algorithm.lr=0.05", "reference/command-line"),
    "flower": ("fednet flower examples/flower_quickstart", "guides/flower"),
    "sweep": ("fednet sweep quickstart_access --workers 2", "guides/studies"),
    "search": ("fednet search quickstart_search", "guides/search"),
    "compare": ("fednet compare results/quickstart_access --between access=tdma access=ofdma", "guides/studies"),
    "best": ("fednet best results/quickstart_access --accuracy 0.9 --within energy=12", "guides/best"),
    "explain": ("fednet explain results/quickstart/seed-0", "guides/best"),
    "reproduce": ("fednet reproduce --minutes 5", "guides/studies"),
    "check": ("fednet check quickstart --set devices.count=100", "reference/command-line"),
    "plot": (
        "fednet plot results/quickstart_access --metric loss --against bits",
        "guides/reading-results",
    ),
    "trace": ("fednet trace results/quickstart/seed-0 --until 10", "guides/traces"),
    "report": ("fednet report results/quickstart/seed-0", "guides/report"),
    "channels": ("fednet channels urban-micro rural --out figures", "concepts/radio"),
    "profiles": ("fednet profiles pi-4b cortex-m4", "guides/devices"),
    "schema": ("fednet schema > scenario.schema.json", "start/first-run"),
    "kinds": ("fednet kinds network.uplink.access", "guides/plug-ins"),
    "new": ("fednet new mine", "start/first-run"),
    "cite": ("fednet cite results/quickstart/seed-0 > methods.bib", "reference/command-line"),
}
"""An example of each command, and the page of the documentation that has more."""


def with_examples(app: typer.Typer) -> None:
    """Complete the help of all commands: the list has whole sentences, and each command an example and a page."""
    for command in app.registered_commands:
        function = command.callback
        if function is not None:
            command.short_help = (function.__doc__ or "").strip().splitlines()[0]
            example, page = MORE.get(command.name or function.__name__, ("", ""))
            command.epilog = f"\b\nExample: {example}\nMore:    docs/{page}.md" if example else None
