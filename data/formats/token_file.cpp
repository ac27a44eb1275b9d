#include <algorithm>
#include <array>
#include <limits>

#include "core/system/log.h"
#include "data/formats/token_source.h"
#include "data/formats/validation_cache.h"

namespace quench {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// To int32; index of the first value outside [0, limit), or kNone. The branch-free range check vectorises; the index is
// searched on failure only.
template <class T>
std::size_t convert_ids(const T* values, std::span<std::int32_t> out, std::uint64_t limit) {
  using Wide = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  using Extended = std::conditional_t<std::is_signed_v<T>, std::make_signed_t<Wide>, Wide>;
  const auto bound = static_cast<Wide>(limit);
  unsigned outside = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto value = static_cast<Wide>(static_cast<Extended>(values[i]));
    outside |= static_cast<unsigned>(value >= bound);
    out[i] = static_cast<std::int32_t>(value);
  }
  if (outside == 0) return kNone;
  std::size_t i = 0;
  while (static_cast<Wide>(static_cast<Extended>(values[i])) < bound) ++i;
  return i;
}

class TokenFile final : public TokenSource {
 public:
  TokenFile(const TokenFormat& format, OpenTokens tokens, const TokenSourceOptions& options)
      : format_(format), file_(std::move(tokens.file)), layout_(std::move(tokens.layout)) {
    const std::string name = file_->path().string();
    QUENCH_CHECK(options.vocab_size <= kIdLimit, "{}: a vocabulary of {} does not fit 32-bit ids", name,
                 options.vocab_size);
    QUENCH_CHECK(
        options.vocab_size == 0 || layout_.vocab_size <= options.vocab_size,
        "{}: made with a tokenizer of {} entries, the model's vocabulary has {}; tokenize again with the model's "
        "tokenizer",
        name, layout_.vocab_size, options.vocab_size);
    QUENCH_CHECK(format.largest_vocab == 0 || options.vocab_size <= format.largest_vocab,
                 "{}: tokens of the format {} cannot hold a vocabulary of {}; tokenize again into a format with 32-bit "
                 "ids",
                 name, format.name, options.vocab_size);
    QUENCH_CHECK(options.tokenizer_fingerprint.empty() || layout_.tokenizer_fingerprint.empty() ||
                     options.tokenizer_fingerprint == layout_.tokenizer_fingerprint,
                 "{}: made with another tokenizer (fingerprint {}, expected {}); tokenize again, with --add-token "
                 "for each token of model.add_tokens",
                 name, layout_.tokenizer_fingerprint, options.tokenizer_fingerprint);
    limit_ = options.vocab_size != 0 ? options.vocab_size : layout_.vocab_size != 0 ? layout_.vocab_size : kIdLimit;
    limit_ = std::min(limit_, kIdLimit);
    width_ = static_cast<std::size_t>(byte_size(layout_.element));
    if (options.eos_id) layout_.eos_id = options.eos_id;
    if (options.checks != nullptr) check_all(*options.checks);
  }

  [[nodiscard]] std::uint64_t size() const override { return layout_.token_count; }

  [[nodiscard]] std::string describe() const override {
    return fmt::format("{}: {}, {}, {} tokens{}", file_->path().string(), format_.name, to_string(layout_.element),
                       layout_.token_count, layout_.mask_offset ? ", target mask" : "");
  }

  [[nodiscard]] std::uint64_t document_count() const override { return layout_.document_ends.size(); }
  [[nodiscard]] bool has_target_mask() const override { return layout_.mask_offset.has_value(); }
  [[nodiscard]] std::string tokenizer_fingerprint() const override { return layout_.tokenizer_fingerprint; }

  void read(std::uint64_t begin, std::span<std::int32_t> out) const override {
    check_range(begin, out.size());
    dispatch<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, std::uint64_t,
             std::int64_t>(layout_.element, "token file", [&]<class T>() { read_as<T>(begin, out); });
  }

  void read_target_mask(std::uint64_t begin, std::span<std::uint8_t> out) const override {
    check_range(begin, out.size());
    if (!layout_.mask_offset) {
      std::fill(out.begin(), out.end(), std::uint8_t{1});
      return;
    }
    if (layout_.mask_at_input && begin == 0 && !out.empty()) {
      out[0] = 0;  // the first token has no context
      out = out.subspan(1);
      begin = 1;
    }
    if (out.empty()) return;
    const std::uint64_t first_bit = layout_.mask_at_input ? begin - 1 : begin;
    const std::uint64_t last_bit = first_bit + out.size() - 1;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(last_bit / 8 - first_bit / 8 + 1));
    file_->read(*layout_.mask_offset + first_bit / 8, std::as_writable_bytes(std::span(bytes)));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint64_t bit = first_bit % 8 + i;
      out[i] = static_cast<std::uint8_t>((bytes[static_cast<std::size_t>(bit / 8)] >> (bit % 8)) & 1);
    }
  }

  void find_document_starts(std::uint64_t begin, std::span<const std::int32_t> tokens,
                            std::vector<std::uint64_t>& starts) const override {
    check_range(begin, tokens.size());
    if (tokens.size() < 2) return;
    const std::uint64_t end = begin + tokens.size();
    if (!layout_.document_ends.empty()) {
      const auto& ends = layout_.document_ends;
      for (auto it = std::upper_bound(ends.begin(), ends.end(), begin); it != ends.end() && *it < end; ++it)
        starts.push_back(*it);
    } else if (layout_.document_length != 0) {
      const std::uint64_t length = layout_.document_length;
      for (std::uint64_t i = begin - begin % length + length; i < end; i += length) starts.push_back(i);
    } else if (layout_.positions_offset) {
      std::vector<std::int32_t> positions(tokens.size() - 1);
      file_->read(*layout_.positions_offset + 4 * (begin + 1), std::as_writable_bytes(std::span(positions)));
      for (std::size_t i = 0; i < positions.size(); ++i)
        if (positions[i] == 0) starts.push_back(begin + 1 + i);
    } else if (layout_.eos_id) {
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
        if (tokens[i] == *layout_.eos_id) starts.push_back(begin + i + 1);
    }
  }

 private:
  static constexpr std::uint64_t kIdLimit = std::uint64_t{1} << 31;
  static constexpr std::uint64_t kLargeFile = std::uint64_t{1} << 30;  // validation takes a second or more

  void check_range(std::uint64_t begin, std::size_t count) const {
    QUENCH_CHECK(begin <= layout_.token_count && count <= layout_.token_count - begin,
                 "{}: tokens {} to {} asked for, the file has {}", file_->path().string(), begin, begin + count,
                 layout_.token_count);
  }

  void check_all(ValidationCache& checks) const {
    const std::string format(format_.name);
    const auto known = checks.tokens(*file_);
    if (known && known->format == format && known->id_bound <= limit_) return;
    if (file_->size() >= kLargeFile)
      QUENCH_LOG_INFO("{}: checking all tokens, once ({:.1f} GiB)", file_->path().string(),
                      static_cast<double>(file_->size()) / (1 << 30));
    if (format_.verify != nullptr) format_.verify(*file_);
    std::vector<std::int32_t> block(std::size_t{1} << 16);
    std::uint64_t bound = 0;
    for (std::uint64_t begin = 0; begin < layout_.token_count; begin += block.size()) {
      const auto ids = std::span(block).first(
          static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), layout_.token_count - begin)));
      read(begin, ids);
      bound = std::max(bound, static_cast<std::uint64_t>(*std::max_element(ids.begin(), ids.end())) + 1);
    }
    checks.set_tokens(*file_, {format, bound});
  }

  template <class T>
  void read_as(std::uint64_t begin, std::span<std::int32_t> out) const {
    std::array<T, 16384 / sizeof(T)> block;
    while (!out.empty()) {
      const std::size_t count = std::min(block.size(), out.size());
      file_->read(layout_.data_offset + begin * width_, std::as_writable_bytes(std::span(block).first(count)));
      const std::size_t bad = convert_ids(block.data(), out.first(count), limit_);
      if (bad != kNone) fail_id(begin + bad, fmt::format("{}", block[bad]));
      begin += count;
      out = out.subspan(count);
    }
  }

  [[noreturn]] void fail_id(std::uint64_t index, const std::string& id) const {
    QUENCH_FAIL(
        ErrorCode::corrupt,
        "{}: token {} has id {}, outside the vocabulary of {}; was the file made with another tokenizer, or is it "
        "of another format?",
        file_->path().string(), index, id, limit_);
  }

  const TokenFormat& format_;
  std::unique_ptr<BinaryFile> file_;
  TokenLayout layout_;
  std::uint64_t limit_ = 0;
  std::size_t width_ = 0;
};

}  // namespace

std::unique_ptr<TokenSource> open_token_file(const std::filesystem::path& path, const TokenSourceOptions& options) {
  const TokenFormat& format = options.format != nullptr ? *options.format : detect_token_format(path);
  OpenTokens tokens = format.open(path);
  return std::make_unique<TokenFile>(format, std::move(tokens), options);
}

}  // namespace quench
