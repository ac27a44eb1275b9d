#pragma once
// What a run folder tells at a glance: how far the run is, what it trains, what it left.

#include <filesystem>

#include "core/json/json.h"

namespace quench {

// An object with the members, in this order and as far as they are known:
//   kind "run", name, folder, state ("running", "finished", "interrupted", "not started"), step, total_steps,
//   last_saved_step, tokens_seen, last_loss, validation {step, loss}, model, parameters, recipe, adapters, dtype,
//   tokenizer, started and last_record (UTC), bytes of the whole folder, checkpoint_bytes, exports [path], notes [what
//   could not be read], checkpoints [{step, path, bytes, valid, fault, pinned, superseded}], newest first.
// Throws not_found when there is no such folder.
[[nodiscard]] Json run_summary(const std::filesystem::path& folder);

}  // namespace quench
