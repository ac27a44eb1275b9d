#include "export/formats/packed_words/word_weights.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace quench {
namespace {

constexpr std::string_view kWords = ".qweight", kLayerWeight = ".weight", kLayerBias = ".bias";
constexpr std::array<std::string_view, 3> kWordParts = {".qzeros", ".scales", ".g_idx"};

template <class T>
void transpose_into(const Tensor& from, const Tensor& to) {
  const auto* in = static_cast<const T*>(from.raw_data());
  auto* out = static_cast<T*>(to.raw_data());
  const std::int64_t rows = from.size(0), columns = from.size(1);
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < rows; ++r) out[c * rows + r] = in[r * columns + c];
}

// Rows from `first` on, in f32. False for a scale or value that is not finite.
bool decode_rows(const WordValues& values, const WordLayer& layer, std::int64_t first, const Tensor& out) {
  const std::int64_t columns = layer.columns, groups = values.scales.size(1), rows = out.size(0);
  const auto* codes = values.codes.data<std::int8_t>();
  const auto* zeros = values.zeros.data<std::int8_t>();
  auto* to = out.data<float>();
  bool finite = true;
  dispatch<float, bfloat16, float16>(values.scales.dtype(), "scales", [&]<class S>() {
    const S* scales = values.scales.data<S>();
#pragma omp parallel for schedule(static) reduction(&& : finite)
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t row = first + r;
      for (std::int64_t k = 0; k < columns; ++k) {
        const std::int64_t g =
            row * groups + (layer.group_of.empty() ? k / layer.group : layer.group_of[static_cast<std::size_t>(k)]);
        const float value = static_cast<float>(codes[row * columns + k] - zeros[g]) * static_cast<float>(scales[g]);
        finite = finite && std::isfinite(value);
        to[r * columns + k] = value;
      }
    }
  });
  return finite;
}

std::string layer_with(std::string_view weight) {
  return std::string(weight.substr(0, weight.size() - kLayerWeight.size()));
}

}  // namespace

std::optional<StoredTensor> WordWeights::find(std::string_view name) const {
  const auto found = layers_.find(name);
  if (found == layers_.end()) return SafetensorsWeights::find(name);
  const WordLayer& layer = found->second;
  const Shape shape{layer.rows, layer.columns};
  return layer.packed ? StoredTensor{shape, true, "packed", {}} : StoredTensor{shape, false, "int32 words", DType::f32};
}

void WordWeights::read(std::string_view name, const Tensor& out, std::int64_t first_row) const {
  const auto found = layers_.find(name);
  if (found == layers_.end()) return SafetensorsWeights::read(name, out, first_row);
  const WordLayer& layer = found->second;
  QUENCH_CHECK(out.dtype() == DType::f32 && out.size(1) == layer.columns && first_row + out.size(0) <= layer.rows,
               "{} read as {}", name, out.describe());
  const std::scoped_lock lock(mutex_);
  const MemoryScope scope(MemoryCategory::workspace);
  if (current_ != name) {
    current_.clear();
    values_ = values_of(layer_with(name), layer);
    current_ = name;
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, decode_rows(values_, layer, first_row, out),
                  "{}.scales: a scale is not finite, or overflows", named(layer_with(name)));
  if (first_row + out.size(0) < layer.rows) return;
  current_.clear();
  values_ = {};
}

PackedMatrix WordWeights::read_packed(std::string_view name) const {
  const auto found = layers_.find(name);
  if (found == layers_.end() || !found->second.packed) return SafetensorsWeights::read_packed(name);
  const WordLayer& layer = found->second;
  const MemoryScope scope(MemoryCategory::workspace);
  const WordValues values = values_of(layer_with(name), layer);
  const bool grouped = layer.groups() > 1;
  QuantizedWeight weight{.scheme = {.bits = layer.bits,
                                    .sharing = grouped ? ScaleSharing::group : ScaleSharing::row,
                                    .group_size = grouped ? layer.group : 0},
                         .shape = {layer.rows, layer.columns},
                         .codes = values.codes,
                         .scales = values.scales};
  const auto* zeros = values.zeros.data<std::int8_t>();
  if (std::any_of(zeros, zeros + values.zeros.numel(), [](int zero) { return zero != 0; })) {
    weight.scheme.mapping = IntMapping::asymmetric;
    weight.zero_points = zero_points_of(values.zeros, values.zeros.shape());
  }
  return pack(weight, named(name));
}

void WordWeights::add_layers(const std::function<WordLayer(const std::string& layer)>& describe) {
  for (const std::string& name : files().names()) {
    if (!name.ends_with(kWords)) continue;
    const std::string layer = name.substr(0, name.size() - kWords.size()), weight = layer + std::string(kLayerWeight);
    QUENCH_CHECK_AS(ErrorCode::corrupt, !files().find(weight), "{} is stored next to {}", named(weight), name);
    layers_.emplace(weight, describe(layer));
  }
  for (std::string& name : files().names()) {
    const std::size_t dot = name.rfind('.');
    const std::string layer = name.substr(0, dot);
    if (dot == std::string::npos || !layers_.contains(layer + std::string(kLayerWeight)))
      names_.push_back(std::move(name));
    else if (name.ends_with(kWords))
      names_.push_back(layer + std::string(kLayerWeight));
    else if (std::ranges::find(kWordParts, std::string_view(name).substr(dot)) == kWordParts.end() &&
             !is_zero_bias(name))
      names_.push_back(std::move(name));
  }
}

bool WordWeights::is_zero_bias(const std::string& name) const {
  if (!name.ends_with(kLayerBias)) return false;
  const Location bias = files().at(name);
  std::vector<std::byte> bytes(bias.entry->nbytes());
  bias.read(bytes);
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

SafetensorsWeights::Location WordWeights::words(std::string_view layer, std::string_view suffix) const {
  const Location stored = required(layer, suffix);
  const int rank = suffix == ".g_idx" ? 1 : 2;
  QUENCH_CHECK_AS(ErrorCode::corrupt, stored.entry->dtype == DType::i32 && stored.entry->shape.rank() == rank,
                  "{}{} is {}{}, expected I32 of rank {}", named(layer), suffix, stored.entry->dtype_name,
                  stored.entry->shape.to_string(), rank);
  return stored;
}

SafetensorsWeights::Location WordWeights::scales(std::string_view layer) const {
  const Location stored = required(layer, ".scales");
  const auto dtype = stored.entry->dtype;
  QUENCH_CHECK_AS(
      ErrorCode::corrupt,
      (dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16) && stored.entry->shape.rank() == 2,
      "{}.scales is {}{}, expected a matrix of F32, BF16 or F16", named(layer), stored.entry->dtype_name,
      stored.entry->shape.to_string());
  return stored;
}

void WordWeights::require_shape(const Location& stored, const Shape& shape, std::string_view reason) const {
  QUENCH_CHECK_AS(ErrorCode::corrupt, stored.entry->shape == shape, "{} has shape {}, expected {} for {}",
                  named(stored.entry->name), stored.entry->shape.to_string(), shape.to_string(), reason);
}

Tensor transposed(const Tensor& matrix) {
  const Tensor out = Tensor::empty({matrix.size(1), matrix.size(0)}, matrix.dtype());
  switch (byte_size(matrix.dtype())) {
    case 1: transpose_into<std::uint8_t>(matrix, out); break;
    case 2: transpose_into<std::uint16_t>(matrix, out); break;
    default: transpose_into<std::uint32_t>(matrix, out);
  }
  return out;
}

std::int64_t quantization_integer(const std::filesystem::path& folder, const Json& quantization, std::string_view key,
                                  std::string_view alias) {
  const Json* value = quantization.find(key);
  if (value == nullptr && !alias.empty()) value = quantization.find(alias);
  QUENCH_CHECK_AS(ErrorCode::unsupported, value != nullptr && value->is_integer(),
                  "{}: {}.{} is {}, expected an integer", (folder / "config.json").string(), kQuantizationConfig, key,
                  value == nullptr ? "missing" : value->dump());
  return value->as_int();
}

}  // namespace quench
