"""Which modules are an app's own: they are imported anew in each run, and no others are touched."""

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest

import fednet_emu as fe
from tests.flower.conftest import on_small

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")


def test_a_folder_of_data_hides_no_package(tmp_path):
    """Results of `torch` in a folder of this name are no module; the package stays what it is, before and after."""
    import torch

    from fednet_emu.flower.loading import importable

    (tmp_path / "torch").mkdir()
    (tmp_path / "time").mkdir()
    modules = {name: sys.modules[name] for name in ("torch", "torch.nn", "time")}
    with importable(tmp_path):
        assert {name: sys.modules.get(name) for name in modules} == modules
    assert import_module("torch") is torch


def test_a_package_of_the_app_hides_another(tmp_path):
    """An app may have a package of a name that something else has, of the standard library, too."""
    from fednet_emu.flower.loading import importable

    import_module("calendar")
    ours = sys.modules["calendar"]
    (tmp_path / "calendar").mkdir()
    (tmp_path / "calendar" / "__init__.py").write_text("own = True", encoding="utf-8")
    with importable(tmp_path):
        assert import_module("calendar").own
    assert sys.modules["calendar"] is ours


def test_a_package_without_init_is_forgotten(tmp_path):
    """A folder of modules is a package for Python, and nothing of it is left for the next app."""
    from fednet_emu.flower.loading import importable

    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "server_app.py").write_text("", encoding="utf-8")
    with importable(tmp_path):
        import_module("parts.server_app")
    assert not {"parts", "parts.server_app"} & set(sys.modules)


def test_an_environment_inside_the_folder_is_not_part_of_the_app(write_app, monkeypatch):
    """What is installed there stays imported, as NumPy must, and does not count as the app's code."""
    from fednet_emu.flower.folder import AppFolder
    from fednet_emu.flower.loading import importable

    folder = write_app()
    packages = folder / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "installed_there.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(packages)
    with importable(folder.resolve()):
        installed = import_module("installed_there")
    assert sys.modules.pop("installed_there") is installed
    assert [path.name for path in AppFolder.read(str(folder)).sources()] == [
        "pyproject.toml",
        "__init__.py",
        "client_app.py",
        "server_app.py",
    ]


def test_runs_in_threads_keep_out_of_each_others_modules(write_app):
    """Each has its own, both end as a run alone does, and nothing is left behind."""
    app = write_app()
    alone = fe.run(on_small(app), progress=False).digest
    with ThreadPoolExecutor(3) as threads:
        digests = list(threads.map(lambda _: fe.run(on_small(app), progress=False).digest, range(3)))

    assert digests == [alone] * 3
    assert not [name for name in sys.modules if name.partition(".")[0] == "toy"]


def test_what_the_project_names_must_be_there(write_app):
    """A module that has no such object is a mistake in the project file."""
    app = write_app()
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace("server_app:app", "server_app:other"), encoding="utf-8")
    with pytest.raises(fe.ScenarioError, match=r"toy\.server_app:other must be a ServerApp, got None; mend serverapp"):
        fe.run(on_small(app), progress=False)
