#include "export/formats/compressed_tensors/reader.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "export/formats/cache_scales.h"
#include "export/formats/compressed_tensors/config.h"
#include "export/formats/input_scales.h"
#include "export/formats/packed_words/bit_packing.h"
#include "export/formats/safetensors_weights.h"
#include "export/kv_cache/kv_cache_scheme.h"
#include "export/schemes/layer_pattern.h"

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

class CompressedWeights final : public SafetensorsWeights {
 public:
  CompressedWeights(const std::filesystem::path& folder, const Json& quantization)
      : SafetensorsWeights(folder),
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
    for (std::string& name : files().names()) {
      if (is_input_part(name) || (quantized_cache_ && is_cache_scale(name))) continue;
      const std::string weight = weight_of(name);
      if (weight.empty())
        names.push_back(std::move(name));
      else if (!files().find(weight) && (names.empty() || names.back() != weight))
        names.push_back(weight);
    }
    return names;
  }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    if (part(name, "_packed") || part(name, "_scale")) return StoredTensor{packed_shape(name), true, "packed", {}};
    return SafetensorsWeights::find(name);
  }

  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    const CompressedGroup& group = group_of(name);
    const Shape shape = packed_shape(name);
    const std::string problem = shape_problem(group.weights, shape[0], shape[1], group.inputs);
    QUENCH_CHECK_AS(ErrorCode::corrupt, problem.empty(), "{} contradicts the quantization config: {}", named(name),
                    problem);
    QuantizedWeight weight{.scheme = group.weights, .shape = shape};
    read_codes(weight, group.form, name);
    read_scales(weight, name);
    if (!group.weights.symmetric()) read_zero_points(weight, group.form, name);
    if (group.form == CompressedForm::nvfp4) {
      const float factor = read_tensor(name, "_global_scale", DType::f32, {1}).data<float>()[0];
      QUENCH_CHECK_AS(ErrorCode::corrupt, std::isfinite(factor) && factor > 0,
                      "{}: its global scale is {}, expected a positive number", named(name), factor);
      weight.global_scale = Tensor::from_values<float>({1}, std::array{1.0f / factor});
    }
    return pack(weight, named(name));
  }

  // NVFP4 without its global scale: not quantized, as in vLLM where the GPU has no such GEMMs. A scale from the
  // inputs of a call would differ from call to call.
  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view name) const override {
    const auto& inputs = group_of(name).inputs;
    return inputs && lacks_global_scale(*inputs, name) ? std::nullopt : inputs;
  }

  // Rounds the amax of a block to two bits, then takes its exponent (generate_mx_scales).
  [[nodiscard]] InputArithmetic input_arithmetic() const override { return {.mx4_scale = MxScaleMode::even}; }

  [[nodiscard]] std::optional<float> input_scale(std::string_view name) const override {
    const bool two_level = group_of(name).form == CompressedForm::nvfp4;
    const auto found = part(name.substr(0, name.size() - kWeight.size()), two_level ? kInputGlobalScale : kInputScale);
    if (!found) return std::nullopt;
    const float value = read_input_scale(files(), *found);
    return two_level ? 1.0f / value : value;
  }

 private:
  [[nodiscard]] bool lacks_global_scale(const OperandScheme& inputs, std::string_view weight) const {
    return inputs.scale == ScaleForm::e4m3_two_level &&
           !part(weight.substr(0, weight.size() - kWeight.size()), kInputGlobalScale);
  }

  void warn_of_inputs_without_scale() const {
    std::vector<std::string> layers;
    for (const std::string& name : names())
      if (part(name, "_packed") && group_of(name).inputs && lacks_global_scale(*group_of(name).inputs, name))
        layers.push_back(name.substr(0, name.size() - kWeight.size()));
    warn_of_unquantized_inputs(files(), kInputGlobalScale, layers);
  }

  [[nodiscard]] const CompressedGroup& group_of(std::string_view name) const {
    const std::string_view layer = name.substr(0, name.size() - kWeight.size());
    for (const Target& target : targets_)
      if (target.pattern.matches(layer)) return *target.group;
    QUENCH_FAIL(ErrorCode::corrupt, "{} is quantized, but no group of quantization_config matches it", named(name));
  }

  // Without validation: for the inventory.
  [[nodiscard]] Shape packed_shape(std::string_view name) const {
    if (const auto plain = files().find(name)) return plain->entry->shape;
    const CompressedGroup& group = group_of(name);
    if (group.form == CompressedForm::packed_integers) {
      const Tensor shape = read_tensor(name, "_shape", DType::i64, {2});
      const std::int64_t rows = shape.data<std::int64_t>()[0], columns = shape.data<std::int64_t>()[1];
      constexpr std::int64_t kMost = std::int64_t{1} << 40;
      QUENCH_CHECK_AS(ErrorCode::corrupt, rows > 0 && columns > 0 && rows < kMost && columns < kMost,
                      "{}_shape holds {} x {}", named(name), rows, columns);
      return {rows, columns};
    }
    const SafetensorsEntry& entry = *required(name, "_packed").entry;
    QUENCH_CHECK_AS(ErrorCode::corrupt, entry.shape.rank() == 2, "{}_packed has shape {}", named(name),
                    entry.shape.to_string());
    return {entry.shape[0], group.form == CompressedForm::mxfp6 ? entry.shape[1] / 3 * 4 : entry.shape[1] * 2};
  }

  [[nodiscard]] Tensor read_tensor(std::string_view name, std::string_view suffix, DType dtype,
                                   const Shape& shape) const {
    return read_whole(required(name, suffix), shape, dtype);
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

  void read_scales(QuantizedWeight& weight, std::string_view name) const {
    const auto found = required(name, "_scale");
    const Shape shape = scales_shape(weight, {1});
    if (weight.scheme.scale == ScaleForm::e8m0) {
      const Tensor bytes = read_whole(found, shape, DType::u8);
      weight.scales = bytes.reinterpret(DType::f8_e8m0);
      return;
    }
    if (weight.scheme.scale == ScaleForm::e4m3_two_level) {
      weight.scales = read_whole(found, shape, DType::f8_e4m3);
      return;
    }
    const auto dtype = found.entry->dtype;
    QUENCH_CHECK_AS(ErrorCode::corrupt, dtype && is_scale_dtype(*dtype),
                    "{}: {} has dtype {}, expected F32, BF16 or F16", files().path().string(), found.entry->name,
                    found.entry->dtype_name);
    // Some writers omit the axis of length 1.
    const bool flat = weight.scheme.sharing == ScaleSharing::row && found.entry->shape == Shape{weight.shape[0]};
    const bool scalar = weight.scheme.sharing == ScaleSharing::tensor && found.entry->shape == Shape{};
    weight.scales = read_whole(found, flat || scalar ? found.entry->shape : shape, *dtype).view(shape);
  }

  void read_zero_points(QuantizedWeight& weight, CompressedForm form, std::string_view name) const {
    const Shape shape = scales_shape(weight, {1});
    if (form == CompressedForm::packed_integers && shape.rank() == 2) {
      const int bits = weight.scheme.bits;
      const Tensor words = read_tensor(name, "_zero_point", DType::i32, {(shape[0] * bits + 31) / 32, shape[1]});
      weight.zero_points = unpack_zero_points(words, bits, shape[0]);
      return;
    }
    weight.zero_points = zero_points_of(read_tensor(name, "_zero_point", DType::i8, shape), shape);
  }

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
