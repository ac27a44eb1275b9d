#include "export/formats/gguf/merge_scores.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "core/system/check.h"
#include "export/formats/gguf/token_kinds.h"

namespace quench {
namespace {

struct Merge {
  std::string first, second, made;
  std::size_t id;  // token id of `made`
};

// With the longest first part first: a run becomes tokens from left to right, each as long as possible, as by merges of
// equal scores.
bool merges_spaces_from_left(const std::vector<Merge>& merges) {
  const auto spaces = [](const Merge& merge) { return is_piece_of_spaces(merge.made); };
  const auto first = std::ranges::find_if(merges, spaces), last = std::find_if_not(first, merges.end(), spaces);
  return std::none_of(last, merges.end(), spaces) &&
         std::is_sorted(first, last, [](const Merge& a, const Merge& b) { return a.first.size() > b.first.size(); });
}

}  // namespace

std::pair<std::string, std::string> merged_pair(const Json& merge) {
  if (!merge.is_string()) return {merge.as_array().at(0).as_string(), merge.as_array().at(1).as_string()};
  const std::string& text = merge.as_string();
  const std::size_t space = text.find(' ', 1);
  QUENCH_CHECK_AS(ErrorCode::corrupt, space != std::string::npos, "merge \"{}\" names no two tokens", text);
  return {text.substr(0, space), text.substr(space + 1)};
}

std::string score_by_merges(const Json::Array& list, const Json::Object& vocab, const std::vector<std::int32_t>& kinds,
                            std::vector<float>& scores) {
  std::unordered_map<std::string_view, std::size_t> ids;
  for (const auto& [text, id] : vocab) ids.emplace(text, static_cast<std::size_t>(id.as_uint()));
  // Added tokens are matched before all merges.
  const auto is_merged = [&](std::string_view text) {
    const auto id = ids.find(text);
    return id == ids.end() || (kinds.at(id->second) != kControl && kinds.at(id->second) != kUserDefined);
  };
  std::vector<Merge> merges;
  for (const Json& pair : list) {
    auto [first, second] = merged_pair(pair);
    std::string made = first + second;
    const auto id = ids.find(made);
    if (id == ids.end()) return fmt::format("a merge of tokenizer.json makes {}, which is no token", Json(made).dump());
    if (kinds.at(id->second) == kNormal && is_merged(first) && is_merged(second))
      merges.push_back({std::move(first), std::move(second), std::move(made), id->second});
  }
  const bool from_left = merges_spaces_from_left(merges);
  std::unordered_map<std::string_view, std::size_t> pairs;  // per token
  std::size_t scored = 0;
  std::string_view last;  // group
  for (const Merge& merge : merges) {
    const std::string_view group =
        from_left && is_piece_of_spaces(merge.made) ? kPieceSpace : std::string_view(merge.made);
    if (group != last && pairs.contains(merge.made))
      return fmt::format("tokenizer.json has other merges between those of {}; llama.cpp orders merges by the result",
                         Json(merge.made).dump());
    if (group != last) ++scored;
    ++pairs[merge.made];
    scores.at(merge.id) = 1.0f - static_cast<float>(scored);
    last = group;
  }
  for (const auto& [name, id] : vocab) {
    if (kinds.at(id.as_uint()) != kNormal) continue;
    const std::string_view text = name;
    std::size_t possible = 0;
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const std::string_view first = text.substr(0, cut), second = text.substr(cut);
      possible += ids.contains(first) && ids.contains(second) && is_merged(first) && is_merged(second) ? 1U : 0U;
    }
    if (const auto made = pairs.find(text); possible != (made == pairs.end() ? 0 : made->second))
      return fmt::format("tokenizer.json lacks merges of {}; llama.cpp merges all pairs that make a token",
                         Json(text).dump());
  }
  return {};
}

}  // namespace quench
