#pragma once
// Keys as other training programs call them.

#include <string_view>

namespace quench {

struct ForeignKey {
  std::string_view theirs;  // without their section
  std::string_view ours;    // path of the key to use; empty where none is needed
  std::string_view remark;  // what differs; may be empty
};

// Of torchtitan, torchtune, axolotl, Hugging Face's TrainingArguments and configs, nanoGPT, LLM.Q; nullptr for a name
// that none of them has.
[[nodiscard]] const ForeignKey* find_key_alias(std::string_view name);

}  // namespace quench
