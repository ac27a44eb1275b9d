#pragma once
// Parts that the verbs of the Hugging Face Hub share.

#include <cstdint>
#include <functional>
#include <string>

#include "data/hub/hub_name.h"

namespace quench {

// Name of the command line with --repo-type and --revision, which may not contradict it. Empty options: not given.
[[nodiscard]] hub::HubName hub_name_of(const std::string& text, const std::string& repo_type,
                                       const std::string& revision);

// Runs work that hub::Stopped may leave: a message and the exit status of the signal. `consequence`: "the same command
// continues".
void run_stoppable(const std::function<void()>& work, const std::string& consequence);

// "270.6 MB"
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

}  // namespace quench
