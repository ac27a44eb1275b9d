#pragma once
// Token files, or other sources, in the given order. The end of each ends a document.

#include <memory>
#include <string>
#include <vector>

#include "data/formats/token_source.h"

namespace quench {

// glob(7) patterns (* ? [...] {a,b}), matches in byte order. Existing paths and patterns without wildcards are literal.
// Throws not_found for a pattern without matches, bad_config for an empty list, a folder, or a duplicate file.
[[nodiscard]] std::vector<std::filesystem::path> expand_file_patterns(const std::vector<std::string>& patterns);

class TokenStream final : public TokenSource {
 public:
  // Nonempty. Throws invalid_argument for different tokenizers.
  explicit TokenStream(std::vector<std::shared_ptr<const TokenSource>> sources);

  // A Megatron-LM pair is opened once.
  static std::unique_ptr<TokenStream> open(const std::vector<std::string>& patterns,
                                           const TokenSourceOptions& options = {});

  [[nodiscard]] std::uint64_t size() const override { return starts_.back(); }
  [[nodiscard]] std::string describe() const override;  // one line per file
  [[nodiscard]] std::uint64_t document_count() const override;
  [[nodiscard]] bool has_target_mask() const override;
  [[nodiscard]] std::string tokenizer_fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::size_t file_count() const noexcept { return sources_.size(); }

  void read(std::uint64_t begin, std::span<std::int32_t> out) const override;
  void read_target_mask(std::uint64_t begin, std::span<std::uint8_t> out) const override;
  void find_document_starts(std::uint64_t begin, std::span<const std::int32_t> tokens,
                            std::vector<std::uint64_t>& starts) const override;

 private:
  // visit(source, first token in the source, first token in the range, count) per file.
  template <class Visit>
  void for_each_part(std::uint64_t begin, std::uint64_t count, Visit visit) const;

  std::vector<std::shared_ptr<const TokenSource>> sources_;
  std::vector<std::uint64_t> starts_;  // offsets of sources, then the total
  std::string fingerprint_;
};

}  // namespace quench
