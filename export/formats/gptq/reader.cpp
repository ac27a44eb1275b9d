#include "export/formats/gptq/reader.h"

#include <algorithm>

#include "core/json/json_member.h"
#include "core/system/log_once.h"
#include "export/formats/packed_words/bit_packing.h"
#include "export/formats/packed_words/word_weights.h"

namespace quench {
namespace {

constexpr int kWordBits = 32;

std::int64_t words_of(std::int64_t codes, int bits) {
  return (codes * bits + kWordBits - 1) / kWordBits;
}

bool is_supported(std::int64_t bits) {
  return bits == 2 || bits == 3 || bits == 4 || bits == 8;
}

// Words [W, N], a bit stream down every column, to codes i8 [N, length] less 2^(bits - 1).
Tensor unpack_columns(const Tensor& words, int bits, std::int64_t length) {
  const std::int64_t rows = words.size(0), columns = words.size(1);
  const Tensor codes = Tensor::empty({columns, length}, DType::i8);
  const auto* in = reinterpret_cast<const std::uint32_t*>(words.data<std::int32_t>());
  auto* out = codes.data<std::int8_t>();
  const std::uint64_t mask = (1u << bits) - 1;
  const int middle = 1 << (bits - 1);
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < columns; ++n)
    for (std::int64_t k = 0; k < length; ++k) {
      const std::int64_t bit = k * bits, word = bit / kWordBits, shift = bit % kWordBits;
      std::uint64_t both = in[word * columns + n];
      if (shift + bits > kWordBits && word + 1 < rows)
        both |= static_cast<std::uint64_t>(in[(word + 1) * columns + n]) << kWordBits;
      out[n * length + k] = static_cast<std::int8_t>(static_cast<int>(both >> shift & mask) - middle);
    }
  return codes;
}

// Undoes "less 1". Of bits that divide a word, writers subtract from whole words, where a zero point of 0 borrows from
// its neighbour; of 3 bits from each.
void add_one(const Tensor& words, int bits) {
  if (kWordBits % bits != 0) return;
  std::uint32_t ones = 0;
  for (int shift = 0; shift < kWordBits; shift += bits) ones |= 1u << shift;
  auto* word = reinterpret_cast<std::uint32_t*>(words.data<std::int32_t>());
  for (std::int64_t i = 0; i < words.numel(); ++i) word[i] += ones;
}

void add_one_to_each(const Tensor& zeros, int bits) {
  if (kWordBits % bits == 0) return;
  const IntRange range = int_range(bits);
  auto* zero = zeros.data<std::int8_t>();
  for (std::int64_t i = 0; i < zeros.numel(); ++i)
    zero[i] = static_cast<std::int8_t>(zero[i] == range.highest ? range.lowest : zero[i] + 1);
}

class GptqWeights final : public WordWeights {
 public:
  GptqWeights(const std::filesystem::path& folder, const Json& quantization) : WordWeights(folder) {
    const std::string source = (folder / "config.json").string();
    bits_ = quantization_integer(folder, quantization, "bits");
    group_ = quantization_integer(folder, quantization, "group_size");
    QUENCH_CHECK_AS(ErrorCode::unsupported, is_supported(bits_),
                    "{}: {}.bits is {}; GPTQ of 2, 3, 4 and 8 bits is read", source, kQuantizationConfig, bits_);
    QUENCH_CHECK_AS(ErrorCode::unsupported, group_ == -1 || (group_ > 0 && group_ <= kMostGroup),
                    "{}: {}.group_size is {}; expected a positive number, or -1 for rows", source, kQuantizationConfig,
                    group_);
    const Json* order = quantization.find("desc_act");
    act_order_ = order != nullptr && *order == Json(true);
    const Json* rules = quantization.find("dynamic");
    by_layer_ = rules != nullptr && rules->is_object() && !rules->as_object().empty();
    read_format(quantization, source);
    int dense = 0;
    add_layers([&](const std::string& layer) {
      WordLayer form = describe(layer);
      dense += form.packed ? 0 : 1;
      return form;
    });
    if (dense > 0)
      QUENCH_LOG_INFO_ONCE("{}: {} layers, with groups in act-order (g_idx), are dequantized when they are read",
                           folder.string(), dense);
  }

 private:
  void read_format(const Json& quantization, const std::string& source) {
    std::string format = find_text(quantization, {"checkpoint_format"});
    if (format.empty()) format = find_text(quantization, {"format"});
    const Json* marlin = quantization.find("is_marlin_format");
    if (marlin != nullptr && *marlin == Json(true)) format = "marlin";
    QUENCH_CHECK_AS(ErrorCode::unsupported, format.empty() || format == "gptq" || format == "gptq_v2",
                    "{}: {}.checkpoint_format is '{}'; gptq and gptq_v2 are read", source, kQuantizationConfig, format);
    less_one_ = format != "gptq_v2";
    const std::string words = find_text(quantization, {"pack_dtype"});
    QUENCH_CHECK_AS(ErrorCode::unsupported, words.empty() || words == "int32",
                    "{}: {}.pack_dtype is '{}'; int32 is read", source, kQuantizationConfig, words);
  }

  [[nodiscard]] WordLayer describe(const std::string& layer) const {
    const Location codes = words(layer, ".qweight"), scale = scales(layer);
    const auto index = part(layer, ".g_idx");
    QUENCH_CHECK_AS(ErrorCode::corrupt, index || !act_order_, "{}.g_idx is missing, which desc_act needs",
                    named(layer));
    const std::int64_t height = codes.entry->shape[0], groups = scale.entry->shape[0];
    WordLayer form{.rows = codes.entry->shape[1], .bits = static_cast<int>(bits_)};
    form.columns = index ? words(layer, ".g_idx").entry->shape[0] : height * kWordBits / form.bits;
    QUENCH_CHECK_AS(ErrorCode::corrupt, form.rows > 0 && form.columns > 0 && groups > 0, "{} is empty", named(layer));
    // Rules of `dynamic` give layers other bits and groups, which their shapes tell.
    if (by_layer_ && height * kWordBits % form.columns == 0 && is_supported(height * kWordBits / form.columns))
      form.bits = static_cast<int>(height * kWordBits / form.columns);
    const std::string reason = fmt::format("{} inputs of {} bits", form.columns, form.bits);
    require_shape(codes, {words_of(form.columns, form.bits), form.rows}, reason);
    form.group = group_ == -1 ? form.columns : group_;
    if (by_layer_ && form.groups() != groups && form.columns % groups == 0) form.group = form.columns / groups;
    require_shape(scale, {form.groups(), form.rows},
                  fmt::format("{} inputs in groups of {}", form.columns, form.group));
    require_shape(words(layer, ".qzeros"), {groups, words_of(form.rows, form.bits)},
                  fmt::format("{} groups of {} outputs", groups, form.rows));
    if (index) read_order(form, *index);
    const bool pairs = form.bits > 4 || (form.columns % 2 == 0 && (groups == 1 || form.group % 2 == 0));
    form.packed = form.group_of.empty() && pairs;
    return form;
  }

  // Sets the groups of columns, unless they lie in order.
  void read_order(WordLayer& form, const Location& index) const {
    const Tensor order = read_whole(index, {form.columns}, DType::i32);
    const std::span<const std::int32_t> groups(order.data<std::int32_t>(), static_cast<std::size_t>(form.columns));
    const auto outside = std::ranges::find_if(groups, [&](std::int32_t g) { return g < 0 || g >= form.groups(); });
    QUENCH_CHECK_AS(ErrorCode::corrupt, outside == groups.end(), "{} holds group {}, expected 0 to {}",
                    named(index.entry->name), *outside, form.groups() - 1);
    for (std::int64_t k = 0; k < form.columns; ++k)
      if (groups[static_cast<std::size_t>(k)] != k / form.group) {
        form.group_of.assign(groups.begin(), groups.end());
        return;
      }
  }

  [[nodiscard]] WordValues values_of(const std::string& layer, const WordLayer& form) const override {
    const Location codes = words(layer, ".qweight"), zero = words(layer, ".qzeros"), scale = scales(layer);
    const Tensor stored = read_whole(codes, codes.entry->shape, DType::i32);
    const Tensor zero_words = read_whole(zero, zero.entry->shape, DType::i32);
    if (less_one_) add_one(zero_words, form.bits);
    const Tensor zeros = unpack_rows(zero_words, form.bits, form.rows);
    if (less_one_) add_one_to_each(zeros, form.bits);
    return {unpack_columns(stored, form.bits, form.columns), transposed(zeros),
            transposed(read_whole(scale, scale.entry->shape, *scale.entry->dtype))};
  }

  std::int64_t bits_ = 0, group_ = 0;
  bool act_order_ = false, by_layer_ = false, less_one_ = true;
};

}  // namespace

std::unique_ptr<StoredWeights> open_gptq(const std::filesystem::path& folder, const Json& quantization) {
  return std::make_unique<GptqWeights>(folder, quantization);
}

}  // namespace quench
