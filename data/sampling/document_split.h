#pragma once
// Documents of token sources, and a random part of them held out.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/formats/token_source.h"

namespace quench {

// each(begin, length) for every document, in order.
void for_each_document(const TokenSource& source, const std::function<void(std::uint64_t, std::uint64_t)>& each);

// Whole documents of a stream, in its order.
class DocumentSubset final : public TokenSource {
 public:
  struct Run {
    std::uint64_t begin = 0, length = 0;  // range of documents that follow each other
  };
  // Nonempty, increasing.
  DocumentSubset(std::shared_ptr<const TokenSource> source, std::vector<Run> runs);

  [[nodiscard]] std::uint64_t size() const override { return starts_.back(); }
  [[nodiscard]] std::string describe() const override { return source_->describe(); }
  [[nodiscard]] bool has_target_mask() const override { return source_->has_target_mask(); }
  [[nodiscard]] std::string tokenizer_fingerprint() const override { return source_->tokenizer_fingerprint(); }

  void read(std::uint64_t begin, std::span<std::int32_t> out) const override;
  void read_target_mask(std::uint64_t begin, std::span<std::uint8_t> out) const override;
  void find_document_starts(std::uint64_t begin, std::span<const std::int32_t> tokens,
                            std::vector<std::uint64_t>& starts) const override;

 private:
  // visit(first token in the source, first token in the range, count, whether a run begins there) per run.
  template <class Visit>
  void for_each_run(std::uint64_t begin, std::uint64_t count, Visit visit) const;

  std::shared_ptr<const TokenSource> source_;
  std::vector<Run> runs_;
  std::vector<std::uint64_t> starts_;  // offsets of runs, then the total
};

struct DocumentSplit {
  std::vector<std::shared_ptr<const TokenSource>> kept, held_out;  // by source; null: none of its documents
  std::uint64_t records = 0, held_out_records = 0;
};

// `share`: below 1 a fraction of the records of all sources, rounded up, else their number; a record has `documents`
// documents. The choice is a function of seed and number of records. Throws bad_config if no record is left.
[[nodiscard]] DocumentSplit split_documents(const std::vector<std::shared_ptr<const TokenSource>>& sources,
                                            double share, std::uint64_t seed, std::uint64_t documents = 1);

}  // namespace quench
