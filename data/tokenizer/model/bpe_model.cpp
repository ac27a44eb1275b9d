#include "data/tokenizer/model/bpe_model.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>

#include "core/system/check.h"
#include "data/tokenizer/model/word_cache.h"
#include "data/tokenizer/text/code_points.h"

namespace quench {
namespace {

constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kKeptSymbols = std::size_t{1} << 16;  // workspace kept between pieces

std::uint64_t heap_entry(std::uint32_t rank, std::size_t left) {
  return static_cast<std::uint64_t>(rank) << 32 | left;
}

}  // namespace

struct BpeModel::Symbol {
  std::int32_t id;
  std::uint32_t previous, next;  // remaining symbols; kEnd at the ends
  std::uint32_t rank;            // pair with `next`; kNoRank: no merge, or removed
  std::int32_t merged;
};

class BpeModel::Memory final : public Workspace {
 public:
  std::vector<std::int32_t> unmerged;  // before merging
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> heap;  // rank << 32 | left symbol; min-heap
  WordCache cache;
};

BpeModel::BpeModel(const BpeDefinition& definition)
    : byte_level_(definition.byte_level),
      pairs_(definition.merges.size()),
      symbol_ids_(256, -1),
      unk_id_(definition.unk_id),
      fuse_unk_(definition.fuse_unk) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t index = 0; index < definition.tokens.size(); ++index) {
    const auto& [bytes, mergeable] = definition.tokens[index];
    if (!mergeable || bytes.empty()) continue;
    const auto id = static_cast<std::int32_t>(index);
    ids.emplace(bytes, id);
    if (byte_level_) {
      if (bytes.size() == 1) symbol_ids_[static_cast<std::uint8_t>(bytes[0])] = id;
    } else if (code_point_length(bytes, 0) == bytes.size()) {
      const std::size_t code_point = decode_code_point(bytes, 0);
      if (symbol_ids_.size() <= code_point) symbol_ids_.resize(code_point + 1, -1);
      symbol_ids_[code_point] = id;
    }
    if (definition.ignore_merges) whole_pieces_.emplace(bytes, id);
  }
  if (definition.byte_fallback) {
    byte_tokens_ = ByteTokens([&](const std::string& text) {
      const auto found = ids.find(text);
      return found == ids.end() ? -1 : found->second;
    });
  }
  std::uint32_t rank = 0;
  for (const auto& [left, right, result] : definition.merges) {
    QUENCH_CHECK(pairs_.insert(left, right, {rank, result}), "merge {} repeats an earlier one", rank);
    ++rank;
  }
}

std::unique_ptr<TokenModel::Workspace> BpeModel::make_workspace() const {
  return std::make_unique<Memory>();
}

std::vector<std::uint8_t> BpeModel::missing_bytes() const {
  if (!byte_level_) return byte_tokens_.missing();
  std::vector<std::uint8_t> missing;
  for (std::size_t byte = 0; byte < symbol_ids_.size(); ++byte) {
    if (symbol_ids_[byte] < 0) missing.push_back(static_cast<std::uint8_t>(byte));
  }
  return missing;
}

void BpeModel::encode(std::string_view piece, Workspace& workspace, std::vector<std::int32_t>& ids) const {
  auto& memory = static_cast<Memory&>(workspace);
  if (memory.cache.find(piece, ids)) return;
  const std::size_t start = ids.size();
  const auto whole = whole_pieces_.empty() ? whole_pieces_.end() : whole_pieces_.find(std::string(piece));
  if (whole != whole_pieces_.end()) {
    ids.push_back(whole->second);
  } else {
    merge(piece, memory, ids);
  }
  memory.cache.store(piece, std::span(ids).subspan(start));
}

void BpeModel::encode_other(std::string_view bytes, Workspace& workspace, std::vector<std::int32_t>& ids) const {
  if (byte_level_) return encode(bytes, workspace, ids);
  if (byte_tokens_.append(bytes, ids)) return;
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) append_code_point(text, 0xFFFD);
  encode(text, workspace, ids);
}

void BpeModel::split_to_bytes(std::string_view piece, Memory& memory) const {
  bool last_is_unk = false;
  for (const char character : piece) {
    const std::int32_t id = symbol_ids_[static_cast<std::uint8_t>(character)];
    if (id >= 0) {
      memory.unmerged.push_back(id);
    } else if (unk_id_ && !(last_is_unk && fuse_unk_)) {
      memory.unmerged.push_back(*unk_id_);
    }
    last_is_unk = id < 0;
  }
}

// As Hugging Face tokenizers: an unknown character is deferred until one with a token follows; byte fallback tokens
// precede it.
void BpeModel::split_to_characters(std::string_view piece, Memory& memory) const {
  auto& ids = memory.unmerged;
  bool unknown_waits = false;
  for (std::size_t at = 0; at < piece.size();) {
    const std::string_view character = piece.substr(at, code_point_length(piece, at));
    const std::size_t code_point = decode_code_point(piece, at);
    at += character.size();
    if (const std::int32_t id = code_point < symbol_ids_.size() ? symbol_ids_[code_point] : -1; id >= 0) {
      if (unknown_waits) ids.push_back(*unk_id_);
      unknown_waits = false;
      ids.push_back(id);
    } else if (!byte_tokens_.append(character, ids) && unk_id_) {
      if (unknown_waits && !fuse_unk_) ids.push_back(*unk_id_);
      unknown_waits = true;
    }
  }
  if (unknown_waits) ids.push_back(*unk_id_);
}

void BpeModel::merge(std::string_view piece, Memory& memory, std::vector<std::int32_t>& ids) const {
  QUENCH_CHECK(piece.size() < kEnd, "a piece of text of {} bytes without a split is too long for BPE (4 GiB at most)",
               piece.size());
  memory.unmerged.clear();
  if (byte_level_) {
    split_to_bytes(piece, memory);
  } else {
    split_to_characters(piece, memory);
  }
  auto& symbols = memory.symbols;
  auto& heap = memory.heap;
  symbols.clear();
  heap.clear();
  for (const std::int32_t id : memory.unmerged) {
    const auto index = static_cast<std::uint32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1, PairTable::kNoRank, -1});  // wraps to kEnd for the first
  }
  if (!symbols.empty()) symbols.back().next = kEnd;

  // symbols[left] and its right neighbour.
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
    if (symbol.rank != rank) continue;  // stale
    auto& gone = symbols[symbol.next];
    symbol.id = symbol.merged;
    symbol.next = gone.next;
    gone.rank = PairTable::kNoRank;
    if (symbol.next != kEnd) symbols[symbol.next].previous = left;
    push(left);
    if (symbol.previous != kEnd) push(symbol.previous);
  }
  for (std::uint32_t i = symbols.empty() ? kEnd : 0; i != kEnd; i = symbols[i].next) ids.push_back(symbols[i].id);

  if (symbols.capacity() > kKeptSymbols) {  // after an unusually long piece
    symbols = {};
    heap = {};
    memory.unmerged = {};
  }
}

}  // namespace quench
