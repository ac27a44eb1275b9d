#include "export/formats/torchao/writer.h"

#include <algorithm>
#include <array>

#include "core/ops/elementwise.h"
#include "core/ops/quantize/quantize.h"
#include "core/safetensors/safetensors_folder.h"
#include "export/formats/export_mark.h"
#include "export/formats/safetensors_items.h"

namespace quench {
namespace {

// Python object.
Json typed(std::string_view type, Json data) {
  return Json::Object{{"_type", std::string(type)}, {"_data", std::move(data)}};
}
Json torch_dtype(std::string_view name) {
  return typed("torch.dtype", Json(name));
}
Json torch_dtype(DType dtype) {
  return torch_dtype(dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32");
}
Json configuration(std::string_view type, int version, Json::Object data) {
  return Json::Object{{"_type", std::string(type)}, {"_version", version}, {"_data", std::move(data)}};
}
Json granularity(std::string_view type, Json::Object data = {}) {
  return Json::Object{{"_type", std::string(type)}, {"_version", 1}, {"_data", std::move(data)}};
}
Json mapping(const OperandScheme& scheme) {
  return typed("MappingType", scheme.symmetric() ? "SYMMETRIC" : "ASYMMETRIC");
}

Tensor as_dtype(const Tensor& values, DType dtype) {
  if (values.dtype() == dtype) return values;
  const Tensor out = Tensor::empty(values.shape(), dtype);
  cast({values, out});
  return out;
}

Json block_size(const QuantizedWeight& q) {
  const bool tensor = q.scheme.sharing == ScaleSharing::tensor;
  return Json::Array{tensor ? q.shape[0] : 1, q.scheme.group_size > 0 ? q.scheme.group_size : q.shape[1]};
}

// By attribute.
class Parts {
 public:
  Parts(SafetensorsItems& items, const ModelTensor& tensor) : items_(items), prefix_(tensor.layer + "._weight_") {}
  void add(std::string_view part, const Tensor& tensor) {
    items_.add(prefix_ + std::string(part), tensor);
    names_.push_back(std::string(part));
  }
  void add_bytes(std::string_view part, const Shape& shape, const Tensor& tensor) {
    items_.add_bytes(prefix_ + std::string(part), shape, tensor);
    names_.push_back(std::string(part));
  }
  [[nodiscard]] Json names() const { return names_; }

 private:
  SafetensorsItems& items_;
  std::string prefix_;
  Json::Array names_;
};

// Supported schemes, storage, equivalent config.
struct TorchaoClass {
  std::string_view name;
  bool (*holds)(const Scheme& scheme);
  // Returns the attributes.
  Json (*store)(const ModelTensor& tensor, Parts& parts);
  Json (*configuration)(const Scheme& scheme);
};

bool is_integers(const OperandScheme& s) {
  return !s.element && !s.blocks && (s.sharing == ScaleSharing::row || s.sharing == ScaleSharing::group) &&
         (s.symmetric() || s.mapping == IntMapping::asymmetric);
}

// 8-bit, symmetric.
bool is_int8_rows(const OperandScheme& s) {
  return is_integers(s) && s.bits == 8 && s.sharing == ScaleSharing::row && s.symmetric() && !s.calibrated;
}

bool holds_int8(const Scheme& scheme) {
  return is_int8_rows(scheme.weights) && (!scheme.inputs || is_int8_rows(*scheme.inputs));
}

Json store_int8(const ModelTensor& tensor, Parts& parts) {
  const QuantizedWeight& q = *tensor.quantized;
  parts.add("qdata", q.codes);
  parts.add("scale", q.scales);
  Json inputs;
  if (tensor.scheme->inputs)
    inputs =
        typed("QuantizeTensorToInt8Kwargs", Json::Object{{"granularity", typed("PerRow", Json::Object{{"dim", -1}})},
                                                         {"mapping_type", mapping(*tensor.scheme->inputs)},
                                                         {"reduce_range", false}});
  return Json::Object{{"act_quant_kwargs", inputs},
                      {"reduce_range", false},
                      {"block_size", block_size(q)},
                      {"dtype", torch_dtype(tensor.dtype)}};
}

Json configure_int8(const Scheme& scheme) {
  if (!scheme.inputs) return configuration("Int8WeightOnlyConfig", 2, {});
  return configuration("Int8DynamicActivationInt8WeightConfig", 2,
                       {{"act_mapping_type", mapping(*scheme.inputs)}, {"weight_only_decode", false}});
}

bool holds_intx(const Scheme& scheme) {
  if (!is_integers(scheme.weights)) return false;
  if (!scheme.inputs) return true;
  const OperandScheme& inputs = *scheme.inputs;
  return !inputs.element && inputs.bits == 8 && inputs.mapping == IntMapping::asymmetric && !inputs.calibrated;
}

Json store_intx(const ModelTensor& tensor, Parts& parts) {
  const QuantizedWeight& q = *tensor.quantized;
  parts.add("qdata", q.codes);
  parts.add("scale", q.scales);
  const Tensor zeros = Tensor::zeros(q.scales.shape(), DType::i8);
  if (q.zero_points.defined())
    for (std::int64_t i = 0; i < zeros.numel(); ++i)
      zeros.data<std::int8_t>()[i] = static_cast<std::int8_t>(q.zero_points.data<float>()[i]);
  parts.add("zero_point", zeros);
  return Json::Object{{"target_dtype", torch_dtype(fmt::format("int{}", q.scheme.bits))},
                      {"block_size", block_size(q)},
                      {"dtype", torch_dtype(tensor.dtype)},
                      {"activation_quantization", tensor.scheme->inputs ? Json("int8_asym_per_token") : Json()}};
}

Json configure_intx(const Scheme& scheme) {
  const OperandScheme& w = scheme.weights;
  const Json sharing = w.group_size > 0 ? granularity("PerGroup", {{"group_size", w.group_size}})
                                        : granularity("PerAxis", {{"axis", 0}});
  const Json bits = torch_dtype(fmt::format("int{}", w.bits));
  if (!scheme.inputs)
    return configuration("IntxWeightOnlyConfig", 2,
                         {{"weight_dtype", bits}, {"granularity", sharing}, {"mapping_type", mapping(w)}});
  return configuration("Int8DynamicActivationIntxWeightConfig", 2,
                       {{"weight_dtype", bits}, {"weight_granularity", sharing}, {"weight_mapping_type", mapping(w)}});
}

bool holds_float8(const Scheme& scheme) {
  const auto float8 = [](const OperandScheme& s) {
    return s.element == ElementFormat::e4m3 && s.scale == ScaleForm::high_precision && !s.calibrated;
  };
  const OperandScheme& w = scheme.weights;
  if (!float8(w)) return false;
  if (!scheme.inputs) return w.sharing == ScaleSharing::row || w.sharing == ScaleSharing::tensor;
  // GEMMs need the same granularity for both operands.
  return float8(*scheme.inputs) && w.sharing == ScaleSharing::row && scheme.inputs->sharing == ScaleSharing::row;
}

Json store_float8(const ModelTensor& tensor, Parts& parts) {
  const QuantizedWeight& q = *tensor.quantized;
  parts.add("qdata", q.codes);
  const Tensor scales = as_dtype(q.scales, DType::f32);
  parts.add("scale", scales.rank() == 2 ? scales : scales.view({1, 1}));
  const Json automatic = typed("KernelPreference", "AUTO");
  const Json products =
      typed("Float8MMConfig", Json::Object{{"emulate", false}, {"use_fast_accum", true}, {"pad_inner_dim", false}});
  Json inputs;
  if (tensor.scheme->inputs)
    inputs =
        typed("QuantizeTensorToFloat8Kwargs", Json::Object{{"float8_dtype", torch_dtype("float8_e4m3fn")},
                                                           {"granularity", typed("PerRow", Json::Object{{"dim", -1}})},
                                                           {"mm_config", products},
                                                           {"hp_value_lb", Json()},
                                                           {"hp_value_ub", Json()},
                                                           {"kernel_preference", automatic}});
  return Json::Object{{"block_size", block_size(q)},
                      {"mm_config", tensor.scheme->inputs ? products : Json()},
                      {"act_quant_kwargs", inputs},
                      {"kernel_preference", automatic},
                      {"dtype", torch_dtype(tensor.dtype)}};
}

Json configure_float8(const Scheme& scheme) {
  const Json rows = granularity("PerRow", {{"dim", -1}});
  if (!scheme.inputs)
    return configuration(
        "Float8WeightOnlyConfig", 2,
        {{"granularity", scheme.weights.sharing == ScaleSharing::row ? rows : granularity("PerTensor")}});
  return configuration("Float8DynamicActivationFloat8WeightConfig", 2, {{"granularity", Json::Array{rows, rows}}});
}

bool is_mx(const OperandScheme& s) {
  return s.scale == ScaleForm::e8m0 && (s.element == ElementFormat::e4m3 || s.element == ElementFormat::e2m1);
}

bool holds_mx(const Scheme& scheme) {
  return is_mx(scheme.weights) && (!scheme.inputs || *scheme.inputs == scheme.weights);
}

Json mx_element(const OperandScheme& s) {
  return torch_dtype(s.element == ElementFormat::e4m3 ? "float8_e4m3fn" : "float4_e2m1fn_x2");
}

// 4-bit: in pairs.
void add_codes(Parts& parts, const QuantizedWeight& q) {
  if (q.codes.dtype() == DType::f4_e2m1)
    parts.add_bytes("qdata", {q.shape[0], q.shape[1] / 2}, q.codes);
  else
    parts.add("qdata", q.codes);
}

Json store_mx(const ModelTensor& tensor, Parts& parts) {
  const QuantizedWeight& q = *tensor.quantized;
  add_codes(parts, q);
  parts.add("scale", q.scales);
  const Json emulated = typed("KernelPreference", "EMULATED");
  Json inputs;
  if (tensor.scheme->inputs)
    inputs = typed("QuantizeTensorToMXKwargs", Json::Object{{"elem_dtype", mx_element(q.scheme)},
                                                            {"block_size", kMxBlockSize},
                                                            {"scaling_mode", typed("ScaleCalculationMode", "RCEIL")},
                                                            {"kernel_preference", emulated},
                                                            {"is_swizzled_scales", false}});
  return Json::Object{
      {"elem_dtype", mx_element(q.scheme)}, {"block_size", kMxBlockSize}, {"orig_dtype", torch_dtype(tensor.dtype)},
      {"kernel_preference", emulated},      {"act_quant_kwargs", inputs}, {"is_swizzled_scales", false}};
}

Json configure_mx(const Scheme& scheme) {
  return configuration("MXDynamicActivationMXWeightConfig", 1,
                       {{"block_size", kMxBlockSize},
                        {"activation_dtype", mx_element(scheme.weights)},
                        {"weight_dtype", mx_element(scheme.weights)}});
}

bool holds_nvfp4(const Scheme& scheme) {
  return scheme.weights.scale == ScaleForm::e4m3_two_level && !scheme.inputs;
}

Json store_nvfp4(const ModelTensor& tensor, Parts& parts) {
  const QuantizedWeight& q = *tensor.quantized;
  add_codes(parts, q);
  parts.add("scale", q.scales);
  parts.add("per_tensor_scale", q.global_scale.view({}));
  return Json::Object{{"is_swizzled_scales", false},
                      {"use_triton_kernel", false},
                      {"act_quant_kwargs", Json()},
                      {"block_size", kNvfp4BlockSize},
                      {"orig_dtype", torch_dtype(tensor.dtype)}};
}

Json configure_nvfp4(const Scheme&) {
  return configuration("NVFP4WeightOnlyConfig", 1, {});
}

// The first one that supports a scheme.
constexpr std::array kClasses = {
    TorchaoClass{"Int8Tensor", holds_int8, store_int8, configure_int8},
    TorchaoClass{"IntxUnpackedToInt8Tensor", holds_intx, store_intx, configure_intx},
    TorchaoClass{"Float8Tensor", holds_float8, store_float8, configure_float8},
    TorchaoClass{"MXTensor", holds_mx, store_mx, configure_mx},
    TorchaoClass{"NVFP4Tensor", holds_nvfp4, store_nvfp4, configure_nvfp4},
};

const TorchaoClass* class_of(const Scheme& scheme) {
  const auto* found = std::ranges::find_if(kClasses, [&](const TorchaoClass& one) { return one.holds(scheme); });
  return found == kClasses.end() ? nullptr : found;
}

}  // namespace

std::string torchao_problem(const Scheme& scheme) {
  return class_of(scheme) != nullptr ? "" : "no TorchAO class with safetensors support stores it";
}

Json write_torchao(const std::vector<ModelTensor>& tensors, const std::filesystem::path& folder,
                   std::uint64_t max_shard_bytes) {
  SafetensorsItems items;
  std::map<std::string, std::string> metadata = export_metadata();
  Json names = Json::array(), kept = Json::array();
  Json by_layer = Json::object(), only;
  bool mixed = false;
  for (const ModelTensor& tensor : tensors) {
    names.push_back(tensor.name);
    if (tensor.quantized == nullptr) {
      items.add(tensor);
      metadata[tensor.name] = R"({"_type": "Tensor"})";
      if (!tensor.layer.empty()) kept.push_back(tensor.layer);
      continue;
    }
    const TorchaoClass& type = *class_of(*tensor.scheme);
    Parts parts(items, tensor);
    Json described = typed(type.name, type.store(tensor, parts));
    described.set("_tensor_data_names", parts.names());
    metadata[tensor.name] = described.dump();
    Json how = type.configuration(*tensor.scheme);
    if (only.is_null()) only = how;
    mixed = mixed || !(how == only);
    by_layer.set(tensor.layer, std::move(how));
  }
  metadata["tensor_names"] = names.dump();
  write_safetensors_folder(folder, items.take(), max_shard_bytes, metadata);
  const Json quantized = mixed ? configuration("FqnToConfig", 1, {{"fqn_to_config", by_layer}}) : only;
  return Json::Object{{"quant_method", "torchao"},
                      {"quant_type", Json::Object{{"default", quantized}}},
                      {"modules_to_not_convert", kept},
                      {"include_input_output_embeddings", false},
                      {"untie_embedding_weights", false}};
}

}  // namespace quench
