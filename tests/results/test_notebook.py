"""The front door as a notebook user finds it: cells executed by a kernel of their own."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import fednet_emu as fe

CELLS = (
    "import fednet_emu as fe",
    'run = fe.run("quickstart", seed=1, settings={"algorithm.lr": 0.05, "stop.rounds": 3})\nrun',
    "run.summary; run.rounds; run.transfers; run.computes; run.evaluations",
    'run.plot("accuracy", against="time")',
    'study = fe.sweep("quickstart", grid={"network.uplink.access": ["tdma", "ofdma"]}, seeds=2, workers=2,'
    ' settings={"stop.rounds": 3})',
    "study.cells",
    'study.compare("network.uplink.access=tdma", "network.uplink.access=ofdma")',
    'study.plot("accuracy", against="energy")',
    "import torch\n"
    "class MyAlgorithm(fe.Algorithm):\n"
    "    cohort: int\n"
    "    def run(self, fed: fe.Federation) -> fe.Process:\n"
    "        w = fed.initial_model()\n"
    "        for t in fed.rounds():\n"
    "            cohort = yield fed.cohort(self.cohort, t)\n"
    "            arrived = yield from fed.exchange(cohort, w, self.client, t)\n"
    "            w = arrived.average()\n"
    "            fed.end_of_round(w)\n"
    "    def client(self, fed: fe.Federation, k: fe.Device, w, t: int) -> fe.Process:\n"
    "        trained = yield k.train(w, fe.SgdPlan(lr=0.1, batch_size=8, epochs=1), t)\n"
    "        return trained.params\n"
    "x = torch.randn(200, 4); y = x[:, :3].argmax(1)\n"
    "data = fe.Samples(x[:150], y[:150], x[150:], y[150:], classes=3)\n"
    "my_module = torch.nn.Linear(4, 3)\n"
    "scenario = {'devices': {'count': 5, 'placement': {'kind': 'disc', 'radius_m': 100}, "
    "'speed': {'kind': 'fixed', 'flop_per_s': 1e6}}, 'channel': 'urban-micro', 'partition': 'iid', "
    "'model': 'softmax', 'algorithm': {'kind': 'fedavg', 'cohort': 5, 'lr': 0.1, 'batch_size': 8, 'local_steps': 1},"
    " 'stop': {'rounds': 2}}\n"
    "own = fe.run(scenario, algorithm=MyAlgorithm(cohort=5), model=my_module, data=data)\nown",
    'fe.sweep(scenario, algorithm=MyAlgorithm(cohort=5), data=data, grid={"stop.rounds": [1, 2]}, seeds=1)',
    'run.digest, fe.run("quickstart", seed=1, settings={"stop.rounds": 2}, out="results/quickstart/demo").name,'
    ' fe.open("results/quickstart/demo").verdict',
)
"""The ten lines of the README, with fewer rounds, and what an own algorithm adds."""
MISTAKE = 'fe.run("quickstart", settings={"algorithm.lrr": 1})'


LIMIT_S = 1200
"""More than any host needs for a cell that does seconds of work."""


def executed(folder):
    """The notebook of the cells after a run from top to bottom, with a mistake and another cell at its end."""
    cells = [nbformat.v4.new_code_cell(cell) for cell in (*CELLS, MISTAKE, "run.digest")]
    cells[-2].metadata.tags = ["raises-exception"]  # without this the notebook would end there
    notebook = nbformat.v4.new_notebook(cells=cells)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    client = NotebookClient(
        notebook, timeout=LIMIT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable
    client.execute(env=environment, cwd=str(folder))
    return notebook


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """The outputs of each cell."""
    notebook = executed(tmp_path_factory.mktemp("notebook"))
    return [cell.outputs for cell in notebook.cells]


def shown(outputs):
    """The kinds of what a cell's last line shows."""
    return [set(its.data) for its in outputs if its.output_type == "execute_result"]


def test_runs_and_studies_show_as_tables(outputs):
    """A run is a table of its summary, a frame is a frame, a study the means of its settings."""
    assert "text/html" in shown(outputs[1])[0]
    assert "<th>verdict</th>" in outputs[1][-1].data["text/html"]
    assert "text/html" in shown(outputs[2])[0]
    assert "text/html" in shown(outputs[5])[0]
    assert "B: network.uplink.access=ofdma" in outputs[6][-1].data["text/plain"]


@pytest.mark.parametrize("cell", [3, 7])
def test_figures_show_inline(outputs, cell):
    """Each is one picture, without pyplot and without a magic line."""
    assert [("image/png" in kinds, "text/html" in kinds) for kinds in shown(outputs[cell])] == [(True, False)]


@pytest.mark.parametrize("cell", [1, 4])
def test_progress_shows_while_a_cell_runs(outputs, cell):
    """One output that is written anew, and is empty when the cell has ended; nothing asks for widgets."""
    shows = [its for its in outputs[cell] if its.output_type == "display_data"]

    assert [its.data["text/html"] for its in shows] == [""]
    assert not [its for its in outputs[cell] if its.output_type == "stream"]


def test_objects_of_the_notebook_run_and_sweep(outputs):
    """A class of the notebook is an algorithm like any other, in a sweep too."""
    assert "<Run scenario, seed 0: 2 rounds in " in outputs[8][-1].data["text/plain"]
    assert "2 cells done" in outputs[9][-1].data["text/plain"]
    assert "'all records consistent'" in outputs[10][-1].data["text/plain"]


def test_the_digest_is_that_of_any_other_process(outputs):
    """A notebook's run is the same run."""
    here = fe.run("quickstart", seed=1, settings={"algorithm.lr": 0.05, "stop.rounds": 3}).digest

    assert here in outputs[10][-1].data["text/plain"]


def test_a_mistake_is_an_exception_with_the_sentence(outputs):
    """The cell fails with the command's words; the kernel lives on."""
    (error,) = [its for its in outputs[-2] if its.output_type == "error"]
    (digest,) = shown(outputs[-1])

    assert "algorithm.lrr: no such setting; did you mean 'lr'" in error.evalue
    assert digest == {"text/plain"}
