#pragma once
// Text and record file formats.

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "core/system/choice_table.h"
#include "data/files/record_source.h"
#include "data/text/document_reader.h"

namespace quench {

struct TextFormat {
  std::string_view name;
  std::string_view summary;
  std::vector<std::string_view> extensions;  // lower case: ".jsonl"
  // Exactly one is set.
  std::unique_ptr<DocumentReader> (*open)(const std::filesystem::path& path, const ReaderOptions& options) = nullptr;
  std::unique_ptr<RecordSource> (*open_records)(const std::filesystem::path& path,
                                                const RecordSourceOptions& options) = nullptr;
  std::vector<std::string_view> magics = {};  // override the file name
};

// In documentation order.
[[nodiscard]] const ChoiceTable<TextFormat>& text_formats();
// By magic bytes, else name; or null.
[[nodiscard]] const TextFormat* text_format_of(const std::filesystem::path& path);
// Or null.
[[nodiscard]] const TextFormat* text_format_by_bytes(const std::filesystem::path& path);
// Unknown and text formats: JSON lines. Throws the errors of the format's reader.
[[nodiscard]] std::unique_ptr<RecordSource> open_records(const std::filesystem::path& path,
                                                         const RecordSourceOptions& options = {});

}  // namespace quench
