#pragma once
// The formats of files that hold text or records, as a table.

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
  std::vector<std::string_view> extensions;  // of the files' names, in lower case: ".jsonl"
  // One of the two: documents, or records, each of which makes one.
  std::unique_ptr<DocumentReader> (*open)(const std::filesystem::path& path, const ReaderOptions& options) = nullptr;
  std::unique_ptr<RecordSource> (*open_records)(const std::filesystem::path& path,
                                                const RecordSourceOptions& options) = nullptr;
  std::vector<std::string_view> magics =
      {};  // a file that begins with one of these is of the format, whatever its name
};

[[nodiscard]] const ChoiceTable<TextFormat>& text_formats();
// By the file's first bytes, else its name; null if neither says.
[[nodiscard]] const TextFormat* text_format_of(const std::filesystem::path& path);
// By the file's first bytes alone; null if they do not say.
[[nodiscard]] const TextFormat* text_format_by_bytes(const std::filesystem::path& path);
// The records of a file; JSON lines where neither its bytes nor its name say, or the name says text. Throws what the
// format's reader throws.
[[nodiscard]] std::unique_ptr<RecordSource> open_records(const std::filesystem::path& path,
                                                         const RecordSourceOptions& options = {});

}  // namespace quench
