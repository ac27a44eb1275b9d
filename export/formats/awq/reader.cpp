#include "export/formats/awq/reader.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/json/json_member.h"
#include "export/formats/packed_words/bit_packing.h"
#include "export/formats/packed_words/word_weights.h"

namespace quench {
namespace {

constexpr int kBits = 4;
constexpr std::int64_t kPerWord = 32 / kBits;
// Shift of output i of a word.
constexpr std::array<int, kPerWord> kShifts = {0, 16, 4, 20, 8, 24, 12, 28};

// Words [R, C / 8] to codes i8 [C, R], less 8.
Tensor unpack_interleaved(const Tensor& words) {
  const std::int64_t rows = words.size(0), width = words.size(1);
  const Tensor codes = Tensor::empty({width * kPerWord, rows}, DType::i8);
  const auto* in = reinterpret_cast<const std::uint32_t*>(words.data<std::int32_t>());
  auto* out = codes.data<std::int8_t>();
#pragma omp parallel for schedule(static)
  for (std::int64_t c = 0; c < width; ++c)
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::uint32_t word = in[r * width + c];
      for (std::int64_t i = 0; i < kPerWord; ++i)
        out[(c * kPerWord + i) * rows + r] =
            static_cast<std::int8_t>(static_cast<int>(word >> kShifts[static_cast<std::size_t>(i)] & 15u) - 8);
    }
  return codes;
}

// Columns before `count`.
template <class T>
Tensor first_columns(const Tensor& matrix, std::int64_t count) {
  const Tensor out = Tensor::empty({matrix.size(0), count}, matrix.dtype());
  const auto* in = static_cast<const T*>(matrix.raw_data());
  for (std::int64_t r = 0; r < matrix.size(0); ++r)
    std::copy_n(in + r * matrix.size(1), count, static_cast<T*>(out.raw_data()) + r * count);
  return out;
}

class AwqWeights final : public WordWeights {
 public:
  AwqWeights(const std::filesystem::path& folder, const Json& quantization) : WordWeights(folder) {
    const std::string source = (folder / "config.json").string();
    const std::int64_t bits = quantization_integer(folder, quantization, "bits", "w_bit");
    QUENCH_CHECK_AS(ErrorCode::unsupported, bits == kBits, "{}: {}.bits is {}; AWQ of 4 bits is read", source,
                    kQuantizationConfig, bits);
    group_ = quantization_integer(folder, quantization, "group_size", "q_group_size");
    QUENCH_CHECK_AS(ErrorCode::unsupported, group_ == -1 || (group_ > 0 && group_ <= kMostGroup),
                    "{}: {}.group_size is {}; expected a positive number, or -1 for rows", source, kQuantizationConfig,
                    group_);
    std::string version = find_text(quantization, {"version"});
    for (const std::string_view key : {"checkpoint_format", "format"})
      if (version.empty()) version = find_text(quantization, {key});
    std::ranges::transform(version, version.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    QUENCH_CHECK_AS(ErrorCode::unsupported, version.empty() || version == "gemm" || version == "gemv",
                    "{}: {}.version is '{}'; gemm and gemv are read", source, kQuantizationConfig, version);
    by_rows_ = version == "gemv";
    add_layers([this](const std::string& layer) { return describe(layer); });
  }

 private:
  [[nodiscard]] WordLayer describe(const std::string& layer) const {
    const Location codes = words(layer, ".qweight"), zeros = words(layer, ".qzeros"), scale = scales(layer);
    const Shape& shape = codes.entry->shape;
    WordLayer form{.rows = by_rows_ ? shape[0] : shape[1] * kPerWord,
                   .columns = by_rows_ ? shape[1] * kPerWord : shape[0],
                   .bits = kBits};
    QUENCH_CHECK_AS(ErrorCode::corrupt, form.rows > 0 && form.columns > 0, "{} is empty", named(layer));
    form.group = group_ == -1 ? form.columns : group_;
    QUENCH_CHECK_AS(
        ErrorCode::corrupt,
        form.columns % form.group == 0 && form.columns % 2 == 0 && (form.group % 2 == 0 || form.groups() == 1),
        "{}: group_size {} does not divide its {} inputs in even groups", named(layer), form.group, form.columns);
    const std::string reason = fmt::format("{} inputs in groups of {}", form.columns, form.group);
    if (!by_rows_) {
      require_shape(zeros, {form.groups(), shape[1]}, reason);
      require_shape(scale, {form.groups(), form.rows}, reason);
      return form;
    }
    const std::int64_t width = zeros.entry->shape[1];
    QUENCH_CHECK_AS(ErrorCode::corrupt, zeros.entry->shape[0] == form.rows && width * kPerWord >= form.groups(),
                    "{}.qzeros has shape {}, expected words of {} groups for {} rows", named(layer),
                    zeros.entry->shape.to_string(), form.groups(), form.rows);
    require_shape(scale, {form.rows, width * kPerWord}, reason);
    return form;
  }

  [[nodiscard]] WordValues values_of(const std::string& layer, const WordLayer& form) const override {
    const Location codes = words(layer, ".qweight"), zero = words(layer, ".qzeros"), scale = scales(layer);
    const Tensor words = read_whole(codes, codes.entry->shape, DType::i32);
    const Tensor zeros = read_whole(zero, zero.entry->shape, DType::i32);
    const Tensor factors = read_whole(scale, scale.entry->shape, *scale.entry->dtype);
    if (!by_rows_) return {unpack_interleaved(words), unpack_interleaved(zeros), transposed(factors)};
    const Tensor used = byte_size(factors.dtype()) == 2 ? first_columns<std::uint16_t>(factors, form.groups())
                                                        : first_columns<std::uint32_t>(factors, form.groups());
    const Tensor all = unpack_rows(zeros, kBits, zeros.size(1) * kPerWord);
    return {unpack_rows(words, kBits, form.columns), first_columns<std::int8_t>(all, form.groups()), used};
  }

  std::int64_t group_ = 0;
  bool by_rows_ = false;  // gemv
};

}  // namespace

std::unique_ptr<StoredWeights> open_awq(const std::filesystem::path& folder, const Json& quantization) {
  return std::make_unique<AwqWeights>(folder, quantization);
}

}  // namespace quench
