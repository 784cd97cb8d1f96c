"""The UCI Adult data set, which predicts from census data whether a person earns more than 50,000 dollars a year."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from fednet_emu.arrays import IntArray
from fednet_emu.errors import DataError
from fednet_emu.files.data_folder import locate
from fednet_emu.learning.data.datasets.base import Dataset, Samples

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
           "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income")  # fmt: skip
"""The columns of the published files, in order."""
NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
INCOME = ("<=50K", ">50K")
DOCTORATE = "Doctorate"


class Adult(Dataset):
    """UCI Adult (Kohavi and Becker, 1996): people from the 1994 US census, labelled 1 if they earn over 50,000 dollars.

    There are 32,561 people for training and 16,281 for testing. The label is about the income per year.

    A sample has 105 features. Six are numbers, standardised over the training set. The others are one 0/1 indicator for
    each category that occurs in the training set. If a person's value of a categorical attribute is missing, all
    indicators of the attribute are 0. Groups are the domains of agnostic federated learning (Mohri, Sivek, Suresh, ICML
    2019): group 0 is people with a doctorate, and group 1 is all others.
    """

    path: str = "adult"
    """Folder with the files adult.data and adult.test, which may be compressed (.gz). Either a full path, or a path
    inside the data folder."""

    def load(self, data_dir: Path | None, rng: np.random.Generator) -> Samples:
        folder = locate(self.path, data_dir)
        train, test = (_people(folder, name) for name in ("adult.data", "adult.test"))
        mean, deviation = train[[*NUMBERS]].astype(float).mean(), train[[*NUMBERS]].astype(float).std(ddof=0)
        known = {name: sorted(set(train[name]) - {"?"}) for name in COLUMNS[:-1] if name not in NUMBERS}

        def features(people: pd.DataFrame) -> torch.Tensor:
            numbers = (people[[*NUMBERS]].astype(float) - mean) / deviation
            applies = [(people[name] == each).to_numpy() for name, categories in known.items() for each in categories]
            return torch.from_numpy(np.column_stack([numbers.to_numpy(), *applies]).astype(np.float32))

        def labels(people: pd.DataFrame) -> torch.Tensor:
            return torch.from_numpy((people["income"] == INCOME[1]).to_numpy(np.int64))

        return Samples(
            train_x=features(train),
            train_y=labels(train),
            test_x=features(test),
            test_y=labels(test),
            classes=2,
            train_group=_domain(train),
            test_group=_domain(test),
        )


def _domain(people: pd.DataFrame) -> IntArray:
    return np.where(people["education"] == DOCTORATE, 0, 1).astype(np.int64)


def _people(folder: Path, name: str) -> pd.DataFrame:
    """Return the rows of a published file, without the test file's comment line and the dots after its labels."""
    import pandas as pd

    path = next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
    remedy = "use the files of the UCI repository, as they are or compressed by gzip"
    if path is None:
        raise DataError(str(folder / name), "not found", remedy)
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        rows = [line.split(", ") for line in content.decode("ascii").splitlines() if line and line[0] != "|"]
        people = pd.DataFrame(rows, columns=list(COLUMNS))
        people[[*NUMBERS]] = people[[*NUMBERS]].astype(np.int64)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(str(path), f"cannot be read as rows of {len(COLUMNS)} fields ({error})", remedy) from error
    people["income"] = people["income"].str.rstrip(".")
    other = sorted(set(people["income"]) - set(INCOME))
    if other:
        raise DataError(str(path), f"has another income than {' and '.join(INCOME)}, got '{other[0]}'", remedy)
    return people
