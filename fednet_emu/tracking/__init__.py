"""Trackers: metrics of a run, sent to TensorBoard, MLflow, W&B or a user's object while it runs."""

from fednet_emu.tracking.tracker import Costs, Outcome, RunInfo, Tracker

__all__ = ["Costs", "Outcome", "RunInfo", "Tracker"]
