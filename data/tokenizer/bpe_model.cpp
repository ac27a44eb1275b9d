#include "data/tokenizer/bpe_model.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>

#include "core/check.h"

namespace quench {
namespace {

constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kKeptSymbols = std::size_t{1} << 16;  // what a workspace keeps between pieces

std::uint64_t heap_entry(std::uint32_t rank, std::size_t left) {
  return static_cast<std::uint64_t>(rank) << 32 | left;
}

}  // namespace

BpeModel::BpeModel(BpeDefinition definition)
    : tokens_(std::move(definition.tokens)),
      pairs_(definition.merges.size()),
      byte_ids_(256, -1),
      unk_id_(definition.unk_id),
      fuse_unk_(definition.fuse_unk) {
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    const auto& [bytes, mergeable] = tokens_[id];
    if (!mergeable) continue;
    if (bytes.size() == 1) byte_ids_[static_cast<std::uint8_t>(bytes[0])] = static_cast<std::int32_t>(id);
    if (definition.ignore_merges) whole_pieces_.emplace(bytes, static_cast<std::int32_t>(id));
  }
  std::uint32_t rank = 0;
  for (const auto& [left, right, result] : definition.merges) {
    QUENCH_CHECK(pairs_.insert(left, right, {rank, result}), "merge {} repeats an earlier one", rank);
    ++rank;
  }
}

std::vector<std::uint8_t> BpeModel::missing_bytes() const {
  std::vector<std::uint8_t> missing;
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    if (byte_ids_[byte] < 0) missing.push_back(static_cast<std::uint8_t>(byte));
  }
  return missing;
}

void BpeModel::encode(std::string_view piece, Workspace& workspace, std::vector<std::int32_t>& ids) const {
  if (workspace.cache_.find(piece, ids)) return;
  const std::size_t start = ids.size();
  if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
    ids.push_back(whole->second);
  } else {
    merge(piece, workspace, ids);
  }
  workspace.cache_.store(piece, std::span(ids).subspan(start));
}

void BpeModel::split_to_bytes(std::string_view piece, Workspace& workspace) const {
  auto& symbols = workspace.symbols_;
  symbols.clear();
  bool last_is_unk = false;
  const auto add = [&](std::int32_t id) {
    const auto index = static_cast<std::uint32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1, PairTable::kNoRank, -1});  // index - 1 wraps to kEnd for the first
  };
  for (const char character : piece) {
    const std::int32_t id = byte_ids_[static_cast<std::uint8_t>(character)];
    if (id >= 0) {
      add(id);
    } else if (unk_id_ && !(last_is_unk && fuse_unk_)) {
      add(*unk_id_);
    }
    last_is_unk = id < 0;
  }
  if (!symbols.empty()) symbols.back().next = kEnd;
}

void BpeModel::merge(std::string_view piece, Workspace& workspace, std::vector<std::int32_t>& ids) const {
  QUENCH_CHECK(piece.size() < kEnd, "a piece of text of {} bytes without a split is too long for BPE (4 GiB at most)",
               piece.size());
  split_to_bytes(piece, workspace);
  auto& symbols = workspace.symbols_;
  auto& heap = workspace.heap_;
  heap.clear();

  // Looks up the pair of symbols[left] and its right neighbour; true if it merges.
  const auto update_pair = [&](std::uint32_t left) {
    auto& symbol = symbols[left];
    const auto found = symbol.next == kEnd ? PairTable::Entry{} : pairs_.find(symbol.id, symbols[symbol.next].id);
    symbol.rank = found.rank;
    symbol.merged = found.result;
    return found.rank != PairTable::kNoRank;
  };
  for (std::uint32_t i = 0; i < symbols.size(); ++i) {
    if (update_pair(i)) heap.push_back(heap_entry(symbols[i].rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>{});
  const auto push = [&](std::uint32_t left) {
    if (!update_pair(left)) return;
    heap.push_back(heap_entry(symbols[left].rank, left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>{});
  };

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    const auto left = static_cast<std::uint32_t>(heap.back());
    heap.pop_back();
    auto& symbol = symbols[left];
    if (symbol.rank != rank) continue;  // the pair has changed since it was pushed
    auto& gone = symbols[symbol.next];
    symbol.id = symbol.merged;
    symbol.next = gone.next;
    gone.rank = PairTable::kNoRank;
    if (symbol.next != kEnd) symbols[symbol.next].previous = left;
    push(left);
    if (symbol.previous != kEnd) push(symbol.previous);
  }
  for (std::uint32_t i = symbols.empty() ? kEnd : 0; i != kEnd; i = symbols[i].next) ids.push_back(symbols[i].id);

  if (symbols.capacity() > kKeptSymbols) {  // one long piece must not hold its memory for good
    symbols = {};
    heap = {};
  }
}

}  // namespace quench
