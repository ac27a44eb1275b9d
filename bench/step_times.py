#!/usr/bin/env python3
"""Whether a run kept its speed and memory: median step times of the tenths of a metrics.jsonl, and every memory figure.

  bench/step_times.py runs/x/metrics/metrics.jsonl

Needs metrics.log_every 1. A step's time is that between two losses; the first 20 steps are left out.
"""
import json
import statistics
import sys

WARM_UP = 20

with open(sys.argv[1]) as file:
    records = [json.loads(line) for line in file]
times = [record["time"] for record in records]
steps = [1e3 * (b - a) for a, b in zip(times, times[1:])][WARM_UP:]
if len(steps) < 10:
    sys.exit(f"{sys.argv[1]}: {len(records)} steps; more than {WARM_UP + 10} are needed")
tenth = len(steps) // 10
medians = [statistics.median(steps[i * tenth:(i + 1) * tenth]) for i in range(10)]
print(f"{len(records)} steps in {times[-1] - times[0]:.0f} s")
print("median ms by tenth  ", "  ".join(f"{m:.2f}" for m in medians))
print(f"slowest over fastest {max(medians) / min(medians):.4f}")
for key in ("memory_bytes", "memory_reserved_bytes"):
    print(f"{key} after step 3:", *sorted({record[key] for record in records[3:] if record.get(key)}))
