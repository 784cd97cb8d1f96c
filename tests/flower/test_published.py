"""Apps of Flower's repository, as they are, with `FLOWER_CHECKOUT` set to a checkout, and what they need installed."""

import gzip
import io
import os
from pathlib import Path

import numpy as np
import pytest

import fednet_emu as fe
from fednet_emu.emulation.given import app_in

pytest.importorskip("flwr", reason="flwr is not installed; make test-flower installs it")
CHECKOUT = os.environ.get("FLOWER_CHECKOUT")
DATA = os.environ.get("FEDNET_DATA")
pytestmark = pytest.mark.skipif(CHECKOUT is None, reason="FLOWER_CHECKOUT names no checkout of Flower's repository")


def published(name, *settings, **options):
    """Run an app of the checkout in the urban cell."""
    scenario, _, changes = app_in(str(Path(CHECKOUT) / name), None)
    return fe.run(scenario, settings=[*changes, *settings], progress=False, **options)


def mnist_as_on_the_hub(folder):
    """Write every tenth image of MNIST into a folder which `datasets` finds under the name of the dataset."""
    from datasets import ClassLabel, Dataset, Features, Image
    from PIL import Image as Picture

    folder.mkdir(parents=True)
    for split, name in (("train", "train"), ("test", "t10k")):
        raw = [gzip.decompress((Path(DATA) / "mnist" / f"{name}-{part}-ubyte.gz").read_bytes()) for part in PARTS]
        pixels = np.frombuffer(raw[0], np.uint8, offset=16).reshape(-1, 28, 28)[::10]
        images = []
        for each in pixels:
            file = io.BytesIO()
            Picture.fromarray(each).save(file, "PNG")
            images.append({"bytes": file.getvalue(), "path": None})
        labels = np.frombuffer(raw[1], np.uint8, offset=8)[::10].tolist()
        features = Features({"image": Image(), "label": ClassLabel(10)})
        dataset = Dataset.from_dict({"image": images, "label": labels}, features=features)
        dataset.to_parquet(folder / f"{split}.parquet")


PARTS = ("images-idx3", "labels-idx1")


@pytest.mark.skipif(DATA is None, reason="FEDNET_DATA names no folder with the data set mnist")
def test_the_baseline_fedprox(tmp_path, monkeypatch):
    """Ten devices instead of a thousand learn a tenth of MNIST, and some of what they send is lost."""
    pytest.importorskip("easydict")
    pytest.importorskip("flwr_datasets")
    mnist_as_on_the_hub(tmp_path / "ylecun" / "mnist")
    monkeypatch.chdir(tmp_path)
    few = {"num-server-rounds": 2, "min-available-clients": 10, "fraction-fit": 1.0, "local-epochs": 1}
    settings = [f"algorithm.run_config.algorithm.{key}={value}" for key, value in few.items()]
    lossy = [f"network.uplink.message_loss.{key}" for key in ("kind=random", "probability=0.3")]
    run = published("baselines/fedprox", "devices.count=10", *settings, *lossy)

    assert run.summary["status"] == "done"
    assert run.verdict == "all records consistent"
    assert run.rounds.invited.tolist() == [10, 10]
    assert 0 < run.rounds.arrived.sum() < 20
    assert run.evaluations.accuracy.iloc[-1] > 0.3


def test_the_example_of_secure_aggregation():
    """Five devices mask what they send, in four stages a round; one of them drops out, as the example demands."""
    pytest.importorskip("flwr_datasets")
    run = published("examples/flower-secure-aggregation", "devices.count=5", "algorithm.work.flop_per_example=0")

    assert run.summary["status"] == "done"
    assert run.rounds.arrived.tolist() == [5, 5, 4, 4] * 3
