#pragma once
// Multiple-choice tasks with the prompts and answers of lm-evaluation-harness (0-shot), from local files of records in
// the published form of the data sets.

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
  std::vector<std::string> choices;  // without the delimiting space after the context
  std::size_t answer = 0;            // index of the correct choice
};

struct ChoiceTask {
  std::string_view name;
  std::string_view summary;
  std::string_view fields;  // record fields
  // Prompt and choices of a record. Throws corrupt for missing fields, wrong types, and an answer outside the choices.
  ChoiceItem (*item)(const Json& record);
};

[[nodiscard]] const ChoiceTable<ChoiceTask>& choice_tasks();

// Items of a file, optionally gzip-compressed; at most `limit`. Throws corrupt "file:line: reason" for an invalid
// record, and for a file without items.
[[nodiscard]] std::vector<ChoiceItem> read_choice_items(const ChoiceTask& task, const std::filesystem::path& file,
                                                        std::optional<std::int64_t> limit = std::nullopt);

}  // namespace quench
