"""Trackers: send the metrics of a run to TensorBoard, MLflow, W&B or a user's object during the run."""

from fednet_emu.tracking.tracker import Costs, Outcome, RunInfo, Tracker

__all__ = ["Costs", "Outcome", "RunInfo", "Tracker"]
