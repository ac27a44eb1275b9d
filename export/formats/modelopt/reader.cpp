#include "export/formats/modelopt/reader.h"

#include <array>

#include "core/number/nvfp4.h"
#include "export/formats/float8_weights.h"
#include "export/formats/input_scales.h"
#include "export/formats/safetensors_rows.h"
#include "export/schemes/quantized_weight.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using Location = SafetensorsFolder::Location;

constexpr std::string_view kConfigName = "hf_quant_config.json";
constexpr std::string_view kWeight = ".weight", kInputScale = ".input_scale";
// Tensors of "NAME.weight": u8, two values a byte; e4m3 of 16 values; f32, a factor of all.
constexpr std::string_view kScale = "_scale", kGlobalScale = "_scale_2";

class ModeloptNvfp4 final : public StoredWeights {
 public:
  explicit ModeloptNvfp4(const fs::path& folder) : files_(folder), scheme_(*find_scheme("nvfp4")) {
    std::vector<std::string> layers;
    for (const std::string& name : names())
      if (part(name, kGlobalScale) && !scale_of_inputs(name)) layers.emplace_back(layer_of(name));
    warn_of_unquantized_inputs(files_, kInputScale, layers);
  }

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (std::string& name : files_.names()) {
      const auto belongs = [&](std::string_view ending, std::string_view rest) {
        return name.ends_with(ending) &&
               files_.find(fmt::format("{}{}", std::string_view(name).substr(0, name.size() - ending.size()), rest));
      };
      if (!belongs(kScale, "") && !belongs(kGlobalScale, "") && !belongs(kInputScale, kWeight))
        names.push_back(std::move(name));
    }
    return names;
  }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    const auto found = files_.find(name);
    if (!found) return std::nullopt;
    if (part(name, kScale)) return StoredTensor{shape_of(*found), true, "packed", {}};
    return StoredTensor{found->entry->shape, false, found->entry->dtype_name, found->entry->dtype};
  }

  void read(std::string_view name, const Tensor& out, std::int64_t first_row) const override {
    read_rows(files_.at(name), out, first_row);
  }

  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    const std::string where = fmt::format("{}: {}", files_.path().string(), name);
    const Location codes = files_.at(name);
    const Shape shape = shape_of(codes);
    QUENCH_CHECK_AS(ErrorCode::corrupt, shape.rank() == 2 && shape[1] % kNvfp4BlockSize == 0,
                    "{} has shape {}, expected two values a byte in blocks of {}", where,
                    codes.entry->shape.to_string(), kNvfp4BlockSize);
    QuantizedWeight weight{.scheme = scheme_.weights, .shape = shape};
    const Tensor bytes = read_entry(files_, codes, {shape[0], shape[1] / 2}, DType::u8);
    weight.codes = bytes.reinterpret(DType::f4_e2m1);
    weight.scales = read_entry(files_, required(name, kScale), {shape[0], shape[1] / kNvfp4BlockSize}, DType::f8_e4m3);
    const float factor = read_input_scale(files_, required(name, kGlobalScale));
    weight.global_scale = Tensor::from_values<float>({1}, std::array{factor});
    return pack(weight, where);
  }

  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view name) const override {
    return scale_of_inputs(name) ? scheme_.inputs : std::nullopt;
  }

  [[nodiscard]] std::optional<float> input_scale(std::string_view name) const override {
    const auto found = scale_of_inputs(name);
    return found ? std::optional(read_input_scale(files_, *found)) : std::nullopt;
  }

 private:
  static std::string_view layer_of(std::string_view weight) { return weight.substr(0, weight.size() - kWeight.size()); }

  static Shape shape_of(const Location& codes) {
    const Shape& shape = codes.entry->shape;
    return shape.rank() == 2 ? Shape{shape[0], 2 * shape[1]} : shape;
  }

  [[nodiscard]] std::optional<Location> part(std::string_view name, std::string_view ending) const {
    return files_.find(fmt::format("{}{}", name, ending));
  }

  [[nodiscard]] Location required(std::string_view name, std::string_view ending) const {
    const auto found = part(name, ending);
    QUENCH_CHECK_AS(ErrorCode::corrupt, found.has_value(), "{}: {}{} is missing", files_.path().string(), name, ending);
    return *found;
  }

  [[nodiscard]] std::optional<Location> scale_of_inputs(std::string_view name) const {
    return part(layer_of(name), kInputScale);
  }

  SafetensorsFolder files_;
  const Scheme& scheme_;
};

}  // namespace

Json modelopt_config(const fs::path& folder) {
  const fs::path file = folder / kConfigName;
  if (!fs::exists(file)) return {};
  Json config = Json::parse_file(file, {.max_bytes = std::size_t{16} << 20});
  const Json* section = config.is_object() ? config.find("quantization") : nullptr;
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
