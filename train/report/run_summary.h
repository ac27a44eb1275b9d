#pragma once
// Summary of a run folder as JSON.

#include <filesystem>

#include "core/json/json.h"

namespace quench {

// Members, in order, if known: kind "run", name, folder, state ("running", "finished", "interrupted", "not started"),
// step, total_steps, last_saved_step, tokens_seen, last_loss, validation {step, loss}, model, parameters, recipe,
// adapters, dtype, tokenizer, started and last_record (UTC), bytes of the folder, checkpoint_bytes, exports [path],
// notes [unreadable parts], checkpoints [{step, path, bytes, valid, fault, pinned, superseded}], newest first. Throws
// not_found for a missing folder.
[[nodiscard]] Json run_summary(const std::filesystem::path& folder);

}  // namespace quench
