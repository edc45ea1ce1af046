"""TensorBoard, MLflow and Weights & Biases, fed from a run folder: one module per back end, and what they share.

Nothing leaves the machine unless the user asks for it: MLflow writes an SQLite file unless it is given an address (or
MLFLOW_TRACKING_URI), W&B is offline unless WANDB_MODE says otherwise, and usage reports of both are switched off.
"""

from __future__ import annotations

from ctta.report.trackers.tracking import Tracking

__all__ = ["Tracking"]
