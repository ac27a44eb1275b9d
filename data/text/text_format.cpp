#include "data/text/text_format.h"

#include <algorithm>

#include "data/text/jsonl_reader.h"
#include "data/text/text_input.h"
#include "data/text/text_reader.h"

namespace quench {

const ChoiceTable<TextFormat>& text_formats() {
  static const ChoiceTable<TextFormat> table(
      "text format", {{"text", "plain text", {".txt", ".text", ".md"}, open_text_reader},
                      {"jsonl", "JSON lines", {".jsonl", ".ndjson", ".json"}, open_jsonl_reader, true}});
  return table;
}

const TextFormat* text_format_of(const std::filesystem::path& path) {
  const std::string extension = text_extension(path);
  for (const TextFormat& format : text_formats())
    if (std::ranges::find(format.extensions, extension) != format.extensions.end()) return &format;
  return nullptr;
}

}  // namespace quench
