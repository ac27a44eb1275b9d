#include "export/formats/torchao/reader.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "export/formats/safetensors_weights.h"
#include "export/formats/torchao/description.h"

namespace quench {
namespace {

constexpr std::string_view kTensorNames = "tensor_names";

// "a.b._weight_qdata": part qdata of "a.b.weight".
std::string part_name(std::string_view weight, std::string_view part) {
  const std::size_t dot = weight.rfind('.');
  const std::size_t leaf = dot == std::string_view::npos ? 0 : dot + 1;
  return fmt::format("{}_{}_{}", weight.substr(0, leaf), weight.substr(leaf), part);
}

class TorchaoWeights final : public SafetensorsWeights {
 public:
  explicit TorchaoWeights(const std::filesystem::path& folder) : SafetensorsWeights(folder) {
    for (const SafetensorsReader& file : files().files())
      for (const auto& [name, text] : file.header().metadata) {
        if (name == kTensorNames || !text.starts_with('{')) continue;  // "format": "pt"
        const std::string source = named(name);
        Json description = Json::parse(text, {.source = source});
        if (const auto parts = torchao_parts(description, source)) {
          for (const std::string& part : *parts) parts_.insert(part_name(name, part));
          descriptions_.insert_or_assign(name, std::move(description));
        }
      }
  }

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (std::string& name : files().names())
      if (!parts_.contains(name)) names.push_back(std::move(name));
    for (const auto& [name, description] : descriptions_) names.push_back(name);
    return names;
  }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    if (descriptions_.contains(name)) return StoredTensor{shape_of(name, described(name)), true, "packed", {}};
    return SafetensorsWeights::find(name);
  }

  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    const TorchaoWeight described_as = described(name);
    QuantizedWeight weight{.scheme = described_as.weights, .shape = shape_of(name, described_as)};
    const std::string problem = shape_problem(weight.scheme, weight.shape[0], weight.shape[1], described_as.inputs);
    QUENCH_CHECK_AS(ErrorCode::corrupt, problem.empty(), "{} contradicts its metadata: {}", named(name), problem);
    const MemoryScope scope(MemoryCategory::workspace);
    read_codes(weight, name, described_as);
    read_scales(weight, name);
    if (described_as.has("zero_point")) read_zero_points(weight, name);
    if (weight.scheme.scale == ScaleForm::e4m3_two_level)
      weight.global_scale = described_as.has("per_tensor_scale")
                                ? read_whole(stored_part(name, "per_tensor_scale"), {}, DType::f32).view({1})
                                : Tensor::from_values<float>({1}, std::array{1.0f});
    return pack(weight, named(name));
  }

  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view name) const override {
    return descriptions_.contains(name) ? described(name).inputs : std::nullopt;
  }

  [[nodiscard]] InputArithmetic input_arithmetic() const override { return {.division = IntDivision::reciprocal}; }

 private:
  [[nodiscard]] Location stored_part(std::string_view name, std::string_view part) const {
    return required(part_name(name, part), "");
  }

  [[nodiscard]] TorchaoWeight described(std::string_view name) const {
    return describe_torchao_weight(descriptions_.find(name)->second, stored_part(name, "qdata").entry->shape,
                                   named(name));
  }

  [[nodiscard]] Shape shape_of(std::string_view name, const TorchaoWeight& weight) const {
    const Shape& stored = stored_part(name, "qdata").entry->shape;
    return {stored[0], weight.codes_in_pairs ? 2 * stored[1] : stored[1]};
  }

  void read_codes(QuantizedWeight& weight, std::string_view name, const TorchaoWeight& described_as) const {
    const auto stored = stored_part(name, "qdata");
    if (described_as.codes_in_pairs) {
      const Tensor pairs = read_whole(stored, stored.entry->shape, DType::u8);
      weight.codes = Tensor::empty(weight.shape, DType::f4_e2m1);
      std::memcpy(weight.codes.raw_data(), pairs.raw_data(), pairs.nbytes());
      return;
    }
    weight.codes = read_whole(stored, weight.shape, weight.scheme.element ? DType::f8_e4m3 : DType::i8);
    if (!weight.scheme.element) check_range(weight, name);
  }

  void read_scales(QuantizedWeight& weight, std::string_view name) const {
    const auto stored = stored_part(name, "scale");
    const Shape shape = scales_shape(weight, {});
    DType dtype = DType::f8_e8m0;
    if (weight.scheme.scale == ScaleForm::e4m3_two_level) dtype = DType::f8_e4m3;
    if (weight.scheme.scale == ScaleForm::high_precision) {
      dtype = stored.entry->dtype.value_or(DType::u8);
      QUENCH_CHECK_AS(ErrorCode::corrupt, dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16,
                      "{}: its scales have dtype {}, expected F32, BF16 or F16", named(name), stored.entry->dtype_name);
    }
    // Classes differ in axes of length 1.
    const bool same_count = stored.entry->shape.numel() == shape.numel();
    weight.scales = read_whole(stored, same_count ? stored.entry->shape : shape, dtype).view(shape);
  }

  void read_zero_points(QuantizedWeight& weight, std::string_view name) const {
    const auto stored = stored_part(name, "zero_point");
    const Shape shape = scales_shape(weight, {});
    const bool same_count = stored.entry->shape.numel() == shape.numel();
    const Tensor bytes = read_whole(stored, same_count ? stored.entry->shape : shape, DType::i8);
    const auto* points = bytes.data<std::int8_t>();
    if (std::all_of(points, points + bytes.numel(), [](int point) { return point == 0; })) {
      weight.scheme.mapping = IntMapping::symmetric;
      return;
    }
    weight.zero_points = zero_points_of(bytes, shape);
  }

  std::map<std::string, Json, std::less<>> descriptions_;  // by quantized weight
  std::set<std::string> parts_;                            // stored part names
};

}  // namespace

std::unique_ptr<StoredWeights> open_torchao(const std::filesystem::path& folder, const Json&) {
  return std::make_unique<TorchaoWeights>(folder);
}

}  // namespace quench
