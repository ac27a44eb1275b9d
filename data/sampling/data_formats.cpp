#include "data/sampling/data_formats.h"

#include "core/system/automatic_choice.h"

namespace quench {

std::vector<std::string> data_format_names() {
  std::vector<std::string> names = names_with_auto(text_formats());
  for (const TokenFormat& format : token_formats()) names.emplace_back(format.name);
  return names;
}

std::string data_format_help() {
  return token_formats().help(text_formats().help("Format of the files; auto: by name and first bytes."));
}

DataFormat data_format_named(std::string_view name, std::string_view key) {
  DataFormat format;
  if (name == kAutomaticChoice) return format;
  format.text = text_formats().find(name);
  if (format.text == nullptr) format.tokens = token_formats().find(name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, format.text != nullptr || format.tokens != nullptr,
                  "{} '{}' is unknown; known: {}", key, name, fmt::join(data_format_names(), ", "));
  return format;
}

}  // namespace quench
