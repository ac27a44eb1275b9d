#pragma once
// Multiple-choice tasks, their prompts and answers as lm-evaluation-harness defines them (0-shot), from local files of
// Records in the form that the data sets are published in.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "core/system/choice_table.h"

namespace quench {

struct ChoiceItem {
  std::string context;
  std::vector<std::string> choices;  // without the space that divides them from the context
  std::size_t answer = 0;            // index of the right one
};

struct ChoiceTask {
  std::string_view name;     // lm-evaluation-harness' own
  std::string_view summary;  // one line for help
  std::string_view fields;   // of a record
  // The prompt of a record. Throws corrupt for fields that are missing or of a wrong type, and for an answer that is
  // none of the choices.
  ChoiceItem (*item)(const Json& record);
};

[[nodiscard]] const ChoiceTable<ChoiceTask>& choice_tasks();

// The items of a file, which may be packed with gzip; the first `limit` of them if one is given. Throws corrupt
// "file:line: reason" for a record that is none of the task's, and for a file without items.
[[nodiscard]] std::vector<ChoiceItem> read_choice_items(const ChoiceTask& task, const std::filesystem::path& file,
                                                        std::optional<std::int64_t> limit = std::nullopt);

}  // namespace quench
