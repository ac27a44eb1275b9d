#pragma once
// The formats of files that hold text, as a table.

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "core/system/choice_table.h"
#include "data/text/document_reader.h"

namespace quench {

struct TextFormat {
  std::string_view name;
  std::string_view summary;
  std::vector<std::string_view> extensions;  // of the files' names, in lower case: ".jsonl"
  std::unique_ptr<DocumentReader> (*open)(const std::filesystem::path& path, const ReaderOptions& options);
  bool records = false;  // each line is a record in JSON
};

[[nodiscard]] const ChoiceTable<TextFormat>& text_formats();
// By the file's name; null if that does not say.
[[nodiscard]] const TextFormat* text_format_of(const std::filesystem::path& path);

}  // namespace quench
