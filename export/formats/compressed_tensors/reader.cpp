#include "export/formats/compressed_tensors/reader.h"

#include <algorithm>
#include <array>

#include "core/safetensors/safetensors_folder.h"
#include "export/formats/cache_scales.h"
#include "export/formats/compressed_tensors/bit_packing.h"
#include "export/formats/compressed_tensors/config.h"
#include "export/formats/input_scales.h"
#include "export/formats/safetensors_rows.h"
#include "export/schemes/layer_pattern.h"
#include "export/schemes/quantized_weight.h"

namespace quench {
namespace {

constexpr std::string_view kWeight = ".weight";
// Suffixes of a weight's tensors.
constexpr std::array<std::string_view, 6> kParts = {"_packed",     "_scale",        "_shape",
                                                    "_zero_point", "_global_scale", "_g_idx"};
// Static input quantization.
constexpr std::string_view kInputScale = ".input_scale", kInputGlobalScale = ".input_global_scale";
constexpr std::array kInputParts = {kInputScale, std::string_view(".input_zero_point"), kInputGlobalScale};

// Weight of a part, as "....weight" for "model.layers.0.mlp.up_proj.weight_scale"; "" for other names.
std::string weight_of(std::string_view name) {
  for (const std::string_view part : kParts)
    if (name.ends_with(part) && name.substr(0, name.size() - part.size()).ends_with(kWeight))
      return std::string(name.substr(0, name.size() - part.size()));
  return {};
}

bool is_scale_dtype(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

bool is_input_part(std::string_view name) {
  return std::ranges::any_of(kInputParts, [&](std::string_view part) { return name.ends_with(part); });
}

class CompressedWeights final : public StoredWeights {
 public:
  CompressedWeights(const std::filesystem::path& folder, const Json& quantization)
      : files_(folder),
        groups_(read_compressed_config(quantization, (folder / "config.json").string())),
        quantized_cache_(has_kv_cache_scheme(quantization)) {
    for (const CompressedGroup& group : groups_)
      for (const std::string& target : group.targets) {
        // The last group of a target takes precedence.
        std::erase_if(targets_, [&](const Target& known) { return known.pattern.text() == target; });
        targets_.push_back({LayerPattern(target), &group});
      }
    std::ranges::sort(targets_, [](const Target& a, const Target& b) { return a.pattern.goes_before(b.pattern); });
    warn_of_inputs_without_scale();
  }

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (std::string& name : files_.names()) {
      if (is_input_part(name) || (quantized_cache_ && is_cache_scale(name))) continue;
      const std::string weight = weight_of(name);
      if (weight.empty())
        names.push_back(std::move(name));
      else if (!files_.find(weight) && (names.empty() || names.back() != weight))
        names.push_back(weight);
    }
    return names;
  }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    if (part(name, "_packed") || part(name, "_scale")) return StoredTensor{packed_shape(name), true, "packed", {}};
    const auto found = files_.find(name);
    if (!found) return std::nullopt;
    return StoredTensor{found->entry->shape, false, found->entry->dtype_name, found->entry->dtype};
  }

  void read(std::string_view name, const Tensor& out, std::int64_t first_row) const override {
    read_rows(files_.at(name), out, first_row);
  }

  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    const CompressedGroup& group = group_of(name);
    const Shape shape = packed_shape(name);
    const std::string problem = shape_problem(group.weights, shape[0], shape[1], group.inputs);
    QUENCH_CHECK_AS(ErrorCode::corrupt, problem.empty(), "{}: {} contradicts the quantization config: {}",
                    files_.path().string(), name, problem);
    QuantizedWeight weight{.scheme = group.weights, .shape = shape};
    read_codes(weight, group.form, name);
    read_scales(weight, name);
    if (!group.weights.symmetric()) read_zero_points(weight, group.form, name);
    if (group.form == CompressedForm::nvfp4) {
      const float factor = read_tensor(name, "_global_scale", DType::f32, {1}).data<float>()[0];
      weight.global_scale = Tensor::from_values<float>({1}, std::array{1.0f / factor});
    }
    return pack(weight, fmt::format("{}: {}", files_.path().string(), name));
  }

  // NVFP4 without its global scale: not quantized, as in vLLM where the GPU has no such GEMMs. A scale from the
  // inputs of a call would differ from call to call.
  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view name) const override {
    const auto& inputs = group_of(name).inputs;
    return inputs && lacks_global_scale(*inputs, name) ? std::nullopt : inputs;
  }

  [[nodiscard]] std::optional<float> input_scale(std::string_view name) const override {
    const std::string layer(name.substr(0, name.size() - kWeight.size()));
    const bool two_level = group_of(name).form == CompressedForm::nvfp4;
    const auto found = files_.find(layer + std::string(two_level ? kInputGlobalScale : kInputScale));
    if (!found) return std::nullopt;
    const float value = read_input_scale(files_, *found);
    return two_level ? 1.0f / value : value;
  }

 private:
  [[nodiscard]] bool lacks_global_scale(const OperandScheme& inputs, std::string_view weight) const {
    return inputs.scale == ScaleForm::e4m3_two_level &&
           !files_.find(fmt::format("{}{}", weight.substr(0, weight.size() - kWeight.size()), kInputGlobalScale));
  }

  void warn_of_inputs_without_scale() const {
    std::vector<std::string> layers;
    for (const std::string& name : names())
      if (part(name, "_packed") && group_of(name).inputs && lacks_global_scale(*group_of(name).inputs, name))
        layers.push_back(name.substr(0, name.size() - kWeight.size()));
    warn_of_unquantized_inputs(files_, kInputGlobalScale, layers);
  }

  [[nodiscard]] std::optional<SafetensorsFolder::Location> part(std::string_view name, std::string_view suffix) const {
    return files_.find(std::string(name) + std::string(suffix));
  }

  [[nodiscard]] const CompressedGroup& group_of(std::string_view name) const {
    const std::string_view layer = name.substr(0, name.size() - kWeight.size());
    for (const Target& target : targets_)
      if (target.pattern.matches(layer)) return *target.group;
    QUENCH_FAIL(ErrorCode::corrupt, "{}: {} is quantized, but no group of quantization_config matches it",
                files_.path().string(), name);
  }

  // Without validation: for the inventory.
  [[nodiscard]] Shape packed_shape(std::string_view name) const {
    if (const auto plain = files_.find(name)) return plain->entry->shape;
    const CompressedGroup& group = group_of(name);
    if (group.form == CompressedForm::packed_integers) {
      const Tensor shape = read_tensor(name, "_shape", DType::i64, {2});
      const std::int64_t rows = shape.data<std::int64_t>()[0], columns = shape.data<std::int64_t>()[1];
      constexpr std::int64_t kMost = std::int64_t{1} << 40;
      QUENCH_CHECK_AS(ErrorCode::corrupt, rows > 0 && columns > 0 && rows < kMost && columns < kMost,
                      "{}: {}_shape holds {} x {}", files_.path().string(), name, rows, columns);
      return {rows, columns};
    }
    const SafetensorsEntry& entry = *required(name, "_packed").entry;
    QUENCH_CHECK_AS(ErrorCode::corrupt, entry.shape.rank() == 2, "{}: {}_packed has shape {}", files_.path().string(),
                    name, entry.shape.to_string());
    return {entry.shape[0], group.form == CompressedForm::mxfp6 ? entry.shape[1] / 3 * 4 : entry.shape[1] * 2};
  }

  [[nodiscard]] SafetensorsFolder::Location required(std::string_view name, std::string_view suffix) const {
    const auto found = part(name, suffix);
    QUENCH_CHECK_AS(ErrorCode::corrupt, found.has_value(), "{}: {}{} is missing", files_.path().string(), name, suffix);
    return *found;
  }

  [[nodiscard]] Tensor read_entry(const SafetensorsFolder::Location& found, const Shape& shape, DType dtype) const {
    return quench::read_entry(files_, found, shape, dtype);
  }

  [[nodiscard]] Tensor read_tensor(std::string_view name, std::string_view suffix, DType dtype,
                                   const Shape& shape) const {
    return read_entry(required(name, suffix), shape, dtype);
  }

  void read_codes(QuantizedWeight& weight, CompressedForm form, std::string_view name) const {
    using enum CompressedForm;
    const std::int64_t rows = weight.shape[0], columns = weight.shape[1];
    const int bits = weight.scheme.bits;
    const MemoryScope scope(MemoryCategory::workspace);
    switch (form) {
      case packed_integers:
        weight.codes =
            unpack_rows(read_tensor(name, "_packed", DType::i32, {rows, (columns * bits + 31) / 32}), bits, columns);
        return;
      case integers:
        weight.codes = read_tensor(name, "", DType::i8, weight.shape);
        check_range(weight, name);
        return;
      case float8:
      case mxfp8: weight.codes = read_tensor(name, "", DType::f8_e4m3, weight.shape); return;
      case mxfp6: {
        const Tensor packed = read_tensor(name, "_packed", DType::u8, {rows, columns / 4 * 3});
        weight.codes = Tensor::empty(weight.shape, DType::u8);
        const auto* in = packed.data<std::uint8_t>();
        for (std::int64_t i = 0; i < weight.shape.numel() / 4; ++i) {
          const std::uint32_t word = in[3 * i] | static_cast<std::uint32_t>(in[3 * i + 1]) << 8 |
                                     static_cast<std::uint32_t>(in[3 * i + 2]) << 16;
          for (int c = 0; c < 4; ++c)
            weight.codes.data<std::uint8_t>()[4 * i + c] = static_cast<std::uint8_t>(word >> (6 * c) & 63u);
        }
        return;
      }
      case mxfp4:
      case nvfp4: {
        const Tensor packed = read_tensor(name, "_packed", DType::u8, {rows, columns / 2});
        weight.codes = Tensor::empty(weight.shape, DType::f4_e2m1);
        std::memcpy(weight.codes.raw_data(), packed.raw_data(), packed.nbytes());
        return;
      }
    }
  }

  // Fewer than eight bits are stored in bytes.
  void check_range(const QuantizedWeight& weight, std::string_view name) const {
    const IntRange range = int_range(weight.scheme.bits);
    const auto* codes = weight.codes.data<std::int8_t>();
    QUENCH_CHECK_AS(ErrorCode::corrupt,
                    std::all_of(codes, codes + weight.codes.numel(),
                                [&](int code) { return code >= range.lowest && code <= range.highest; }),
                    "{}: {} holds codes outside of {} bits", files_.path().string(), name, weight.scheme.bits);
  }

  [[nodiscard]] Shape scales_shape(const QuantizedWeight& weight) const {
    const std::int64_t rows = weight.shape[0], columns = weight.shape[1], group = weight.scheme.group_size;
    switch (weight.scheme.sharing) {
      case ScaleSharing::tensor: return {1};
      case ScaleSharing::row: return {rows, 1};
      case ScaleSharing::group: return {rows, columns / group};
      case ScaleSharing::block: return {(rows + group - 1) / group, (columns + group - 1) / group};
    }
    return {};
  }

  void read_scales(QuantizedWeight& weight, std::string_view name) const {
    const auto found = required(name, "_scale");
    const Shape shape = scales_shape(weight);
    if (weight.scheme.scale == ScaleForm::e8m0) {
      const Tensor bytes = read_entry(found, shape, DType::u8);
      weight.scales = bytes.reinterpret(DType::f8_e8m0);
      return;
    }
    if (weight.scheme.scale == ScaleForm::e4m3_two_level) {
      weight.scales = read_entry(found, shape, DType::f8_e4m3);
      return;
    }
    const auto dtype = found.entry->dtype;
    QUENCH_CHECK_AS(ErrorCode::corrupt, dtype && is_scale_dtype(*dtype),
                    "{}: {} has dtype {}, expected F32, BF16 or F16", files_.path().string(), found.entry->name,
                    found.entry->dtype_name);
    // Some writers omit the axis of length 1.
    const bool flat = weight.scheme.sharing == ScaleSharing::row && found.entry->shape == Shape{weight.shape[0]};
    const bool scalar = weight.scheme.sharing == ScaleSharing::tensor && found.entry->shape == Shape{};
    weight.scales = read_entry(found, flat || scalar ? found.entry->shape : shape, *dtype).view(shape);
  }

  void read_zero_points(QuantizedWeight& weight, CompressedForm form, std::string_view name) const {
    const Shape shape = scales_shape(weight);
    if (form == CompressedForm::packed_integers && shape.rank() == 2) {
      const int bits = weight.scheme.bits;
      const Tensor words = read_tensor(name, "_zero_point", DType::i32, {(shape[0] * bits + 31) / 32, shape[1]});
      weight.zero_points = unpack_zero_points(words, bits, shape[0]);
      return;
    }
    const Tensor bytes = read_tensor(name, "_zero_point", DType::i8, shape);
    weight.zero_points = Tensor::empty(shape, DType::f32);
    for (std::int64_t i = 0; i < bytes.numel(); ++i)
      weight.zero_points.data<float>()[i] = static_cast<float>(bytes.data<std::int8_t>()[i]);
  }

  SafetensorsFolder files_;
  std::vector<CompressedGroup> groups_;
  bool quantized_cache_;  // its scales are not weights
  struct Target {
    LayerPattern pattern;
    const CompressedGroup* group;
  };
  std::vector<Target> targets_;  // first match
};

}  // namespace

std::unique_ptr<StoredWeights> open_compressed_tensors(const std::filesystem::path& folder, const Json& quantization) {
  return std::make_unique<CompressedWeights>(folder, quantization);
}

}  // namespace quench
