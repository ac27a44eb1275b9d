#include "data/tokenizer/model/unigram_model.h"

#include <algorithm>
#include <limits>

#include "core/system/check.h"
#include "data/tokenizer/text/code_points.h"

namespace quench {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr std::size_t kKeptNodes = std::size_t{1} << 16;  // workspace kept between pieces

std::size_t count_bytes(const std::vector<UnigramDefinition::Token>& tokens) {
  std::size_t bytes = 0;
  for (const auto& token : tokens) bytes += token.text.size();
  return bytes;
}

}  // namespace

struct UnigramModel::Node {
  double score = 0;
  std::size_t start = 0;    // start of the last token
  std::int32_t token = -1;  // -1: not reached
};

class UnigramModel::Memory final : public Workspace {
 public:
  std::vector<Node> nodes;
};

UnigramModel::UnigramModel(UnigramDefinition definition)
    : edges_(count_bytes(definition.tokens)), ends_(1, -1), unk_id_(definition.unk_id) {
  double lowest = 0;
  for (const auto& [text, score] : definition.tokens) {
    const auto id = static_cast<std::int32_t>(scores_.size());
    QUENCH_CHECK(!text.empty() && text.size() <= UnigramDefinition::kMaxTokenBytes && ids_.emplace(text, id).second,
                 "token {} is empty, longer than {} bytes, or another token too", id,
                 UnigramDefinition::kMaxTokenBytes);
    std::int32_t node = 0;
    for (const char byte : text) {
      const auto next = static_cast<std::int32_t>(ends_.size());
      if (edges_.insert(node, static_cast<std::uint8_t>(byte), {0, next})) {
        ends_.push_back(-1);
        node = next;
      } else {
        node = edges_.find(node, static_cast<std::uint8_t>(byte)).result;
      }
    }
    ends_[static_cast<std::size_t>(node)] = id;
    lowest = scores_.empty() ? score : std::min(lowest, score);
    scores_.push_back(score);
  }
  QUENCH_CHECK(unk_id_ >= 0 && unk_id_ < std::ssize(scores_), "the unknown token {} is none of {} tokens", unk_id_,
               scores_.size());
  unk_score_ = lowest - kUnknownPenalty;
  if (definition.byte_fallback) {
    byte_tokens_ = ByteTokens([&](const std::string& text) {
      const auto found = ids_.find(text);
      return found == ids_.end() ? -1 : found->second;
    });
  }
}

std::unique_ptr<TokenModel::Workspace> UnigramModel::make_workspace() const {
  return std::make_unique<Memory>();
}

void UnigramModel::encode(std::string_view piece, Workspace& workspace, std::vector<std::int32_t>& ids) const {
  auto& nodes = static_cast<Memory&>(workspace).nodes;
  nodes.assign(piece.size() + 1, Node{});
  find_best_path(piece, nodes);
  append_ids(piece, nodes, ids);
  if (nodes.capacity() > kKeptNodes) nodes = {};  // after an unusually long piece
}

void UnigramModel::find_best_path(std::string_view piece, std::vector<Node>& nodes) const {
  const auto offer = [&](std::size_t start, std::size_t end, std::int32_t token, double score) {
    Node& target = nodes[end];
    const double total = score + nodes[start].score;
    if (target.token < 0 || total > target.score) target = {total, start, token};
  };
  for (std::size_t start = 0; start < piece.size();) {
    const std::size_t character = code_point_length(piece, start);
    bool covered = false;
    std::int32_t node = 0;
    for (std::size_t end = start; end < piece.size(); ++end) {
      const auto edge = edges_.find(node, static_cast<std::uint8_t>(piece[end]));
      if (edge.rank == PairTable::kNoRank) break;
      node = edge.result;
      const std::int32_t token = ends_[static_cast<std::size_t>(node)];
      if (token < 0) continue;
      offer(start, end + 1, token, scores_[static_cast<std::size_t>(token)]);
      covered = covered || end + 1 - start == character;
    }
    if (!covered) offer(start, start + character, unk_id_, unk_score_);
    start += character;
  }
}

void UnigramModel::append_ids(std::string_view piece, const std::vector<Node>& nodes,
                              std::vector<std::int32_t>& ids) const {
  std::vector<std::size_t> ends;  // last first
  for (std::size_t end = piece.size(); end > 0; end = nodes[end].start) ends.push_back(end);
  std::size_t unknown = piece.size();  // pending unknown characters; piece size: none
  std::size_t start = 0;
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    if (const std::int32_t token = nodes[*end].token; token == unk_id_) {
      unknown = std::min(unknown, start);
    } else {
      if (unknown < start) append_unknown(piece.substr(unknown, start - unknown), ids);
      unknown = piece.size();
      ids.push_back(token);
    }
    start = *end;
  }
  if (unknown < start) append_unknown(piece.substr(unknown, start - unknown), ids);
}

void UnigramModel::append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  // The run may be a token.
  if (const auto whole = ids_.find(std::string(text)); whole != ids_.end()) {
    ids.push_back(whole->second);
  } else if (!byte_tokens_.append(text, ids)) {
    ids.push_back(unk_id_);
  }
}

void UnigramModel::encode_other(std::string_view bytes, Workspace&, std::vector<std::int32_t>& ids) const {
  if (!byte_tokens_.append(bytes, ids)) ids.push_back(unk_id_);
}

}  // namespace quench
