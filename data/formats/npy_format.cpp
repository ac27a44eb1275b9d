#include "data/formats/npy_format.h"

#include <array>
#include <limits>
#include <vector>

namespace quench {
namespace {

constexpr std::uint32_t kMaxHeaderBytes = 1 << 16;

class Parser {
 public:
  Parser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  NpyHeader parse() {
    bool have_descr = false, have_order = false, have_shape = false, fortran = false;
    std::string_view descr;
    std::vector<std::uint64_t> shape;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !have_descr) {
        descr = quoted();
        have_descr = true;
      } else if (key == "fortran_order" && !have_order) {
        fortran = boolean();
        have_order = true;
      } else if (key == "shape" && !have_shape) {
        shape = tuple();
        have_shape = true;
      } else {
        fail("unexpected key");
      }
      if (accept('}')) break;
      expect(',');
    }
    skip_space();
    if (position_ != text_.size()) fail("text after the header dict");
    if (!have_descr || !have_order || !have_shape) fail("descr, fortran_order or shape is missing");
    return build(descr, fortran, shape);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    QUENCH_FAIL(ErrorCode::corrupt, "{}: .npy header, character {}: {}", source_, position_, what);
  }

  void skip_space() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) ++position_;
  }

  bool accept(char c) {
    skip_space();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}'", c));
  }

  std::string_view quoted() {
    skip_space();
    const char quote = position_ < text_.size() ? text_[position_] : '\0';
    // Structured dtypes are lists.
    QUENCH_CHECK_AS(ErrorCode::unsupported, quote != '[', "{}: structured .npy arrays are not token ids", source_);
    if (quote != '\'' && quote != '"') fail("expected a string");
    const std::size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) fail("unterminated string");
    const std::string_view result = text_.substr(position_ + 1, end - position_ - 1);
    position_ = end + 1;
    return result;
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(position_, word.size()) != word) continue;
      position_ += word.size();
      return word == "True";
    }
    fail("expected True or False");
  }

  std::uint64_t integer() {
    skip_space();
    std::uint64_t value = 0;
    const std::size_t start = position_;
    for (; position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9'; ++position_) {
      const auto digit = static_cast<std::uint64_t>(text_[position_] - '0');
      if (value > (std::numeric_limits<std::uint64_t>::max() - digit) / 10) fail("number too large");
      value = value * 10 + digit;
    }
    if (position_ == start) fail("expected a number");
    return value;
  }

  std::vector<std::uint64_t> tuple() {
    std::vector<std::uint64_t> result;
    expect('(');
    while (!accept(')')) {
      if (result.size() == 32) fail("more than 32 dimensions");
      result.push_back(integer());
      if (accept(')')) break;
      expect(',');
    }
    return result;
  }

  NpyHeader build(std::string_view descr, bool fortran, const std::vector<std::uint64_t>& shape) const {
    QUENCH_CHECK_AS(ErrorCode::unsupported, descr.size() < 2 || descr[0] != '>',
                    "{}: big-endian array ('{}'); store it little-endian: array.astype('<i4')", source_, descr);
    constexpr std::array<std::pair<std::string_view, DType>, 8> kTypes = {{{"u1", DType::u8},
                                                                           {"i1", DType::i8},
                                                                           {"u2", DType::u16},
                                                                           {"i2", DType::i16},
                                                                           {"u4", DType::u32},
                                                                           {"i4", DType::i32},
                                                                           {"u8", DType::u64},
                                                                           {"i8", DType::i64}}};
    NpyHeader header;
    const DType* element = nullptr;
    if (descr.size() == 3 && (descr[0] == '<' || (descr[0] == '|' && descr[2] == '1')))
      for (const auto& [name, dtype] : kTypes)
        if (name == descr.substr(1)) element = &dtype;
    QUENCH_CHECK_AS(ErrorCode::unsupported, element != nullptr,
                    "{}: array of type '{}'; token ids are integers of 1 to 8 bytes", source_, descr);
    header.element = *element;
    QUENCH_CHECK_AS(ErrorCode::unsupported, shape.size() == 1 || shape.size() == 2,
                    "{}: array of {} dimensions; token arrays have 1 or 2", source_, shape.size());
    header.two_dimensional = shape.size() == 2;
    QUENCH_CHECK_AS(ErrorCode::unsupported, !fortran || !header.two_dimensional,
                    "{}: 2-D array in Fortran order; store it with numpy.ascontiguousarray", source_);
    header.rows = header.two_dimensional ? shape[0] : 1;
    header.columns = shape.back();
    return header;
  }

  std::string_view text_;
  std::string_view source_;
  std::size_t position_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, std::string_view source) {
  return Parser(text, source).parse();
}

TokenLayout read_npy_layout(const BinaryFile& file) {
  const std::string name = file.path().string();
  QUENCH_CHECK_AS(ErrorCode::corrupt, file.size() >= 10, "{}: {} bytes is too small for an .npy file", name,
                  file.size());
  std::array<char, 6> magic{};
  file.read(0, std::as_writable_bytes(std::span(magic)));
  QUENCH_CHECK_AS(ErrorCode::corrupt, std::string_view(magic.data(), magic.size()) == "\x93NUMPY",
                  "{}: does not start with \\x93NUMPY", name);
  const auto major = file.value<std::uint8_t>(6);
  QUENCH_CHECK_AS(ErrorCode::unsupported, major >= 1 && major <= 3, "{}: .npy version {}; 1 to 3 are read", name,
                  major);
  const std::uint64_t text_offset = major == 1 ? 10 : 12;
  const std::uint32_t length = major == 1 ? file.value<std::uint16_t>(8) : file.value<std::uint32_t>(8);
  QUENCH_CHECK_AS(ErrorCode::corrupt, length <= kMaxHeaderBytes && text_offset + length <= file.size(),
                  "{}: .npy header of {} bytes in a file of {}", name, length, file.size());
  std::string text(length, '\0');
  file.read(text_offset, std::as_writable_bytes(std::span(text)));
  const NpyHeader header = parse_npy_header(text, name);

  TokenLayout layout;
  layout.element = header.element;
  layout.data_offset = text_offset + length;
  const std::uint64_t body = file.size() - layout.data_offset;
  const std::uint64_t width = static_cast<std::uint64_t>(byte_size(header.element));
  QUENCH_CHECK_AS(ErrorCode::corrupt, header.rows > 0 && header.columns > 0,
                  "{}: array of shape ({}, {}) holds no tokens", name, header.rows, header.columns);
  QUENCH_CHECK_AS(
      ErrorCode::corrupt,
      body % width == 0 && (body / width) % header.rows == 0 && (body / width) / header.rows == header.columns,
      "{}: {} x {} values of {} bytes do not match the {} bytes after the header", name, header.rows, header.columns,
      width, body);
  layout.token_count = body / width;
  if (header.two_dimensional) layout.document_length = header.columns;
  return layout;
}

}  // namespace quench
