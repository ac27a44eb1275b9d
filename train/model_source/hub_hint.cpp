#include "train/model_source/hub_hint.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "data/hub/hub_name.h"

namespace quench {
namespace {

bool is_hub_word(std::string_view word) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  return !word.empty() && word.size() <= 96 && word.front() != '.' && std::all_of(word.begin(), word.end(), allowed);
}

// NAME of "OWNER/NAME"; empty if the path is none or the folder OWNER exists.
std::string_view hub_name(std::string_view path) {
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos) return {};
  const std::string_view owner = path.substr(0, slash), name = path.substr(slash + 1);
  std::error_code ignored;
  if (!is_hub_word(owner) || !is_hub_word(name) || std::filesystem::exists(owner, ignored)) return {};
  return name;
}

// Hint of hf:OWNER/NAME, which would stand for a folder if the cache had it; empty for others.
std::string absent_hint(std::string_view path) {
  const std::optional<hub::HubName> name = hub::find_hub_name(path);
  return name ? fmt::format("; it is not in the cache of the Hugging Face Hub: download it with `quench pull {}`", path)
              : std::string();
}

}  // namespace

std::string hub_hint(std::string_view path) {
  if (std::string absent = absent_hint(path); !absent.empty()) return absent;
  if (hub_name(path).empty()) return {};
  return fmt::format("; models of the Hugging Face Hub are downloaded first: `quench pull hf:{}`, then name it hf:{}",
                     path, path);
}

std::string hub_data_hint(std::string_view path) {
  if (std::string absent = absent_hint(path); !absent.empty()) return absent;
  const std::string_view name = hub_name(path);
  if (name.empty() || name.find('.') != std::string_view::npos) return {};
  return fmt::format(
      "; data sets of the Hugging Face Hub are downloaded first: `quench pull hf:datasets/{}`, then name it "
      "hf:datasets/{}",
      path, path);
}

}  // namespace quench
