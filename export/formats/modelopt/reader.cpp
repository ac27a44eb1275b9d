#include "export/formats/modelopt/reader.h"

#include <array>

#include "core/json/json_member.h"
#include "core/number/nvfp4.h"
#include "export/formats/float8_weights.h"
#include "export/formats/input_scales.h"
#include "export/formats/safetensors_weights.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigName = "hf_quant_config.json";
constexpr std::string_view kWeight = ".weight", kInputScale = ".input_scale";
// Tensors of "NAME.weight": u8, two values a byte; e4m3 of 16 values; f32, a factor of all.
constexpr std::string_view kScale = "_scale", kGlobalScale = "_scale_2";

class ModeloptNvfp4 final : public SafetensorsWeights {
 public:
  explicit ModeloptNvfp4(const fs::path& folder) : SafetensorsWeights(folder), scheme_(*find_scheme("nvfp4")) {
    std::vector<std::string> layers;
    for (const std::string& name : names())
      if (part(name, kGlobalScale) && !scale_of_inputs(name)) layers.emplace_back(layer_of(name));
    warn_of_unquantized_inputs(files(), kInputScale, layers);
  }

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (std::string& name : files().names()) {
      const auto belongs = [&](std::string_view ending, std::string_view rest) {
        return name.ends_with(ending) &&
               files().find(fmt::format("{}{}", std::string_view(name).substr(0, name.size() - ending.size()), rest));
      };
      if (!belongs(kScale, "") && !belongs(kGlobalScale, "") && !belongs(kInputScale, kWeight))
        names.push_back(std::move(name));
    }
    return names;
  }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    const auto found = files().find(name);
    return found && part(name, kScale) ? StoredTensor{shape_of(*found), true, "packed", {}}
                                       : SafetensorsWeights::find(name);
  }

  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    const std::string where = named(name);
    const Location codes = files().at(name);
    const Shape shape = shape_of(codes);
    QUENCH_CHECK_AS(ErrorCode::corrupt, shape.rank() == 2 && shape[1] % kNvfp4BlockSize == 0,
                    "{} has shape {}, expected two values a byte in blocks of {}", where,
                    codes.entry->shape.to_string(), kNvfp4BlockSize);
    QuantizedWeight weight{.scheme = scheme_.weights, .shape = shape};
    const Tensor bytes = read_whole(codes, {shape[0], shape[1] / 2}, DType::u8);
    weight.codes = bytes.reinterpret(DType::f4_e2m1);
    weight.scales = read_whole(required(name, kScale), {shape[0], shape[1] / kNvfp4BlockSize}, DType::f8_e4m3);
    const float factor = read_input_scale(files(), required(name, kGlobalScale));
    weight.global_scale = Tensor::from_values<float>({1}, std::array{factor});
    return pack(weight, where);
  }

  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view name) const override {
    return scale_of_inputs(name) ? scheme_.inputs : std::nullopt;
  }

  [[nodiscard]] std::optional<float> input_scale(std::string_view name) const override {
    const auto found = scale_of_inputs(name);
    return found ? std::optional(read_input_scale(files(), *found)) : std::nullopt;
  }

 private:
  static std::string_view layer_of(std::string_view weight) { return weight.substr(0, weight.size() - kWeight.size()); }

  static Shape shape_of(const Location& codes) {
    const Shape& shape = codes.entry->shape;
    return shape.rank() == 2 ? Shape{shape[0], 2 * shape[1]} : shape;
  }

  [[nodiscard]] std::optional<Location> scale_of_inputs(std::string_view name) const {
    return part(layer_of(name), kInputScale);
  }

  const Scheme& scheme_;
};

}  // namespace

Json modelopt_config(const fs::path& folder) {
  const fs::path file = folder / kConfigName;
  if (!fs::exists(file)) return {};
  Json config = Json::parse_file(file, {.max_bytes = std::size_t{16} << 20});
  const Json* section = find_member(config, {"quantization"});
  QUENCH_CHECK_AS(ErrorCode::corrupt, section != nullptr && section->is_object(),
                  "{}: expected an object with the key quantization", file.string());
  Json quantization = *section;
  quantization.set("quant_method", kModeloptMethod);
  return quantization;
}

std::unique_ptr<StoredWeights> open_modelopt(const fs::path& folder, const Json& quantization) {
  const Json* algorithm = quantization.find("quant_algo");
  if (algorithm != nullptr && *algorithm == Json("FP8")) return open_float8_weights(folder, {.static_inputs = true});
  if (algorithm != nullptr && *algorithm == Json("FP8_PER_CHANNEL_PER_TOKEN")) return open_float8_weights(folder, {});
  const Json* group = quantization.find("group_size");
  const bool blocks = group == nullptr || group->is_null() || *group == Json(kNvfp4BlockSize);
  QUENCH_CHECK_AS(ErrorCode::unsupported, algorithm != nullptr && *algorithm == Json("NVFP4") && blocks,
                  "{}: weights of ModelOpt with quant_algo {}{} are not supported; known: FP8, "
                  "FP8_PER_CHANNEL_PER_TOKEN, NVFP4 with group_size {}",
                  folder.string(), algorithm == nullptr ? "absent" : algorithm->dump(),
                  group == nullptr ? "" : fmt::format(" and group_size {}", group->dump()), kNvfp4BlockSize);
  return std::make_unique<ModeloptNvfp4>(folder);
}

}  // namespace quench
