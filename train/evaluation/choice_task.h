#pragma once
// Multiple-choice tasks with lm-evaluation-harness's prompts and answers (0-shot), from local files in the data sets'
// published form.

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
  std::vector<std::string> choices;  // without the space after the context
  std::size_t answer = 0;            // correct choice
};

struct ChoiceTask {
  std::string_view name;
  std::string_view summary;
  std::string_view fields;  // record fields
  // Throws corrupt for missing fields, wrong types, an answer outside the choices.
  ChoiceItem (*item)(const Json& record);
};

[[nodiscard]] const ChoiceTable<ChoiceTask>& choice_tasks();

// At most `limit` items of a file, gzip or plain. Throws corrupt "file:line: reason" for an invalid record, and without
// items.
[[nodiscard]] std::vector<ChoiceItem> read_choice_items(const ChoiceTask& task, const std::filesystem::path& file,
                                                        std::optional<std::int64_t> limit = std::nullopt);

}  // namespace quench
