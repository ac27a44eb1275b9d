#pragma once
// Data of a run for page.html, with bounded sizes: curves are decimated, texts shortened, lists of untrusted length
// truncated or thinned.

#include "core/json/json.h"
#include "train/report/run_data.h"

namespace quench {

// Objects have keys of Quench only; names and texts of the run are values, in pairs [name, value] where order counts.
// Non-finite numbers are null, a null y of a curve is a gap.
//   name, step, total_steps (0: unknown), seconds (first to last record), first, last (UTC, if known)
//   facts           [[name, text]]
//   curves          key: {x, y, average {x, y} if there are enough points, last [x, y], median, maximum},
//   validation_loss
//                   among them
//   ranks           extremes: curves are slowest, mean and fastest instead of one a rank; curves [{x, y}]
//   perplexity      validation losses are cross-entropies
//   exported        method, loss; null: no evaluation of an export
//   nonfinite       total, steps
//   events          [[step, name, message]], resumes, rollbacks, spikes and skipped steps
//   checkpoints     [[name, step, bytes, saved]]
//   health          health_json.h
//   experts         step, layers [[layer, [share of the tokens]]]
//   evaluations     [{name, total, rows [{step, values [[name, value]], tokens, seconds}]}], the last of each name
//   samples         [[step, prompt, text]], newest first
//   config, environment   [[key, text or pairs]]; null if absent
//   notes           [text]
[[nodiscard]] Json run_json(const RunData& run);

}  // namespace quench
