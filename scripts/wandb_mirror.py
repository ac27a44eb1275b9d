#!/usr/bin/env python3
"""Sends a run's metrics to Weights & Biases.

    pip install wandb
    scripts/wandb_mirror.py runs/x --project mine           # the records so far
    scripts/wandb_mirror.py runs/x --project mine --follow  # and those to come, until interrupted

Reads config.json, metrics/metrics.jsonl and metrics/evaluations.jsonl of the run folder and changes nothing in it. Values are logged
over "step"; those of evaluations are called NAME/VALUE. WANDB_MODE=offline writes a local run that `wandb sync` uploads later.
"""

import argparse
import json
import pathlib
import time

import wandb


def numbers(record):
    skipped = {"step", "time", "total_steps"}
    return {key: value for key, value in record.items()
            if key not in skipped and isinstance(value, (int, float)) and not isinstance(value, bool)}


class Lines:
    """Whole records of a file that grows; starts over where the file was replaced (a resumed run)."""

    def __init__(self, path):
        self.path, self.position, self.inode = path, 0, None

    def read(self):
        if not self.path.exists():
            return
        with self.path.open() as file:
            inode = self.path.stat().st_ino
            if inode != self.inode:
                self.inode, self.position = inode, 0
            file.seek(self.position)
            while line := file.readline():
                if not line.endswith("\n"):
                    return
                self.position = file.tell()
                yield json.loads(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_folder", type=pathlib.Path)
    parser.add_argument("--project", default="quench")
    parser.add_argument("--follow", action="store_true", help="go on with new records until interrupted")
    parser.add_argument("--interval", type=float, default=10, help="seconds between looks at the files")
    options = parser.parse_args()
    folder = options.run_folder
    config = json.loads((folder / "config.json").read_text())
    name = config.get("run", {}).get("name") or folder.resolve().name
    metrics, evaluations = (Lines(folder / "metrics" / file) for file in ("metrics.jsonl", "evaluations.jsonl"))
    sent = 0
    with wandb.init(project=options.project, name=name, config=config) as run:
        run.define_metric("*", step_metric="step")
        while True:
            for record in metrics.read():
                run.log({"step": record["step"], **numbers(record)})
                sent += 1
            for record in evaluations.read():
                values = {f"{record['name']}/{key}": value for key, value in record["values"].items() if value is not None}
                run.log({"step": record["step"], **values})
                sent += 1
            if not options.follow:
                break
            try:
                time.sleep(options.interval)
            except KeyboardInterrupt:
                break
    print(f"{sent} records of {folder} sent to project {options.project}")


if __name__ == "__main__":
    main()
