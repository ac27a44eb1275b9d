#include "export/formats/fine_grained_float8/reader.h"

#include "core/safetensors/safetensors_folder.h"
#include "export/formats/safetensors_rows.h"
#include "export/schemes/quantized_weight.h"

namespace quench {
namespace {

constexpr std::string_view kScale = "_scale_inv";
constexpr std::int64_t kBlock = 128;

class FineGrainedWeights final : public StoredWeights {
 public:
  explicit FineGrainedWeights(const std::filesystem::path& folder)
      : files_(folder), scheme_(*find_scheme("float8_dynamic_block")) {}

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (std::string& name : files_.names())
      if (!name.ends_with(kScale) || !files_.find(name.substr(0, name.size() - kScale.size())))
        names.push_back(std::move(name));
    return names;
  }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    const auto found = files_.find(name);
    if (!found) return std::nullopt;
    if (scale_of(name)) return StoredTensor{found->entry->shape, true, "packed", {}};
    return StoredTensor{found->entry->shape, false, found->entry->dtype_name, found->entry->dtype};
  }

  void read(std::string_view name, const Tensor& out, std::int64_t first_row) const override {
    read_rows(files_.at(name), out, first_row);
  }

  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    const SafetensorsFolder::Location codes = files_.at(name), scales = scale_of(name).value();
    const std::string where = fmt::format("{}: {}", files_.path().string(), name);
    const Shape shape = codes.entry->shape;
    QUENCH_CHECK_AS(ErrorCode::corrupt, shape.rank() == 2, "{} has blocks and shape {}", where, shape.to_string());
    const std::string problem = shape_problem(scheme_.weights, shape[0], shape[1], scheme_.inputs);
    QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "{}: {}", where, problem);
    const DType dtype = scales.entry->dtype.value_or(DType::u8);
    QUENCH_CHECK_AS(ErrorCode::unsupported, dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16,
                    "{}{} has dtype {}; F32, BF16 and F16 can be read", where, kScale, scales.entry->dtype_name);
    QuantizedWeight weight{.scheme = scheme_.weights, .shape = shape};
    weight.codes = read_entry(files_, codes, shape, DType::f8_e4m3);
    weight.scales =
        read_entry(files_, scales, {(shape[0] + kBlock - 1) / kBlock, (shape[1] + kBlock - 1) / kBlock}, dtype);
    return pack(weight, where);
  }

  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view) const override { return scheme_.inputs; }

 private:
  [[nodiscard]] std::optional<SafetensorsFolder::Location> scale_of(std::string_view name) const {
    return files_.find(std::string(name) + std::string(kScale));
  }

  SafetensorsFolder files_;
  const Scheme& scheme_;
};

}  // namespace

std::unique_ptr<StoredWeights> open_fine_grained_float8(const std::filesystem::path& folder, const Json& quantization) {
  const std::string source = (folder / "config.json").string();
  const Json* block = quantization.find("weight_block_size");
  QUENCH_CHECK_AS(ErrorCode::unsupported, block != nullptr && *block == Json(Json::Array{kBlock, kBlock}),
                  "{}: {}.weight_block_size is {}; [128, 128] is read", source, kQuantizationConfig,
                  block != nullptr ? block->dump() : "missing");
  const Json* inputs = quantization.find("activation_scheme");
  QUENCH_CHECK_AS(ErrorCode::unsupported, inputs == nullptr || *inputs == Json("dynamic"),
                  "{}: {}.activation_scheme is {}; dynamic is read", source, kQuantizationConfig, inputs->dump());
  const Json* format = quantization.find("fmt");
  QUENCH_CHECK_AS(ErrorCode::unsupported, format == nullptr || *format == Json("e4m3"),
                  "{}: {}.fmt is {}; e4m3 is read", source, kQuantizationConfig, format->dump());
  return std::make_unique<FineGrainedWeights>(folder);
}

}  // namespace quench
