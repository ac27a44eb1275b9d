#pragma once
// A token source in memory, with documents, masks, and failures on request.

#include <atomic>

#include "tests/data/sampling/token_fixtures.h"

namespace quench::testing {

class MemorySource final : public TokenSource {
 public:
  // Documents in order; ids and flags as given.
  explicit MemorySource(const std::vector<std::vector<std::int32_t>>& documents, std::vector<std::uint8_t> targets = {})
      : targets_(std::move(targets)) {
    for (const auto& document : documents) {
      starts_.push_back(tokens_.size());
      tokens_.insert(tokens_.end(), document.begin(), document.end());
    }
  }
  // One document of ids 0 .. count-1.
  static std::shared_ptr<MemorySource> counting(std::size_t count) {
    return std::make_shared<MemorySource>(std::vector<std::vector<std::int32_t>>{iota<std::int32_t>(count)});
  }

  [[nodiscard]] std::uint64_t size() const override { return tokens_.size(); }
  [[nodiscard]] std::string describe() const override { return "memory"; }
  [[nodiscard]] bool has_target_mask() const override { return !targets_.empty(); }
  [[nodiscard]] std::string tokenizer_fingerprint() const override { return {}; }

  void read(std::uint64_t begin, std::span<std::int32_t> out) const override {
    if (reads_left_ >= 0 && reads_left_-- == 0) QUENCH_FAIL(ErrorCode::io, "memory: reading failed on request");
    ASSERT_LE(begin + out.size(), tokens_.size());
    std::copy_n(tokens_.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
  }
  void read_target_mask(std::uint64_t begin, std::span<std::uint8_t> out) const override {
    ASSERT_LE(begin + out.size(), targets_.size());
    std::copy_n(targets_.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
  }
  void find_document_starts(std::uint64_t begin, std::span<const std::int32_t> tokens,
                            std::vector<std::uint64_t>& starts) const override {
    for (const std::uint64_t start : starts_)
      if (start > begin && start < begin + tokens.size()) starts.push_back(start);
  }

  // The read after this many fails.
  void fail_after(int reads) { reads_left_ = reads; }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint64_t> starts_;
  std::vector<std::uint8_t> targets_;
  mutable std::atomic<int> reads_left_{-1};
};

}  // namespace quench::testing
