#include "data/sampling/data_formats.h"

#include <algorithm>

#include "data/text/document_reader.h"

namespace quench {

std::vector<std::string> data_format_names() {
  std::vector<std::string> names;
  for (const DocumentFormat format : {DocumentFormat::automatic, DocumentFormat::text, DocumentFormat::jsonl})
    names.emplace_back(to_string(format));
  for (const TokenFormat& format : token_formats()) names.emplace_back(format.name);
  return names;
}

std::string data_format_help() {
  return token_formats().help(
      "Format of the files; auto looks at names and first bytes. text: plain text. jsonl: JSON lines.");
}

bool is_text_format(std::string_view name) {
  return name == to_string(DocumentFormat::text) || name == to_string(DocumentFormat::jsonl);
}

const TokenFormat* token_format_named(std::string_view name) {
  if (name == to_string(DocumentFormat::automatic) || is_text_format(name)) return nullptr;
  if (const TokenFormat* format = token_formats().find(name)) return format;
  QUENCH_FAIL(ErrorCode::bad_config, "data format '{}' is unknown; known: {}", name,
              fmt::join(data_format_names(), ", "));
}

}  // namespace quench
