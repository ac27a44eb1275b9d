#include "export/formats/packed_words/bit_packing.h"

namespace quench {
namespace {

std::int64_t words_of(std::int64_t elements, int bits) {
  return (elements * bits + 31) / 32;
}

// Bit stream with a word stride of `stride`.
struct BitStream {
  std::uint32_t* words;
  std::int64_t stride;
  int bits;

  void put(std::int64_t i, int value) const {
    const auto code = static_cast<std::uint64_t>(value + (1 << (bits - 1))) & ((1u << bits) - 1u);
    const std::int64_t bit = i * bits, word = bit / 32, shift = bit % 32;
    const std::uint64_t spread = code << shift;
    words[word * stride] |= static_cast<std::uint32_t>(spread);
    if (shift + bits > 32) words[(word + 1) * stride] |= static_cast<std::uint32_t>(spread >> 32);
  }
  [[nodiscard]] int get(std::int64_t i) const {
    const std::int64_t bit = i * bits, word = bit / 32, shift = bit % 32;
    std::uint64_t both = words[word * stride];
    if (shift + bits > 32) both |= static_cast<std::uint64_t>(words[(word + 1) * stride]) << 32;
    return static_cast<int>(both >> shift & ((1u << bits) - 1u)) - (1 << (bits - 1));
  }
};

std::uint32_t* words_at(const Tensor& tensor, std::int64_t offset) {
  return reinterpret_cast<std::uint32_t*>(tensor.data<std::int32_t>()) + offset;
}

}  // namespace

Tensor pack_rows(const Tensor& codes, int bits) {
  const std::int64_t rows = codes.size(0), columns = codes.size(1), width = words_of(columns, bits);
  const Tensor words = Tensor::zeros({rows, width}, DType::i32);
  const auto* in = codes.data<std::int8_t>();
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    const BitStream stream{words_at(words, row * width), 1, bits};
    for (std::int64_t i = 0; i < columns; ++i) stream.put(i, in[row * columns + i]);
  }
  return words;
}

Tensor unpack_rows(const Tensor& words, int bits, std::int64_t columns) {
  const std::int64_t rows = words.size(0), width = words.size(1);
  check_tensor("unpack_rows", "words", words, {-1, words_of(columns, bits)}, DType::i32);
  const Tensor codes = Tensor::empty({rows, columns}, DType::i8);
  auto* out = codes.data<std::int8_t>();
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    const BitStream stream{words_at(words, row * width), 1, bits};
    for (std::int64_t i = 0; i < columns; ++i) out[row * columns + i] = static_cast<std::int8_t>(stream.get(i));
  }
  return codes;
}

Tensor pack_zero_points(const Tensor& zero_points, int bits) {
  const std::int64_t rows = zero_points.size(0), groups = zero_points.size(1);
  const Tensor words = Tensor::zeros({words_of(rows, bits), groups}, DType::i32);
  for (std::int64_t g = 0; g < groups; ++g) {
    const BitStream stream{words_at(words, g), groups, bits};
    for (std::int64_t row = 0; row < rows; ++row)
      stream.put(row, static_cast<int>(zero_points.data<float>()[row * groups + g]));
  }
  return words;
}

Tensor unpack_zero_points(const Tensor& words, int bits, std::int64_t rows) {
  const std::int64_t groups = words.size(1);
  check_tensor("unpack_zero_points", "words", words, {words_of(rows, bits), -1}, DType::i32);
  const Tensor zero_points = Tensor::empty({rows, groups}, DType::f32);
  for (std::int64_t g = 0; g < groups; ++g) {
    const BitStream stream{words_at(words, g), groups, bits};
    for (std::int64_t row = 0; row < rows; ++row)
      zero_points.data<float>()[row * groups + g] = static_cast<float>(stream.get(row));
  }
  return zero_points;
}

}  // namespace quench
