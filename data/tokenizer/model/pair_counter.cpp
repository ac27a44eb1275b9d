#include "data/tokenizer/model/pair_counter.h"

#include <algorithm>

#include "core/system/check.h"

namespace quench {

void PairCounter::add_piece(std::string_view piece, std::int64_t count) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, symbols_.size() + piece.size() < kEnd,
                  "training text has more than 4 GiB of different pieces; train on a sample of it");
  const auto index = static_cast<std::uint32_t>(piece_counts_.size());
  piece_counts_.push_back(count);
  const auto first = static_cast<std::uint32_t>(symbols_.size());
  for (const char byte : piece) {
    const auto place = static_cast<std::uint32_t>(symbols_.size());
    symbols_.push_back({static_cast<std::uint8_t>(byte), place == first ? kEnd : place - 1, place + 1, index});
  }
  if (!piece.empty()) symbols_.back().next = kEnd;
  for (std::uint32_t place = first; place + 1 < symbols_.size(); ++place) add_occurrence(place);
}

void PairCounter::add_occurrence(std::uint32_t place) {
  const Symbol& left = symbols_[place];
  const std::uint64_t pair = key(left.id, symbols_[left.next].id);
  Occurrences& occurrences = pairs_[pair];
  occurrences.count += piece_counts_[left.piece];
  occurrences.places.push_back(place);
  grown_.push_back(pair);
}

void PairCounter::remove_occurrence(std::uint32_t place) {
  const Symbol& left = symbols_[place];
  pairs_[key(left.id, symbols_[left.next].id)].count -= piece_counts_[left.piece];
}

std::optional<PairCounter::Pair> PairCounter::most_frequent(std::int64_t min_count) {
  std::ranges::sort(grown_);
  const auto repeated = std::ranges::unique(grown_);
  grown_.erase(repeated.begin(), repeated.end());
  for (const std::uint64_t pair : grown_) {
    queue_.push({static_cast<std::int32_t>(pair >> 32), static_cast<std::int32_t>(pair), pairs_[pair].count});
  }
  grown_.clear();
  while (!queue_.empty() && queue_.top().count >= min_count) {
    const Pair top = queue_.top();
    const auto pair = pairs_.find(key(top.left, top.right));
    const std::int64_t count = pair == pairs_.end() ? 0 : pair->second.count;
    if (count == top.count) return top;
    queue_.pop();
    if (count < top.count && count >= min_count) queue_.push({top.left, top.right, count});
  }
  return std::nullopt;
}

void PairCounter::merge(std::int32_t left, std::int32_t right, std::int32_t result) {
  const auto node = pairs_.extract(key(left, right));
  if (node.empty()) return;
  std::vector<std::uint32_t> places = node.mapped().places;
  std::ranges::sort(places);
  for (const std::uint32_t place : places) {
    Symbol& symbol = symbols_[place];
    if (symbol.id != left || symbol.next == kEnd || symbols_[symbol.next].id != right) continue;
    Symbol& gone = symbols_[symbol.next];
    if (symbol.previous != kEnd) remove_occurrence(symbol.previous);
    if (gone.next != kEnd) remove_occurrence(symbol.next);
    symbol.id = result;
    symbol.next = gone.next;
    gone.id = kGone;
    if (symbol.next != kEnd) {
      symbols_[symbol.next].previous = place;
      add_occurrence(place);
    }
    if (symbol.previous != kEnd) add_occurrence(symbol.previous);
  }
  // Overlapping occurrences ("aaa") were counted again under the merged pair's key; none is left.
  pairs_.erase(key(left, right));
}

}  // namespace quench
