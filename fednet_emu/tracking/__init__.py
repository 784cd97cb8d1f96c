"""Trackers: what a run measures, told to TensorBoard, MLflow, W&B or an object of one's own while it runs."""

from fednet_emu.tracking.tracker import Costs, Outcome, RunInfo, Tracker

__all__ = ["Costs", "Outcome", "RunInfo", "Tracker"]
