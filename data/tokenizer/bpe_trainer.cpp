#include "data/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <exception>
#include <unordered_map>

#include "core/system/check.h"
#include "core/system/log.h"
#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/model/pair_counter.h"
#include "data/tokenizer/text/code_points.h"
#include "data/tokenizer/text/split_pattern.h"
#include "data/tokenizer/tokenizer_json_writer.h"

namespace quench {
namespace {

struct PieceHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view piece) const { return std::hash<std::string_view>{}(piece); }
};
using PieceCounts = std::unordered_map<std::string, std::int64_t, PieceHash, std::equal_to<>>;

constexpr std::size_t kBatchBytes = std::size_t{32} << 20;
constexpr std::int64_t kMaxVocabSize = std::int64_t{1} << 24;

void count_pieces(std::string_view document, const SplitPattern* pattern, PieceCounts& counts) {
  const auto count = [&](std::string_view piece) {
    if (const auto known = counts.find(piece); known != counts.end()) {
      ++known->second;
    } else {
      counts.emplace(piece, 1);
    }
  };
  for_each_stretch(
      document,
      [&](std::string_view text) {
        if (pattern == nullptr) {
          count(text);
        } else {
          pattern->split(text, count);
        }
      },
      count);
}

void count_pieces(const std::vector<std::string>& documents, const SplitPattern* pattern, PieceCounts& totals) {
  std::exception_ptr failure;
#pragma omp parallel
  {
    PieceCounts counts;
#pragma omp for schedule(dynamic) nowait
    for (std::size_t i = 0; i < documents.size(); ++i) {
      try {
        count_pieces(documents[i], pattern, counts);
      } catch (...) {
#pragma omp critical(quench_train_bpe)
        failure = std::current_exception();
      }
    }
#pragma omp critical(quench_train_bpe)
    for (const auto& [piece, count] : counts) totals[piece] += count;
  }
  if (failure) std::rethrow_exception(failure);
}

PieceCounts count_pieces(const DocumentSource& documents, const SplitPattern* pattern) {
  PieceCounts counts;
  std::vector<std::string> batch;
  std::size_t batch_bytes = 0;
  std::string document;
  while (documents(document)) {
    batch_bytes += document.size();
    batch.push_back(std::move(document));
    document.clear();
    if (batch_bytes < kBatchBytes) continue;
    count_pieces(batch, pattern, counts);
    batch.clear();
    batch_bytes = 0;
  }
  count_pieces(batch, pattern, counts);
  return counts;
}

// After the 256 bytes.
void merge_pairs(PieceCounts counts, std::int64_t token_count, std::int64_t min_frequency, NewTokenizer& tokenizer) {
  PairCounter pairs;
  for (const auto& [piece, count] : counts) pairs.add_piece(piece, count);
  counts = {};
  std::unordered_map<std::string, std::int32_t> ids;
  for (std::size_t id = 0; id < tokenizer.tokens.size(); ++id) {
    ids.emplace(tokenizer.tokens[id], static_cast<std::int32_t>(id));
  }
  while (std::ssize(tokenizer.tokens) < token_count) {
    const auto best = pairs.most_frequent(min_frequency);
    if (!best) break;
    const std::string& left = tokenizer.tokens[static_cast<std::size_t>(best->left)];
    const std::string& right = tokenizer.tokens[static_cast<std::size_t>(best->right)];
    tokenizer.merges.emplace_back(left, right);
    // Two pairs may form the same token ("a" "bc" and "ab" "c").
    const auto [token, is_new] = ids.emplace(left + right, static_cast<std::int32_t>(tokenizer.tokens.size()));
    if (is_new) tokenizer.tokens.push_back(token->first);
    pairs.merge(best->left, best->right, token->second);
  }
}

}  // namespace

std::unique_ptr<Tokenizer> train_bpe(const DocumentSource& documents, const BpeTrainingOptions& options) {
  NewTokenizer tokenizer;
  for (const std::string& token : {options.bos_token, options.eos_token, options.pad_token}) {
    const bool listed = std::ranges::find(tokenizer.special_tokens, token) != tokenizer.special_tokens.end();
    if (!token.empty() && !listed) tokenizer.special_tokens.push_back(token);
  }
  for (const std::string& token : options.special_tokens) {
    const bool listed = std::ranges::find(tokenizer.special_tokens, token) != tokenizer.special_tokens.end();
    QUENCH_CHECK(!token.empty() && !listed, "special token \"{}\" is {}", token, listed ? "listed twice" : "empty");
    tokenizer.special_tokens.push_back(token);
  }
  for (int byte = 0; byte < 256; ++byte) tokenizer.tokens.emplace_back(1, static_cast<char>(byte));
  const std::int64_t special_count = std::ssize(tokenizer.special_tokens);
  const std::int64_t smallest = std::ssize(tokenizer.tokens) + special_count;
  QUENCH_CHECK(options.vocab_size >= smallest && options.vocab_size <= kMaxVocabSize,
               "a vocabulary of {} is not possible: expected {} (256 bytes and {} special tokens) to {}",
               options.vocab_size, smallest, special_count, kMaxVocabSize);
  QUENCH_CHECK(options.min_frequency >= 1, "min_frequency is {}, expected at least 1", options.min_frequency);
  const SplitPattern* pattern = options.split_pattern.empty() ? nullptr : &SplitPattern::named(options.split_pattern);

  merge_pairs(count_pieces(documents, pattern), options.vocab_size - special_count, options.min_frequency, tokenizer);
  if (const std::int64_t reached = std::ssize(tokenizer.tokens) + special_count; reached < options.vocab_size) {
    QUENCH_LOG_WARN("the training text yields a vocabulary of {}, not {}: no other pair occurs {} times", reached,
                    options.vocab_size, options.min_frequency);
  }
  if (pattern != nullptr) tokenizer.split_expression = pattern->expression();
  tokenizer.bos_token = options.bos_token;
  tokenizer.eos_token = options.eos_token;
  tokenizer.pad_token = options.pad_token;
  return std::make_unique<JsonTokenizer>(write_tokenizer_json(tokenizer));
}

std::unique_ptr<Tokenizer> train_bpe(std::span<const std::string_view> documents, const BpeTrainingOptions& options) {
  std::size_t next = 0;
  return train_bpe(
      [&](std::string& document) {
        if (next == documents.size()) return false;
        document = documents[next++];
        return true;
      },
      options);
}

}  // namespace quench
