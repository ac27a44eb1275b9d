#pragma once
// Training rows of fixed length.
//
// Packing: row r is tokens r*seq_len .. r*seq_len + seq_len - 1, its last label the first token of row r + 1; a
// document is its own attention sequence: positions restart, no label crosses. Multipack: whole documents by bin
// packing, a function of the stream and seq_len. Without packing: a document per row. The latter two split, truncate or
// drop documents above seq_len + 1 tokens.
//
// labels[i] is the token after input i, or kIgnoreLabel (core/ops/loss/cross_entropy.h). The last token of a document
// (EOS, if any) is an input and a target but predicts nothing: the first token of a document is never a target, except
// with document_mask off. Neither are padding and tokens with target flag 0.
//
// Answers (data/text/record_kind.h): the two documents of a pair follow each other in a row, without their
// last tokens as inputs; with packing, whole pairs are packed as by multipack, else a pair is a row. The second is
// without the tokens that both begin with, except the last of them, which predicts its first target: its keys begin
// with those of the first (SharedPrefix), if PackingOptions::may_share allows it. A record with a label is paired with
// its prompt under the answer of the nearest record before it with another prompt, in a circle.
//
// Prompts: a document per row, all its tokens inputs; those above seq_len are dropped.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ops/attention.h"
#include "data/formats/token_source.h"
#include "data/sampling/long_documents.h"
#include "data/text/policies.h"

namespace quench {

struct PackingOptions {
  std::int64_t seq_len = 0;
  bool packing = true;
  bool multipack = false;  // needs packing
  // Packing, no multipack; false: a row is one sequence, labels cross documents.
  bool document_mask = true;
  // Packing, no multipack; false: the rest forms a padded row. If there is nothing else, it always does.
  bool drop_last = true;
  LongDocuments long_documents = LongDocuments::split;  // multipack, or no packing
  std::int32_t pad_id = 0;
  AnswerRecords answers = AnswerRecords::none;
  // Whether the answers of a pair, by their numbers of inputs, may share keys: their positions must be rotated alike.
  // Empty: always.
  std::function<bool(std::int64_t first, std::int64_t second)> may_share{};
};

// Two answers to one prompt in a batch: chosen and rejected, or the answer of a record and one of another record.
struct AnswerPair {
  std::size_t source = 0;    // index in the dataset
  std::uint64_t item = 0;    // in the source's order, with records left out for their length
  bool desirable = true;     // label of the record
  std::size_t sequence = 0;  // index of the first answer in the batch; the second follows
};

// Additions to a batch of answers.
struct PairList {
  std::vector<AnswerPair>* pairs = nullptr;
  std::vector<SharedPrefix>* prefixes = nullptr;
};

// seq_len values each.
struct RowView {
  std::span<std::int32_t> input_ids;
  std::span<std::int32_t> labels;
  std::span<std::int32_t> positions;  // within the sequence; padding: 0
};

class PackedRows {
 public:
  // Multipack and no packing: one pass finds the documents; 16 bytes per document, 8 per row. Throws invalid_argument,
  // with the arithmetic, without rows.
  PackedRows(std::shared_ptr<const TokenSource> source, const PackingOptions& options);

  [[nodiscard]] std::uint64_t size() const noexcept { return row_count_; }
  [[nodiscard]] std::int64_t seq_len() const noexcept { return options_.seq_len; }
  [[nodiscard]] const TokenSource& source() const noexcept { return *source_; }

  // Tokens that never become labels.
  struct Losses {
    std::uint64_t tail_tokens = 0;
    std::uint64_t truncated_documents = 0;
    std::uint64_t truncated_tokens = 0;
    std::uint64_t dropped_documents = 0;
    std::uint64_t dropped_tokens = 0;
    std::uint64_t untrained_documents = 0;     // by LongDocuments::truncate: no target remains
    std::uint64_t single_token_documents = 0;  // no label
    std::uint64_t padding = 0;
    std::uint64_t untrained_pairs = 0;  // an answer has no target, or none before the cut
  };
  [[nodiscard]] const Losses& losses() const noexcept { return losses_; }

  // Appends the row's sequences, with indices from `first_token`, without padding. Returns the valid labels.
  // With answers, also its pairs and shared prefixes. Thread-safe.
  std::int64_t read(std::uint64_t row, const RowView& out, std::int64_t first_token,
                    std::vector<SequenceRange>& sequences, const PairList& pairs = {}) const;
  // Exclusive bound of AnswerPair::item.
  [[nodiscard]] std::uint64_t item_count() const noexcept { return item_count_; }

 private:
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t length = 0;  // inputs, and the last label's token if any
    // Further tokens from another place: an answer to the prompt of another record.
    std::uint64_t tail_begin = 0, tail_length = 0;
    std::uint64_t shared = 0;  // first tokens, which are inputs of the document before alone
    [[nodiscard]] std::uint64_t total() const noexcept { return length + tail_length; }
  };
  // Answer of a record.
  struct Answer {
    Span span;
    std::uint64_t prompt = 0;  // tokens before the first target
    std::uint64_t prompt_hash = 0;
    bool mark = false;
    [[nodiscard]] bool has_target() const noexcept { return prompt < span.total(); }
    void cut(std::uint64_t inputs) noexcept;
  };
  struct Pair {
    std::uint64_t item = 0;
    bool desirable = true;
  };
  [[nodiscard]] bool has_answers() const noexcept {
    return options_.answers == AnswerRecords::pairs || options_.answers == AnswerRecords::labels;
  }
  [[nodiscard]] bool has_prompts() const noexcept { return options_.answers == AnswerRecords::prompts; }
  [[nodiscard]] bool cuts_stream() const noexcept {
    return options_.packing && !options_.multipack && !has_answers() && !has_prompts();
  }
  void index_answers();
  [[nodiscard]] std::vector<Answer> read_answers() const;
  // Answer of another prompt if one is near.
  [[nodiscard]] static std::size_t mismatched_answer(const std::vector<Answer>& answers, std::size_t i);
  [[nodiscard]] bool may_share(const Answer& first, const Answer& second) const;
  // False: longer than a row, and not to be cut or left out.
  bool add_pair(const Pair& pair, Answer first, Answer second);
  void pack_pairs();
  void index_stream();
  void index_documents();
  void add_document(std::uint64_t begin, std::uint64_t length);
  void add_truncated(std::uint64_t begin, std::uint64_t length);
  void pack_documents();
  // Answers: those with a label that are not shared; else min(length, seq_len).
  [[nodiscard]] std::size_t inputs_of(const Span& span) const noexcept;
  // First tokens that both have before the last of them that is an input of both.
  [[nodiscard]] std::uint64_t shared_tokens(const Answer& first, const Answer& second) const;
  void write(const Span& span, std::size_t at, const RowView& out, std::int64_t first_token,
             std::vector<SequenceRange>& sequences) const;

  std::shared_ptr<const TokenSource> source_;
  PackingOptions options_;
  std::uint64_t row_count_ = 0;
  // Row r is documents_[row_starts_[r]] .. documents_[row_starts_[r + 1] - 1].
  std::vector<Span> documents_;
  std::vector<std::uint64_t> row_starts_;
  std::vector<Pair> pairs_;  // documents 2i and 2i + 1
  std::uint64_t item_count_ = 0;
  Losses losses_;
};

}  // namespace quench
