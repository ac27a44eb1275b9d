#include "data/files/dataset_card.h"

#include <algorithm>

namespace quench {
namespace {

struct CardLine {
  std::size_t indent = 0;  // after "- "
  bool item = false;
  std::string key, value;  // "key: value"; without ": " only a value
};

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string unquoted(std::string_view text) {
  text = trimmed(text);
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return std::string(quoted ? text.substr(1, text.size() - 2) : text);
}

CardLine card_line(std::string_view text) {
  CardLine line;
  line.indent = text.find_first_not_of(' ');
  text.remove_prefix(line.indent);
  if (text.starts_with("- ")) {
    line.item = true;
    const std::size_t skipped = std::min(text.find_first_not_of(' ', 1), text.size());
    line.indent += skipped;
    text.remove_prefix(skipped);
  }
  const std::size_t colon = text.find(':');
  const bool pair = colon != std::string_view::npos && (colon + 1 == text.size() || text[colon + 1] == ' ');
  if (pair) line.key = unquoted(text.substr(0, colon));
  line.value = unquoted(pair ? text.substr(colon + 1) : text);
  return line;
}

// Under "configs:", in the front matter.
std::vector<CardLine> config_lines(std::string_view card) {
  std::vector<CardLine> lines;
  bool front = false, inside = false;
  while (!card.empty()) {
    const std::size_t end = std::min(card.find('\n'), card.size());
    std::string_view text = card.substr(0, end);
    card.remove_prefix(std::min(end + 1, card.size()));
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text == "---") {
      if (front) break;
      front = true;
      continue;
    }
    if (!front) break;
    const std::string_view bare = trimmed(text);
    if (bare.empty() || bare.front() == '#') continue;
    if (inside && text.front() != ' ' && text.front() != '-') break;
    if (inside) lines.push_back(card_line(text));
    inside = inside || bare == "configs:";
  }
  return lines;
}

}  // namespace

std::vector<CardConfig> card_configs(std::string_view card) {
  std::vector<CardConfig> configs;
  std::size_t item_indent = 0;  // entries of `configs`
  bool in_files = false, in_path = false;
  for (const CardLine& line : config_lines(card)) {
    if (configs.empty() && !line.item) return {};
    if (line.item && (configs.empty() || line.indent == item_indent)) {
      item_indent = line.indent;
      configs.emplace_back();
      in_files = in_path = false;
    }
    CardConfig& config = configs.back();
    if (line.indent == item_indent) {
      in_files = line.key == "data_files";
      if (line.key == "config_name") config.name = line.value;
      if (line.key == "default") config.is_default = line.value == "true";
      if (line.key == "data_dir") config.folder = line.value;
      if (in_files && !line.value.empty()) config.splits.push_back({"train", {line.value}});
    } else if (in_files && line.key == "split") {
      config.splits.push_back({line.value, {}});
    } else if (in_files && line.key == "path") {
      if (config.splits.empty()) return {};
      in_path = line.value.empty();
      if (!in_path) config.splits.back().second.push_back(line.value);
    } else if (in_files && line.item && line.key.empty()) {  // path list
      if (!in_path && config.splits.empty()) config.splits.push_back({"train", {}});
      config.splits.back().second.push_back(line.value);
    }
  }
  for (CardConfig& config : configs) {
    config.is_default = config.is_default || config.name == "default";
    for (const auto& [split, patterns] : config.splits)
      for (const std::string& pattern : patterns)
        if (pattern.empty() || pattern.front() == '[' || pattern.front() == '{') return {};
    std::erase_if(config.splits, [](const auto& split) { return split.second.empty(); });
  }
  return configs;
}

}  // namespace quench
