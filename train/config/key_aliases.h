#pragma once
// Keys of other training programs and of earlier versions, and their equivalents here.

#include <string_view>
#include <vector>

namespace quench {

struct ForeignKey {
  std::string_view theirs;  // without section
  std::string_view ours;    // equivalent path; empty if unnecessary
  std::string_view remark;  // differences; may be empty
};

// torchtitan, torchtune, axolotl, Hugging Face TrainingArguments and configs, nanoGPT, LLM.Q; nullptr for an unknown
// name.
[[nodiscard]] const ForeignKey* find_key_alias(std::string_view name);
// With those of training objectives.
[[nodiscard]] std::vector<ForeignKey> key_aliases();

}  // namespace quench
