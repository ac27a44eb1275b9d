#include "core/system/nearest_name.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace quench {
namespace {

constexpr std::size_t kMaxNameBytes = 256;

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return result;
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(end.first - a.begin());
}

// Prefix or suffix at an underscore.
bool is_part(std::string_view name, std::string_view longer) {
  if (name.size() < 3 || name.size() >= longer.size()) return false;
  return (longer.starts_with(name) && longer[name.size()] == '_') ||
         (longer.ends_with(name) && longer[longer.size() - name.size() - 1] == '_');
}

std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : lower_case(name)) {
    if (c != '_' && c != '.')
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool is_same_word(std::string_view a, std::string_view b) {
  constexpr std::size_t kLeast = 3;
  if (a == b) return true;
  if (std::min(a.size(), b.size()) < kLeast) return false;
  return a.starts_with(b) || b.starts_with(a) || (a.size() > kLeast && edit_distance(a, b) <= 1);
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Transpositions need two rows back.
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  if (name.empty() || name.size() > kMaxNameBytes) return {};
  const std::string wanted = lower_case(name);
  const std::size_t limit = std::clamp<std::size_t>(name.size() / 3, 1, 3);
  const std::string* best = nullptr;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  std::size_t best_prefix = 0;
  for (const std::string& candidate : candidates) {
    const std::string known = lower_case(candidate);
    const std::size_t distance = is_part(wanted, known) ? 1 : edit_distance(wanted, known);
    const std::size_t prefix = common_prefix(wanted, known);
    if (distance > limit) continue;
    if (distance < best_distance || (distance == best_distance && prefix > best_prefix)) {
      best = &candidate;
      best_distance = distance;
      best_prefix = prefix;
    }
  }
  return best == nullptr ? std::string() : *best;
}

std::string nearest_by_words(std::string_view name, std::span<const std::string> candidates) {
  if (name.size() > kMaxNameBytes) return {};
  const std::vector<std::string> wanted = words_of(name);
  const std::string* best = nullptr;
  double best_share = 0;
  for (const std::string& candidate : candidates) {
    std::vector<std::string> left = words_of(candidate);
    const std::size_t words = wanted.size() + left.size();
    std::size_t shared = 0;
    for (const std::string& word : wanted) {
      const auto same = std::ranges::find_if(left, [&](const std::string& other) { return is_same_word(word, other); });
      if (same == left.end()) continue;
      left.erase(same);
      shared += 2;
    }
    const double share = static_cast<double>(shared) / static_cast<double>(std::max<std::size_t>(1, words));
    if (3 * shared < 2 * words || share <= best_share) continue;
    best = &candidate;
    best_share = share;
  }
  return best == nullptr ? std::string() : *best;
}

}  // namespace quench
