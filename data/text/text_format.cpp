#include "data/text/text_format.h"

#include <algorithm>
#include <fstream>

#include "data/files/csv_source.h"
#include "data/files/json_source.h"
#include "data/files/table_source.h"
#include "data/files/text_input.h"
#include "data/text/text_reader.h"

namespace quench {
namespace {

// Empty unless regular.
std::string first_bytes(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  std::string bytes(16, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return bytes;
}

}  // namespace

const ChoiceTable<TextFormat>& text_formats() {
  static const ChoiceTable<TextFormat> table(
      "text format",
      {{"text", "plain text", {".txt", ".text", ".md"}, open_text_reader},
       {"jsonl", "JSON lines", {".jsonl", ".ndjson"}, nullptr, open_json_source},
       {"json", "one JSON array of records, or JSON lines", {".json"}, nullptr, open_json_source},
       {"csv", "comma-separated values under the names of their columns", {".csv"}, nullptr, open_csv_source},
       {"tsv", "the same, separated by tabs", {".tsv"}, nullptr, open_tsv_source},
       {"parquet", "Parquet files", {".parquet", ".pq"}, nullptr, open_parquet_source, {"PAR1"}},
       {"arrow",
        "Arrow IPC files and streams, as datasets writes",
        {".arrow", ".feather", ".ipc"},
        nullptr,
        open_arrow_source,
        {"ARROW1", std::string_view("\xFF\xFF\xFF\xFF")}}});
  return table;
}

const TextFormat* text_format_by_bytes(const std::filesystem::path& path) {
  const std::string bytes = first_bytes(path);
  for (const TextFormat& format : text_formats())
    if (std::ranges::any_of(format.magics, [&](std::string_view magic) { return bytes.starts_with(magic); }))
      return &format;
  return nullptr;
}

const TextFormat* text_format_of(const std::filesystem::path& path) {
  if (const TextFormat* format = text_format_by_bytes(path)) return format;
  const std::string extension = text_extension(path);
  for (const TextFormat& format : text_formats())
    if (std::ranges::find(format.extensions, extension) != format.extensions.end()) return &format;
  return nullptr;
}

std::unique_ptr<RecordSource> open_records(const std::filesystem::path& path, const RecordSourceOptions& options) {
  const TextFormat* format = text_format_of(path);
  const auto open = format != nullptr && format->open_records != nullptr ? format->open_records : open_json_source;
  return open(path, options);
}

}  // namespace quench
