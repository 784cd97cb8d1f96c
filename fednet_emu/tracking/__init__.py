"""Send the metrics of a run to TensorBoard, MLflow, W&B or an object of the user during the run."""

from fednet_emu.tracking.tracker import Costs, Outcome, RunInfo, Tracker

__all__ = ["Costs", "Outcome", "RunInfo", "Tracker"]
