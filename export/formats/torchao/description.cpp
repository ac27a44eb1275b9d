#include "export/formats/torchao/description.h"

#include <algorithm>
#include <array>

#include "core/ops/quantize/quantize.h"
#include "core/system/check.h"

namespace quench {
namespace {

// Errors name them.
class Attributes {
 public:
  Attributes(const Json& data, std::string source) : data_(data), source_(std::move(source)) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, data.is_object(), "{}: it has no attributes", source_);
  }

  [[nodiscard]] const Json& at(std::string_view key) const {
    const Json* found = data_.find(key);
    QUENCH_CHECK_AS(ErrorCode::corrupt, found != nullptr, "{}: {} is missing", source_, key);
    return *found;
  }
  [[nodiscard]] bool is_null(std::string_view key) const {
    const Json* found = data_.find(key);
    return found == nullptr || found->is_null();
  }
  // Value of {"_type": type, "_data": ...}.
  [[nodiscard]] const Json& typed(std::string_view key, std::string_view type) const {
    const Json& value = at(key);
    const Json* name = value.is_object() ? value.find("_type") : nullptr;
    const Json* data = value.is_object() ? value.find("_data") : nullptr;
    if (name == nullptr || !name->is_string() || data == nullptr) refuse(key);
    if (name->as_string() != type) refuse(key);
    return *data;
  }
  [[nodiscard]] std::string text(std::string_view key, std::string_view type) const {
    const Json& data = typed(key, type);
    if (!data.is_string()) refuse(key);
    return data.as_string();
  }
  [[nodiscard]] Attributes inner(std::string_view key, std::string_view type) const {
    return {typed(key, type), fmt::format("{}: {}", source_, key)};
  }
  void require(std::string_view key, const Json& value) const {
    if (!(at(key) == value)) refuse(key);
  }
  [[noreturn]] void refuse(std::string_view key) const {
    QUENCH_FAIL(ErrorCode::unsupported, "{}: {} {} is not supported", source_, key, at(key).dump());
  }

 private:
  const Json& data_;
  std::string source_;
};

// By block size [rows, columns].
void set_sharing(OperandScheme& scheme, const Attributes& attributes, std::int64_t rows, std::int64_t columns) {
  const Json& size = attributes.at("block_size");
  const bool two = size.is_array() && size.as_array().size() == 2 && size.as_array()[0].is_integer() &&
                   size.as_array()[1].is_integer();
  if (!two) attributes.refuse("block_size");
  const std::int64_t high = size.as_array()[0].as_int(), wide = size.as_array()[1].as_int();
  using enum ScaleSharing;
  if (high == 1 && wide == columns) {
    scheme.sharing = row;
  } else if (high == rows && wide == columns) {
    scheme.sharing = tensor;
  } else if (high == 1 && wide > 0) {
    scheme.sharing = group;
    scheme.group_size = wide;
  } else if (high == wide && wide > 1) {
    scheme.sharing = block;
    scheme.group_size = wide;
  } else {
    attributes.refuse("block_size");
  }
}

// Dynamic inputs.
ScaleSharing input_sharing(const Attributes& inputs) {
  const Json& value = inputs.at("granularity");
  const Json* type = value.is_object() ? value.find("_type") : nullptr;
  if (type == nullptr || !type->is_string()) inputs.refuse("granularity");
  if (type->as_string() == "PerRow") return ScaleSharing::row;
  if (type->as_string() == "PerTensor") return ScaleSharing::tensor;
  inputs.refuse("granularity");
}

IntMapping mapping_of(const Attributes& attributes) {
  const std::string name = attributes.text("mapping_type", "MappingType");
  if (name == "SYMMETRIC") return IntMapping::symmetric;
  if (name == "ASYMMETRIC") return IntMapping::asymmetric;
  attributes.refuse("mapping_type");
}

void read_int8(const Attributes& a, const Shape& shape, TorchaoWeight& weight) {
  set_sharing(weight.weights, a, shape[0], shape[1]);
  if (weight.has("zero_point")) weight.weights.mapping = IntMapping::asymmetric;
  if (a.is_null("act_quant_kwargs")) return;
  const Attributes inputs = a.inner("act_quant_kwargs", "QuantizeTensorToInt8Kwargs");
  if (input_sharing(inputs) != ScaleSharing::row) inputs.refuse("granularity");
  weight.inputs = OperandScheme{.mapping = mapping_of(inputs)};
}

void read_intx(const Attributes& a, const Shape& shape, TorchaoWeight& weight) {
  const std::string dtype = a.text("target_dtype", "torch.dtype");
  constexpr std::string_view kInt = "int";
  const bool known =
      dtype.size() == kInt.size() + 1 && dtype.starts_with(kInt) && dtype.back() >= '1' && dtype.back() <= '8';
  if (!known) a.refuse("target_dtype");
  weight.weights.bits = dtype.back() - '0';
  weight.weights.mapping = IntMapping::asymmetric;  // zero points are always stored
  set_sharing(weight.weights, a, shape[0], shape[1]);
  if (a.is_null("activation_quantization")) return;
  a.require("activation_quantization", Json("int8_asym_per_token"));
  weight.inputs = OperandScheme{.mapping = IntMapping::asymmetric};
}

void read_float8(const Attributes& a, const Shape& shape, TorchaoWeight& weight) {
  weight.weights.element = ElementFormat::e4m3;
  set_sharing(weight.weights, a, shape[0], shape[1]);
  if (a.is_null("act_quant_kwargs")) return;
  const Attributes inputs = a.inner("act_quant_kwargs", "QuantizeTensorToFloat8Kwargs");
  if (inputs.text("float8_dtype", "torch.dtype") != "float8_e4m3fn") inputs.refuse("float8_dtype");
  weight.inputs = OperandScheme{.element = ElementFormat::e4m3, .sharing = input_sharing(inputs)};
}

OperandScheme mx_scheme(const Attributes& a) {
  OperandScheme scheme{.element = ElementFormat::e4m3,
                       .sharing = ScaleSharing::group,
                       .group_size = kMxBlockSize,
                       .scale = ScaleForm::e8m0};
  const std::string element = a.text("elem_dtype", "torch.dtype");
  if (element == "float4_e2m1fn_x2") {
    scheme.element = ElementFormat::e2m1;
    scheme.bits = 4;
  } else if (element != "float8_e4m3fn") {
    a.refuse("elem_dtype");
  }
  a.require("block_size", Json(kMxBlockSize));
  return scheme;
}

void read_mx(const Attributes& a, const Shape&, TorchaoWeight& weight) {
  weight.weights = mx_scheme(a);
  weight.codes_in_pairs = weight.weights.bits == 4;
  a.require("is_swizzled_scales", Json(false));
  if (a.is_null("act_quant_kwargs")) return;
  const Attributes inputs = a.inner("act_quant_kwargs", "QuantizeTensorToMXKwargs");
  if (inputs.text("scaling_mode", "ScaleCalculationMode") != "RCEIL") inputs.refuse("scaling_mode");
  weight.inputs = mx_scheme(inputs);
}

void read_nvfp4(const Attributes& a, const Shape&, TorchaoWeight& weight) {
  weight.weights = {.element = ElementFormat::e2m1,
                    .bits = 4,
                    .sharing = ScaleSharing::group,
                    .group_size = kNvfp4BlockSize,
                    .scale = ScaleForm::e4m3_two_level};
  weight.codes_in_pairs = true;
  a.require("block_size", Json(kNvfp4BlockSize));
  a.require("is_swizzled_scales", Json(false));
  if (!a.is_null("act_quant_kwargs")) a.refuse("act_quant_kwargs");
}

struct TorchaoReader {
  std::string_view name;
  void (*read)(const Attributes& attributes, const Shape& stored, TorchaoWeight& weight);
  std::array<std::string_view, 4> parts;  // supported parts
};

constexpr std::array kReaders = {
    TorchaoReader{"Int8Tensor", read_int8, {"qdata", "scale", "zero_point"}},
    TorchaoReader{"IntxUnpackedToInt8Tensor", read_intx, {"qdata", "scale", "zero_point"}},
    TorchaoReader{"Float8Tensor", read_float8, {"qdata", "scale"}},
    TorchaoReader{"MXTensor", read_mx, {"qdata", "scale"}},
    TorchaoReader{"NVFP4Tensor", read_nvfp4, {"qdata", "scale", "per_tensor_scale"}},
};

std::string type_of(const Json& description, std::string_view source) {
  const Json* type = description.is_object() ? description.find("_type") : nullptr;
  QUENCH_CHECK_AS(ErrorCode::corrupt, type != nullptr && type->is_string(), "{}: the metadata have no class name",
                  source);
  return type->as_string();
}

}  // namespace

bool TorchaoWeight::has(std::string_view part) const {
  return std::ranges::find(parts, part) != parts.end();
}

std::optional<std::vector<std::string>> torchao_parts(const Json& description, std::string_view source) {
  if (type_of(description, source) == "Tensor") return std::nullopt;
  const Json* names = description.find("_tensor_data_names");
  QUENCH_CHECK_AS(ErrorCode::corrupt, names != nullptr && names->is_array(), "{}: _tensor_data_names is missing",
                  source);
  std::vector<std::string> parts;
  for (const Json& name : names->as_array()) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, name.is_string(), "{}: _tensor_data_names holds {}", source, name.dump());
    parts.push_back(name.as_string());
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, std::ranges::find(parts, "qdata") != parts.end(), "{}: it has no qdata", source);
  return parts;
}

TorchaoWeight describe_torchao_weight(const Json& description, const Shape& stored, std::string_view source) {
  const std::string name = type_of(description, source);
  const auto* reader = std::ranges::find(kReaders, name, &TorchaoReader::name);
  std::string known;
  for (const TorchaoReader& one : kReaders) known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
  QUENCH_CHECK_AS(ErrorCode::unsupported, reader != kReaders.end(),
                  "{}: weights of TorchAO's class {} are not supported; known: {}", source, name, known);
  TorchaoWeight weight;
  weight.parts = *torchao_parts(description, source);
  for (const std::string& part : weight.parts)
    QUENCH_CHECK_AS(ErrorCode::unsupported, std::ranges::find(reader->parts, part) != reader->parts.end(),
                    "{}: {} with {} is not supported", source, name, part);
  const Json* data = description.find("_data");
  QUENCH_CHECK_AS(ErrorCode::corrupt, data != nullptr, "{}: _data is missing", source);
  QUENCH_CHECK_AS(ErrorCode::corrupt, stored.rank() == 2, "{}: its codes have shape {}", source, stored.to_string());
  reader->read(Attributes(*data, std::string(source)), stored, weight);
  return weight;
}

}  // namespace quench
