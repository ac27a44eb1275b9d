"""Training runs from Python: the run of a config, with data and callbacks of one's own."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _quench

Record = dict[str, Any]
Callback = Callable[[Record], Any]

__all__ = ["Trainer"]


class Trainer:
    """Training run of a config, one optimizer step at a time.

    It is the run of ``quench train CONFIG``: the same checks, files, checkpoints and numbers, bit for bit. An
    unfinished run of the same folder is resumed. ::

        with quench.Trainer("run.json", {"training.steps": 100}, data=records) as trainer:
            for record in trainer:
                print(record["step"], record["loss"])

    Args:
      config: file, name that ``quench config ls`` shows, or the document itself as a mapping.
      overrides: values of keys, such as ``{"training.steps": 100}``; lists and None as in JSON.
      data: training data in place of ``data.train``: an iterable of records, read once. A record is a text or a
        mapping as of a JSON Lines file (``{"messages": [...]}``, ``{"prompt": ..., "completion": ...}``). They are
        written to ``data.cache`` under the hash of their content, so that equal data resume a run.
      validation: validation data in place of ``data.validation``, likewise.
      callbacks: each is called with every record of the run, after the step that made it: a dict with "kind"
        ("step", "evaluation", "sample", "health" or "event") and the keys of the files in the run's ``metrics``
        folder. An exception leaves the run between two steps.
      reward: function of ``grpo.rewards: function``, called once in a step with a list of samples, dicts of "prompt",
        "completion" and "record" (the other fields of the prompt's record); it returns a number for each, or None for
        no reward. An exception ends the run after the state of the last step is saved. ::

            def reward(samples):
                return [len(sample["completion"]) for sample in samples]

            quench.Trainer(config, {"grpo.rewards": "function"}, reward=reward)

      device: "auto", "cpu", "cuda" or "cuda:N".
      quiet: no progress on standard output; warnings remain.

    Raises Error ("bad_config") with every mistake of the config; nothing is written then.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any],
        overrides: Mapping[str, Any] | None = None,
        *,
        data: Iterable[str | Mapping[str, Any]] | None = None,
        validation: Iterable[str | Mapping[str, Any]] | None = None,
        callbacks: Iterable[Callback] = (),
        reward: Callable[[list[Record]], Iterable[float | None]] | None = None,
        device: str = "auto",
        quiet: bool = False,
    ) -> None:
        document = json.dumps(config) if isinstance(config, Mapping) else ""
        source = "config" if isinstance(config, Mapping) else os.fspath(config)
        keys = dict(overrides or {})
        if data is not None or validation is not None:
            # Mistakes of the config come before any record is read.
            checked = _quench._read_config(source, document, _arguments(keys), reward)
            cache = pathlib.Path(checked["data"]["cache"])
            if data is not None:
                keys["data.train"] = [str(_write_records(data, cache, "data"))]
            if validation is not None:
                keys["data.validation"] = [str(_write_records(validation, cache, "validation"))]
        self.callbacks: list[Callback] = list(callbacks)
        self.result: Record | None = None
        """Result of end(), or None before."""
        self._run = _quench._Trainer(source, document, _arguments(keys), device, quiet, reward)
        self._tell()

    def step(self) -> Record | None:
        """One optimizer step, with the evaluation and the save that are due.

        Returns: the state after it, with the metrics of the step if ``metrics.log_every`` records it; None, without a
        step, if the run is over.

        Raises Error ("nonfinite") by the loss guard, and what a callback raises; KeyboardInterrupt after the step that
        Ctrl-C met. The run goes on at the next call.
        """
        if not self._run.step():
            self._tell()
            return None
        state = self._run.state
        for record in self._tell():
            if record["kind"] == "step":
                state.update(record)
        return state

    def __iter__(self) -> Iterator[Record]:
        """The records of step(), to the end of the run, which end() then closes."""
        while (record := self.step()) is not None:
            yield record
        self.end()

    def run(self) -> Record:
        """All steps, then end(). Returns end()'s result."""
        for _ in self:
            pass
        assert self.result is not None
        return self.result

    def end(self) -> Record:
        """The last checkpoint, and the export if the run is over; a run ended before resumes from there.

        Returns: dict with "step", "loss", "checkpoint" and "exported" (paths, "" for none). A second call returns the
        same.
        """
        if self.result is None:
            self.result = self._run.end()
            self._tell()
        return self.result

    def log(self, name: str, values: Mapping[str, float]) -> None:
        """Records an evaluation of one's own at the current step, in the run's files, TensorBoard and callbacks.

        Args:
          name: of the evaluation, such as "exact_match".
          values: numbers by name, such as ``{"accuracy": 0.5}``.
        """
        self._run.log_evaluation(name, values)
        self._tell()

    @property
    def state(self) -> Record:
        """dict with "step" (completed), "total_steps", "loss" (of the last step), "tokens_seen" and "samples"."""
        return self._run.state

    @property
    def config(self) -> Record:
        """The run's config with every key."""
        return self._run.config

    @property
    def model(self) -> _quench.Model:
        """The model in training, to evaluate between steps; save() and quantize() need the run's export."""
        return self._run.model

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # After an error of the run its last checkpoint stays the newest; Ctrl-C and errors of callbacks leave it whole.
        if not isinstance(error, _quench.Error):
            self.end()

    def _tell(self) -> list[Record]:
        records = self._run.take_records()
        for record in records:
            for callback in self.callbacks:
                callback(record)
        return records


def _arguments(overrides: Mapping[str, Any]) -> list[str]:
    """``--key=value`` for each key, as on the program's command line."""
    return [f"--{key}={json.dumps(value, default=os.fspath)}" for key, value in overrides.items()]


def _mistake(message: str) -> _quench.Error:
    error = _quench.Error(message)
    error.code = "invalid_argument"
    return error


def _line(record: str | Mapping[str, Any], index: int, what: str) -> str:
    if isinstance(record, str):
        record = {"text": record}
    if not isinstance(record, Mapping):
        raise _mistake(f"{what}[{index}]: {type(record).__name__}, expected a text or a mapping")
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _mistake(f"{what}[{index}]: {error}") from None


def _write_records(records: Iterable[str | Mapping[str, Any]], folder: pathlib.Path, what: str) -> pathlib.Path:
    """JSON Lines file of the records, named by its content. An exception of the iterable leaves no file."""
    if isinstance(records, (str, bytes, Mapping)):
        raise _mistake(f"{what}: {type(records).__name__}, expected an iterable of records; files go into the config")
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    handle, name = tempfile.mkstemp(prefix=".records-", suffix=".jsonl", dir=folder)
    try:
        count = 0
        with os.fdopen(handle, "wb") as file:
            for count, record in enumerate(records, 1):
                line = _line(record, count - 1, what).encode("utf-8", "surrogatepass") + b"\n"
                digest.update(line)
                file.write(line)
        if count == 0:
            raise _mistake(f"{what}: no records")
        path = folder / f"records-{digest.hexdigest()[:16]}.jsonl"
        os.replace(name, path)
        return path
    except BaseException:
        pathlib.Path(name).unlink(missing_ok=True)
        raise
