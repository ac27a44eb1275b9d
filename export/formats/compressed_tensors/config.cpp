#include "export/formats/compressed_tensors/config.h"

#include <algorithm>
#include <array>

#include "core/ops/quantize/quantize.h"
#include "core/system/check.h"
#include "export/kv_cache/kv_cache_scheme.h"

namespace quench {
namespace {

constexpr std::string_view kVersion = "0.20.0";  // written

std::string_view strategy_name(const OperandScheme& scheme, bool inputs) {
  switch (scheme.sharing) {
    case ScaleSharing::tensor: return "tensor";
    case ScaleSharing::row: return inputs ? "token" : "channel";
    case ScaleSharing::group: return scheme.scale == ScaleForm::e4m3_two_level ? "tensor_group" : "group";
    case ScaleSharing::block: return "block";
  }
  return "";
}

Json args_json(const OperandScheme& scheme, bool inputs) {
  Json json = Json::object();
  json.set("num_bits", scheme.bits);
  json.set("type", scheme.element ? "float" : "int");
  json.set("symmetric", scheme.symmetric());
  json.set("strategy", strategy_name(scheme, inputs));
  json.set("group_size", scheme.sharing == ScaleSharing::group ? Json(scheme.group_size) : Json());
  json.set("block_structure",
           scheme.sharing == ScaleSharing::block ? Json(Json::Array{scheme.group_size, scheme.group_size}) : Json());
  // NVFP4: dynamic block scales, calibrated global scale.
  const bool local = inputs && scheme.scale == ScaleForm::e4m3_two_level;
  json.set("dynamic", local ? Json("local") : Json(inputs && !scheme.calibrated));
  json.set("actorder", Json());
  json.set("scale_dtype", scheme.scale == ScaleForm::e8m0             ? Json("torch.uint8")
                          : scheme.scale == ScaleForm::e4m3_two_level ? Json("torch.float8_e4m3fn")
                                                                      : Json());
  json.set("zp_dtype", scheme.symmetric() ? Json() : Json("torch.int8"));
  json.set("observer", Json());
  json.set("observer_kwargs", Json::object());
  return json;
}

// Errors name the path.
class ArgsReader {
 public:
  ArgsReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, json.is_object(), "{}: expected an object, got {}", where_, json.type_name());
  }

  OperandScheme read() {
    OperandScheme scheme;
    scheme.bits = static_cast<int>(integer("num_bits", 8, 1, 8));
    const std::string type = text("type", "int");
    if (type == "float")
      scheme.element = float_element(scheme.bits);
    else if (type != "int")
      fail("type", type);
    const Json* symmetric = json_.find("symmetric");
    if (symmetric != nullptr && !symmetric->is_null() && !symmetric->as_bool()) {
      if (scheme.element) fail("symmetric", "false for floats");
      scheme.mapping = IntMapping::asymmetric;
    }
    read_sharing(scheme);
    const std::string order = text("actorder", "");
    if (order == "group" || order == "dynamic") fail("actorder", order);
    const Json* dynamic = json_.find("dynamic");
    const bool is_dynamic = dynamic != nullptr && !dynamic->is_null() && (dynamic->is_string() || dynamic->as_bool());
    scheme.calibrated = !is_dynamic;
    return scheme;
  }

 private:
  [[noreturn]] void fail(std::string_view key, std::string_view value) const {
    QUENCH_FAIL(ErrorCode::unsupported, "{}.{}: {} is not supported", where_, key, value);
  }

  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t least, std::int64_t most) const {
    const Json* value = json_.find(key);
    if (value == nullptr || value->is_null()) return fallback;
    QUENCH_CHECK_AS(ErrorCode::corrupt, value->is_integer() && value->as_int() >= least && value->as_int() <= most,
                    "{}.{}: expected an integer from {} to {}, got {}", where_, key, least, most, value->dump());
    return value->as_int();
  }

  std::string text(std::string_view key, std::string_view fallback) const {
    const Json* value = json_.find(key);
    if (value == nullptr || value->is_null()) return std::string(fallback);
    QUENCH_CHECK_AS(ErrorCode::corrupt, value->is_string(), "{}.{}: expected a string, got {}", where_, key,
                    value->type_name());
    return value->as_string();
  }

  ElementFormat float_element(int bits) const {
    if (bits == 8) return ElementFormat::e4m3;
    if (bits == 6) return ElementFormat::e2m3;
    if (bits == 4) return ElementFormat::e2m1;
    fail("num_bits", fmt::format("{} with type float", bits));
  }

  void read_sharing(OperandScheme& scheme) const {
    constexpr std::int64_t kMostGroup = 1 << 20;
    scheme.group_size = std::max<std::int64_t>(integer("group_size", 0, -1, kMostGroup), 0);
    const std::string strategy = text("strategy", scheme.group_size > 0 ? "group" : "tensor");
    using enum ScaleSharing;
    if (strategy == "tensor") {
      scheme.sharing = tensor;
    } else if (strategy == "channel" || strategy == "token") {
      scheme.sharing = row;
    } else if (strategy == "group" || strategy == "tensor_group") {
      scheme.sharing = group;
      if (scheme.group_size == 0) fail("group_size", "none for groups");
    } else if (strategy == "block") {
      scheme.sharing = block;
      scheme.group_size = block_side();
    } else {
      fail("strategy", strategy);
    }
    if (scheme.sharing == tensor || scheme.sharing == row) scheme.group_size = 0;
    if (strategy == "tensor_group")
      scheme.scale = ScaleForm::e4m3_two_level;
    else if (scheme.element && scheme.sharing == group && scheme.group_size == kMxBlockSize &&
             (scheme.bits < 8 || text("scale_dtype", "") == "torch.uint8"))
      scheme.scale = ScaleForm::e8m0;
  }

  std::int64_t block_side() const {
    const Json* block = json_.find("block_structure");
    QUENCH_CHECK_AS(ErrorCode::corrupt, block != nullptr && block->is_array() && block->as_array().size() == 2,
                    "{}.block_structure: expected [rows, columns]", where_);
    const std::int64_t rows = block->as_array()[0].as_int(), columns = block->as_array()[1].as_int();
    if (rows != columns || rows <= 0 || rows > 4096) fail("block_structure", block->dump());
    return rows;
  }

  const Json& json_;
  std::string where_;
};

struct FormName {
  std::string_view name;
  CompressedForm form;
};

// Unpacked values have three, by the readers' compute type.
constexpr std::array kForms = {
    FormName{"pack-quantized", CompressedForm::packed_integers},
    FormName{"mxfp8-quantized", CompressedForm::mxfp8},
    FormName{"mxfp6-pack-quantized", CompressedForm::mxfp6},
    FormName{"mxfp4-pack-quantized", CompressedForm::mxfp4},
    FormName{"nvfp4-pack-quantized", CompressedForm::nvfp4},
};

CompressedForm form_of(std::string_view name, const OperandScheme& weights, std::string_view where) {
  for (const FormName& row : kForms)
    if (row.name == name) return row.form;
  if (name == "int-quantized" || name == "float-quantized" || name == "naive-quantized")
    return weights.element ? CompressedForm::float8 : CompressedForm::integers;
  QUENCH_FAIL(ErrorCode::unsupported, "{}: format '{}' is not supported", where, name);
}

void check_form(const CompressedGroup& group, const std::string& where) {
  const auto& [form, weights, inputs, targets] = group;
  using enum CompressedForm;
  const bool integer_form = form == packed_integers || form == integers;
  const auto element = [&](ElementFormat wanted) { return weights.element == wanted; };
  const bool fits = integer_form     ? !weights.element
                    : form == float8 ? element(ElementFormat::e4m3) && weights.scale == ScaleForm::high_precision
                    : form == mxfp8  ? element(ElementFormat::e4m3) && weights.scale == ScaleForm::e8m0
                    : form == mxfp6  ? element(ElementFormat::e2m3) && weights.scale == ScaleForm::e8m0
                    : form == mxfp4  ? element(ElementFormat::e2m1) && weights.scale == ScaleForm::e8m0
                                     : element(ElementFormat::e2m1) && weights.scale == ScaleForm::e4m3_two_level;
  QUENCH_CHECK_AS(ErrorCode::unsupported, fits, "{}: the format contradicts the weights", where);
}

// Queries, keys and values of attention modules, which kv_cache_scheme repeats (llm-compressor).
bool is_of_attention(const Json& group) {
  const Json* targets = group.find("targets");
  return targets != nullptr && targets->is_array() && targets->as_array().size() == 1 &&
         targets->as_array()[0].is_string() && targets->as_array()[0].as_string().ends_with("Attention");
}

}  // namespace

std::string compressed_problem(const Scheme& scheme) {
  const OperandScheme& w = scheme.weights;
  if (w.blocks) return "its blocks are those of GGUF";
  if (!w.symmetric() && w.mapping != IntMapping::asymmetric) return "its zero points are no integers";
  if (w.element == ElementFormat::e3m2 || w.element == ElementFormat::e5m2)
    return fmt::format("it has no {} elements", to_string(*w.element));
  return {};
}

CompressedForm compressed_form(const Scheme& scheme) {
  const std::string problem = compressed_problem(scheme);
  QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "scheme {} cannot be stored as compressed-tensors: {}",
                  scheme.name, problem);
  const OperandScheme& w = scheme.weights;
  using enum CompressedForm;
  if (!w.element) {
    // Quantized inputs: unpacked integers in compressed-tensors; engines need packed ones with float8 inputs.
    const bool integer_inputs = scheme.inputs && !scheme.inputs->element;
    return integer_inputs ? integers : packed_integers;
  }
  if (w.scale == ScaleForm::e4m3_two_level) return nvfp4;
  if (w.scale == ScaleForm::high_precision) return float8;
  return w.bits == 8 ? mxfp8 : w.bits == 6 ? mxfp6 : mxfp4;
}

std::string_view format_name(const CompressedForm& form, const OperandScheme&, bool inputs) {
  for (const FormName& row : kForms)
    if (row.form == form) return row.name;
  if (form == CompressedForm::integers) return "int-quantized";
  return inputs ? "float-quantized" : "naive-quantized";
}

std::vector<std::string> tied_heads(const std::vector<ModelTensor>& tensors) {
  const std::string head(nn::kHeadName);
  const bool own = std::ranges::any_of(tensors, [&](const ModelTensor& t) { return t.name == head + ".weight"; });
  return own ? std::vector<std::string>() : std::vector{head};
}

Json compressed_config(const std::vector<CompressedGroup>& groups, const std::vector<std::string>& ignored,
                       const Json& kv_cache_scheme) {
  Json config_groups = Json::object();
  std::string_view format = "dense";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const CompressedGroup& group = groups[i];
    const std::string_view name = format_name(group.form, group.weights, group.inputs.has_value());
    format = i == 0 || format == name ? name : "mixed-precision";
    Json targets = Json::array();
    for (const std::string& target : group.targets) targets.push_back(target);
    Json json = Json::object();
    json.set("format", name);
    json.set("input_activations", group.inputs ? args_json(*group.inputs, true) : Json());
    json.set("output_activations", Json());
    json.set("targets", std::move(targets));
    json.set("weights", args_json(group.weights, false));
    config_groups.set(fmt::format("group_{}", i), std::move(json));
  }
  Json ignore = Json::array();
  for (const std::string& layer : ignored) ignore.push_back(layer);
  Json config = Json::object();
  config.set("config_groups", std::move(config_groups));
  config.set("format", format);
  config.set("global_compression_ratio", Json());
  config.set("ignore", std::move(ignore));
  config.set("kv_cache_scheme", kv_cache_scheme);
  config.set("quant_method", "compressed-tensors");
  config.set("quantization_status", "compressed");
  config.set("sparsity_config", Json::object());
  config.set("transform_config", Json::object());
  config.set("version", kVersion);
  return config;
}

std::vector<CompressedGroup> read_compressed_config(const Json& config, std::string_view source) {
  const std::string where = fmt::format("{}: quantization_config", source);
  for (const char* key : {"sparsity_config", "transform_config"}) {
    const Json* value = config.find(key);
    const bool empty =
        value == nullptr || value->is_null() ||
        (value->is_object() &&
         (value->as_object().empty() || (value->find("format") != nullptr && *value->find("format") == Json("dense"))));
    QUENCH_CHECK_AS(ErrorCode::unsupported, empty, "{}.{} is not supported", where, key);
  }
  std::vector<CompressedGroup> groups;
  if (quantizes_cache_alone(config)) return groups;
  for (const auto& [name, json] : config.at("config_groups").as_object()) {
    const std::string place = fmt::format("{}.config_groups.{}", where, name);
    QUENCH_CHECK_AS(ErrorCode::unsupported, json.is_object(), "{}: expected an object, got {}", place,
                    json.type_name());
    if (is_of_attention(json)) continue;
    const Json* weights = json.find("weights");
    const auto refuse = [&](std::string_view key, std::string_view what) {
      const Json* value = json.find(key);
      QUENCH_CHECK_AS(ErrorCode::unsupported, value == nullptr || value->is_null(), "{}.{}: {} are not supported",
                      place, key, what);
    };
    refuse("output_activations", "rounded outputs");
    if (weights == nullptr || weights->is_null()) {
      refuse("input_activations", "quantized inputs with unquantized weights");
      continue;
    }
    CompressedGroup group;
    group.weights = ArgsReader(*weights, place + ".weights").read();
    group.weights.calibrated = false;
    if (const Json* inputs = json.find("input_activations"); inputs != nullptr && !inputs->is_null())
      group.inputs = ArgsReader(*inputs, place + ".input_activations").read();
    const Json* format = json.find("format");
    if (format == nullptr || format->is_null()) format = &config.at("format");
    group.form = form_of(format->as_string(), group.weights, place);
    for (const Json& target : json.at("targets").as_array()) group.targets.push_back(target.as_string());
    check_form(group, place);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace quench
