#pragma once
// Keys of other training programs and their equivalents here.

#include <span>
#include <string_view>

namespace quench {

struct ForeignKey {
  std::string_view theirs;  // without section
  std::string_view ours;    // equivalent path; empty if unnecessary
  std::string_view remark;  // differences; may be empty
};

// torchtitan, torchtune, axolotl, Hugging Face TrainingArguments and configs, nanoGPT, LLM.Q; nullptr for an unknown
// name.
[[nodiscard]] const ForeignKey* find_key_alias(std::string_view name);
[[nodiscard]] std::span<const ForeignKey> key_aliases() noexcept;

}  // namespace quench
