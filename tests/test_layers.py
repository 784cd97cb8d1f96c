"""Claims about the whole package: who may import whom, who may print, and where chance and time come from.

Who is above whom says `tools/draw_imports.py`.
"""

import ast
from pathlib import Path

import pytest
from draw_imports import RANK, imported

PACKAGE = Path(__file__).parents[1] / "fednet_emu"
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
BEHIND_THE_FEDERATION = ("fednet_emu.kernel.", "fednet_emu.network.", "fednet_emu.learning.graph.")
AROUND_APPS = ("algorithms/flower/generators.py", "algorithms/flower/host_clock.py")
"""What puts seeded generators and simulated time in the place of the process's own, for code of apps."""
DRAWING = ("analysis", "draw")
CLOCKED = ("kernel/", "radio/", "devices/", "network/", "records/", "federation/", "algorithms/")


def part_of(file):
    """The part of the package that a file, or a module in dots, belongs to."""
    return file.removesuffix(".py").replace(".", "/").split("/")[0]


def dotted(node):
    """The name `a.b.c` of an attribute, or nothing."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def wrong_imports(file, tree):
    """Every import in a file that the rules of this module forbid, as `file: what`."""
    own = part_of(file)
    for module in imported(tree):
        if module.startswith("fednet_emu."):
            other = part_of(module.removeprefix("fednet_emu."))
            if other not in (own, "__version__") and RANK[other] >= RANK[own]:
                yield f"{file}: imports {module}, which is not below it"
            elif own in DRAWING and other not in DRAWING and RANK[other] > RANK["records"]:
                yield f"{file}: imports {module}; {own} reads records only"
            elif own == "algorithms" and module.startswith(BEHIND_THE_FEDERATION):
                yield f"{file}: imports {module}; fednet_emu.federation has what algorithms need"
        root = module.split(".")[0]
        if file in AROUND_APPS:
            continue
        if root == "random" or module.startswith("numpy.random."):
            yield f"{file}: imports {module}; randomness comes from kernel.streams"
        if file.startswith(CLOCKED) and root == "time":
            yield f"{file}: imports {module}; simulated time never reads the host's clock"
        if own == "radio" and root in ("simpy", "torch"):
            yield f"{file}: imports {module}; radio is numpy only"


def problems_of(file, tree):
    """Everything in a file that the rules of this module forbid, as `file: what`."""
    yield from wrong_imports(file, tree)
    own = part_of(file)
    for node in ast.walk(tree):
        name = dotted(node.func) if isinstance(node, ast.Call) else ""
        if name == "print" and own != "cli":
            yield f"{file}: prints in line {node.lineno}; only cli does"
        if (
            name.startswith("torch.")
            and name.rpartition(".")[2] in ("manual_seed", "manual_seed_all", "seed")
            and file not in ("learning/models/torch_seed.py", *AROUND_APPS)
        ):
            yield f"{file}: seeds torch in line {node.lineno}; only learning/models/torch_seed.py does"
        if (
            name.startswith("np.random.")
            and file not in AROUND_APPS
            and name.split(".")[2] not in ("Generator", "PCG64", "SeedSequence")
        ):
            yield f"{file}: calls {name} in line {node.lineno}; randomness comes from kernel.streams"
        if name in ("hash", "id") and own in ("kernel", "federation", "algorithms"):
            yield f"{file}: calls {name} in line {node.lineno}; it differs from process to process"


def test_every_part_has_its_layer():
    """A new package or module takes a place in the design before it is used."""
    assert len(FILES) > 30
    assert {part_of(file) for file in TREES} <= RANK.keys()


@pytest.mark.parametrize("file", TREES)
def test_files_keep_to_their_layer(file):
    """Imports go strictly downward, and chance, time and printing have one home each."""
    assert list(problems_of(file, TREES[file])) == []


@pytest.mark.parametrize(
    ("file", "code", "problem"),
    [
        ("radio/x.py", "from fednet_emu.kernel.clock import Clock", "not below it"),
        ("radio/x.py", "import fednet_emu.records.ledger", "not below it"),
        ("network/x.py", "from fednet_emu.learning.graph import graph", "not below it"),
        ("learning/x.py", "def f():\n    from fednet_emu.federation.learning_task import LearningTask", "not below it"),
        ("analysis/x.py", "from fednet_emu.emulation.play import play", "not below it"),
        ("analysis/x.py", "from fednet_emu.network.air.transfer import Delivery", "analysis reads records only"),
        ("draw/x.py", "from fednet_emu.network.air.transfer import Delivery", "draw reads records only"),
        ("federation/x.py", "from fednet_emu import cli", "not below it"),
        ("algorithms/x.py", "from fednet_emu.kernel.clock import Process", "federation has what algorithms need"),
        ("algorithms/x.py", "import fednet_emu.network.air.transfer", "federation has what algorithms need"),
        ("algorithms/x.py", "from fednet_emu.learning.graph import jobs", "federation has what algorithms need"),
        ("draw/x.py", "from fednet_emu.study.sweep import sweep", "not below it"),
        ("study/x.py", "from fednet_emu.cli.app import app", "not below it"),
        ("kernel/x.py", "import random", "randomness comes from kernel.streams"),
        ("kernel/x.py", "from random import choice", "randomness comes from kernel.streams"),
        ("kernel/x.py", "x = np.random.normal()", "calls np.random.normal in line 1"),
        ("kernel/x.py", "rng = np.random.default_rng()", "calls np.random.default_rng"),
        ("network/x.py", "import time", "never reads the host's clock"),
        ("radio/x.py", "import torch", "radio is numpy only"),
        ("federation/x.py", "def f():\n    print(1)", "prints in line 2; only cli does"),
        ("learning/x.py", "torch.manual_seed(1)", "seeds torch in line 1"),
        ("algorithms/x.py", "sorted(devices, key=id) or hash(devices)", "calls hash in line 1"),
    ],
)
def test_every_rule_can_be_broken(file, code, problem):
    """The checks above see what they forbid."""
    (found,) = problems_of(file, ast.parse(code))

    assert found.startswith(f"{file}: ")
    assert problem in found


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("cli/x.py", "print(1)"),
        ("learning/models/torch_seed.py", "torch.manual_seed(1)"),
        ("kernel/x.py", "rng = np.random.Generator(np.random.PCG64(1))"),
        ("network/x.py", "from fednet_emu.kernel.clock import Clock\nfrom fednet_emu.network.air.band import Band"),
        ("learning/x.py", "import time"),
        ("algorithms/flower/generators.py", "import random\nnp.random.seed(1)\ntorch.cuda.manual_seed_all(1)"),
        ("algorithms/flower/host_clock.py", "import time"),
        (
            "algorithms/x.py",
            "from fednet_emu.federation import Process",
        ),
    ],
)
def test_what_is_allowed_passes(file, code):
    """Each thing has the one place where it is right."""
    assert list(problems_of(file, ast.parse(code))) == []
