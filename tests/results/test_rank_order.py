"""The rank-order protocol: predictions are sealed, and scored by Kendall's tau and relative errors."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pandas as pd
import pytest
import rank_order


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A folder with predictions for one network, whose digest was published."""
    seconds = dict(zip(rank_order.METHODS, (4.0, 8.0, 3.0, 2.0, 6.0), strict=True))
    rows = [{"network": "wifi", "method": method, "seconds": its} for method, its in seconds.items()]
    pd.DataFrame(rows).to_csv(tmp_path / "predictions.csv", index=False)
    digest = hashlib.sha256((tmp_path / "predictions.csv").read_bytes()).hexdigest()
    (tmp_path / "predictions.sha256").write_text(digest, encoding="utf-8")
    return tmp_path


def measured(folder: Path, seconds: tuple[float, ...]) -> None:
    """Write measured times of the methods, in their order."""
    rows = [{"network": "wifi", "method": m, "seconds": s} for m, s in zip(rank_order.METHODS, seconds, strict=False)]
    pd.DataFrame(rows).to_csv(folder / "measured.csv", index=False)


def test_an_order_is_scored_by_kendall_and_times_by_their_errors(sealed: Path) -> None:
    """Twice as slow in the same order: tau 1 and errors of -50 %. One pair of ten changed: tau 0.8."""
    measured(sealed, (8.0, 16.0, 6.0, 4.0, 12.0))
    same = rank_order.score(sealed).iloc[0]
    measured(sealed, (8.0, 16.0, 3.0, 4.0, 12.0))
    swapped = rank_order.score(sealed).iloc[0]

    assert (same["kendall_tau"], same["mean_error"], same["largest_error"]) == pytest.approx((1.0, -0.5, 0.5))
    assert same["p_value"] == pytest.approx(2 / 120)
    assert swapped["kendall_tau"] == pytest.approx(0.8)


def test_predictions_that_were_changed_are_refused(sealed: Path) -> None:
    """One digit later than the digest; and a network of which a method was not measured."""
    measured(sealed, (8.0, 16.0, 6.0))
    with pytest.raises(ValueError, match="wifi has 3 of 5 methods"):
        rank_order.score(sealed)
    path = sealed / "predictions.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("4.0", "4.1"), encoding="utf-8")
    with pytest.raises(ValueError, match="is not the file of predictions"):
        rank_order.score(sealed)


def test_a_method_with_more_bits_or_work_is_predicted_to_take_longer() -> None:
    """On the Ethernet: five epochs, two models a message, half of the boards; a board sends the bytes of its work."""
    plain, work = rank_order.predicted("ethernet", "fedavg")
    longer, _ = rank_order.predicted("ethernet", "fedavg, 5 epochs")
    twice, own = rank_order.predicted("ethernet", "scaffold")
    half, _ = rank_order.predicted("ethernet", "fedavg, half cohort")

    assert half < plain < twice < longer
    assert own["up_byte"] == pytest.approx(2 * work["up_byte"], rel=0.01)
    assert work["down_byte"] == pytest.approx(4 * 267_210, rel=0.05)
    assert (work["rounds"], work["cohort"], work["devices"]) == (4, 4, 4)
