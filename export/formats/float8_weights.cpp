#include "export/formats/float8_weights.h"

#include <algorithm>
#include <array>

#include "export/formats/input_scales.h"
#include "export/formats/safetensors_weights.h"

namespace quench {
namespace {

constexpr std::string_view kCodes = ".weight";
constexpr std::array<std::string_view, 2> kWeightScales = {"_scale_inv", "_scale"};               // for "NAME.weight"
constexpr std::array<std::string_view, 2> kStaticScales = {".activation_scale", ".input_scale"};  // for "NAME"

class Float8Weights final : public SafetensorsWeights {
 public:
  Float8Weights(const std::filesystem::path& folder, const Float8Form& form) : SafetensorsWeights(folder), form_(form) {
    OperandScheme inputs{.element = ElementFormat::e4m3, .bits = 8};
    inputs.calibrated = form.static_inputs;
    inputs.sharing = form.static_inputs ? ScaleSharing::tensor
                     : form.block > 0   ? ScaleSharing::group
                                        : ScaleSharing::row;
    if (inputs.sharing == ScaleSharing::group) inputs.group_size = form.block;
    inputs_ = inputs;
  }

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (std::string& name : files().names())
      if (!belongs_to_weight(name, kWeightScales, "") && !belongs_to_weight(name, kStaticScales, kCodes))
        names.push_back(std::move(name));
    return names;
  }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    std::optional<StoredTensor> found = SafetensorsWeights::find(name);
    if (found && next_to(name, kWeightScales)) return StoredTensor{found->shape, true, "packed", {}};
    return found;
  }

  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    const Location codes = files().at(name), scales = next_to(name, kWeightScales).value();
    const std::string where = named(name);
    const Shape shape = codes.entry->shape;
    QUENCH_CHECK_AS(ErrorCode::corrupt, shape.rank() == 2, "{} has scales and shape {}", where, shape.to_string());
    QuantizedWeight weight{.scheme = scheme_of(scales, shape), .shape = shape};
    const std::string problem = shape_problem(weight.scheme, shape[0], shape[1]);
    QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "{}: {}", where, problem);
    weight.codes = read_whole(codes, shape, DType::f8_e4m3);
    weight.scales = read_scales(scales, weight.scheme, shape);
    return pack(weight, where);
  }

  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view) const override { return inputs_; }

  [[nodiscard]] std::optional<float> input_scale(std::string_view name) const override {
    if (!form_.static_inputs) return std::nullopt;
    const auto found = next_to(name.substr(0, name.size() - kCodes.size()), kStaticScales);
    return found ? std::optional(read_input_scale(files(), *found)) : std::nullopt;
  }

 private:
  // "NAME" + one of `endings`, of the tensor "NAME" + `rest`.
  [[nodiscard]] bool belongs_to_weight(std::string_view name, std::span<const std::string_view> endings,
                                       std::string_view rest) const {
    return std::ranges::any_of(endings, [&](std::string_view ending) {
      return name.ends_with(ending) &&
             files().find(fmt::format("{}{}", name.substr(0, name.size() - ending.size()), rest)).has_value();
    });
  }

  [[nodiscard]] std::optional<Location> next_to(std::string_view name,
                                                std::span<const std::string_view> endings) const {
    for (const std::string_view ending : endings)
      if (const auto found = part(name, ending)) return found;
    return std::nullopt;
  }

  [[nodiscard]] OperandScheme scheme_of(const Location& scales, const Shape& shape) const {
    OperandScheme scheme{.element = ElementFormat::e4m3, .bits = 8, .sharing = ScaleSharing::tensor};
    if (form_.block > 0) {
      scheme.sharing = ScaleSharing::block;
      scheme.group_size = form_.block;
    } else if (scales.entry->shape.numel() == shape[0] && shape[0] > 1) {
      scheme.sharing = ScaleSharing::row;
    }
    return scheme;
  }

  [[nodiscard]] Tensor read_scales(const Location& scales, const OperandScheme& scheme, const Shape& shape) const {
    const std::int64_t side = form_.block;
    const Shape expected = scheme.sharing == ScaleSharing::block
                               ? Shape{(shape[0] + side - 1) / side, (shape[1] + side - 1) / side}
                           : scheme.sharing == ScaleSharing::row ? Shape{shape[0], 1}
                                                                 : Shape{1};
    const SafetensorsEntry& entry = *scales.entry;
    const DType dtype = entry.dtype.value_or(DType::i64);
    const bool exponents = dtype == DType::f8_e8m0 || dtype == DType::u8;
    QUENCH_CHECK_AS(ErrorCode::unsupported,
                    exponents || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16,
                    "{}: {} has dtype {}; F32, BF16, F16 and F8_E8M0 can be read", files().path().string(), entry.name,
                    entry.dtype_name);
    // Writers omit axes of length 1, of one scale or one a row, or not.
    const bool fits =
        scheme.sharing == ScaleSharing::block ? entry.shape == expected : entry.shape.numel() == expected.numel();
    QUENCH_CHECK_AS(ErrorCode::corrupt, fits, "{}: {} has shape {}, expected {} for weight_block_size {}",
                    files().path().string(), entry.name, entry.shape.to_string(), expected.to_string(),
                    side > 0 ? fmt::format("[{}, {}]", side, side) : "null");
    const Tensor stored = read_whole(scales, entry.shape, dtype).view(expected);
    return exponents ? stored.reinterpret(DType::f8_e8m0) : stored;
  }

  Float8Form form_;
  OperandScheme inputs_;
};

}  // namespace

std::unique_ptr<StoredWeights> open_float8_weights(const std::filesystem::path& folder, const Float8Form& form) {
  return std::make_unique<Float8Weights>(folder, form);
}

}  // namespace quench
