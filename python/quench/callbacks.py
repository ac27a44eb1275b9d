"""Callbacks of a Trainer for experiment trackers. Each imports its tracker when it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["mlflow", "numbers", "wandb"]

_NO_METRICS = {"kind", "step", "time", "name", "nonfinite", "tokens", "text", "prompt", "event", "message"}


def numbers(record: dict[str, Any]) -> dict[str, float]:
    """Numbers of a record by name, as trackers draw them.

    Of a step: "loss", "grad_norm", ...; of an evaluation: "validation/loss", ...; metrics of the objective:
    "objective/NAME"; of other records: none.
    """
    if record["kind"] == "evaluation":
        return {f"{record['name']}/{key}": value for key, value in record["values"].items() if value is not None}
    if record["kind"] != "step":
        return {}
    found = {key: float(value) for key, value in record.items() if key not in _NO_METRICS and _is_number(value)}
    for key, value in (record.get("objective") or {}).items():
        if _is_number(value):
            found[f"objective/{key}"] = float(value)
    return found


def wandb(**options: Any) -> Callable[[dict[str, Any]], None]:
    """Callback that logs to Weights & Biases. ``options``: of ``wandb.init``. Needs the package wandb."""
    import wandb as tracker

    run = tracker.init(**options)

    def log(record: dict[str, Any]) -> None:
        if values := numbers(record):
            run.log(values, step=record["step"])

    return log


def mlflow(**options: Any) -> Callable[[dict[str, Any]], None]:
    """Callback that logs to MLflow. ``options``: of ``mlflow.start_run``. Needs the package mlflow."""
    import mlflow as tracker

    if tracker.active_run() is None or options:
        tracker.start_run(**options)

    def log(record: dict[str, Any]) -> None:
        if values := numbers(record):
            tracker.log_metrics(values, step=record["step"])

    return log


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
