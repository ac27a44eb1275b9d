#include "train/model_source/hub_hint.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

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

}  // namespace

std::string hub_hint(std::string_view path) {
  const std::string_view name = hub_name(path);
  if (name.empty()) return {};
  return fmt::format(
      "; models of the Hugging Face Hub are downloaded first: `hf download {} --local-dir {}` (older: huggingface-cli "
      "download), then name the folder {}",
      path, name, name);
}

std::string hub_data_hint(std::string_view path) {
  const std::string_view name = hub_name(path);
  if (name.empty() || name.find('.') != std::string_view::npos) return {};
  return fmt::format(
      "; data sets of the Hugging Face Hub are downloaded first: `hf download {} --repo-type dataset --local-dir {}`, "
      "then name the folder {}",
      path, name, name);
}

}  // namespace quench
