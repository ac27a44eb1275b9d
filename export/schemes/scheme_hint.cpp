#include "export/schemes/scheme_hint.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/system/nearest_name.h"
#include "export/schemes/scheme.h"

namespace quench {
namespace {

// Lower case, "_" between words, without other programs' affixes.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    text += c == '-' || c == ' ' || c == '.' ? '_' : static_cast<char>(std::tolower(byte));
  }
  for (const std::string_view prefix : {"ggml_type_", "ggml_", "gguf_"})
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
  for (const std::string_view suffix : {"_config", "config"})
    if (text.ends_with(suffix) && text.size() > suffix.size()) text.resize(text.size() - suffix.size());
  return text;
}

struct Alias {
  std::string_view name;  // normalised
  std::array<std::string_view, 3> schemes;
};

constexpr std::array kAliases = {
    // compressed-tensors, llm-compressor, vLLM.
    Alias{"w4a16", {"int4_weight_only_g128", "int4_weight_only_g32"}},
    Alias{"w4a16_asym", {"int4_weight_only_g128_asym", "int4_weight_only_g32_asym"}},
    Alias{"w8a16", {"int8_weight_only", "int8_weight_only_g128"}},
    Alias{"w8a8", {"int8dyn_int8", "float8_dynamic", "int8static_int8"}},
    Alias{"w8a8_int8", {"int8dyn_int8", "int8static_int8"}},
    Alias{"int8_w8a8", {"int8dyn_int8", "int8static_int8"}},
    Alias{"w8a8_fp8", {"float8_dynamic", "float8_static"}},
    Alias{"fp8_w8a8", {"float8_dynamic", "float8_static"}},
    Alias{"w4a8", {"int8dyn_int4_g128", "float8dyn_int4_g128"}},
    Alias{"w4a8_int8", {"int8dyn_int4_g128"}},
    Alias{"w4afp8", {"float8dyn_int4_g128"}},
    Alias{"w4a8_fp8", {"float8dyn_int4_g128"}},
    Alias{"w8a16_fp8", {"float8_weight_only"}},
    Alias{"w3a16", {"int3_weight_only_g128"}},
    Alias{"w2a16", {"int2_weight_only_g128"}},
    Alias{"binary", {"binary_weight_only_g64", "binary_weight_only"}},
    Alias{"ternary", {"ternary_weight_only_g64", "ternary_weight_only", "tq2_0"}},
    Alias{"bitnet", {"ternary_weight_only_g64", "ternary_weight_only", "tq2_0"}},
    Alias{"seq", {"seq_weight_only_g64", "seq_weight_only"}},
    Alias{"seq2", {"seq_weight_only_g64", "seq_weight_only"}},
    Alias{"w6a16", {"int6_weight_only_g128"}},
    Alias{"fp8", {"float8_dynamic", "float8_static", "float8_weight_only"}},
    Alias{"float8", {"float8_dynamic", "float8_static", "float8_weight_only"}},
    Alias{"fp8_e4m3", {"float8_dynamic", "float8_static", "float8_weight_only"}},
    Alias{"e4m3", {"float8_dynamic", "float8_static", "float8_weight_only"}},
    Alias{"fp8_dynamic", {"float8_dynamic"}},
    Alias{"fp8_static", {"float8_static"}},
    Alias{"fp8_block", {"float8_dynamic_block"}},
    Alias{"float8_block", {"float8_dynamic_block"}},
    Alias{"block_fp8", {"float8_dynamic_block"}},
    Alias{"fp8_weight_only", {"float8_weight_only"}},
    Alias{"nvfp4a16", {"nvfp4_weight_only"}},
    Alias{"nvfp4_w4a16", {"nvfp4_weight_only"}},
    Alias{"nvfp4_w4a4", {"nvfp4"}},
    Alias{"fp4", {"nvfp4", "mxfp4", "nvfp4_weight_only"}},
    Alias{"mxfp4a16", {"mxfp4_weight_only"}},
    Alias{"mxfp8a16", {"mxfp8_weight_only"}},
    Alias{"mxfp6a16", {"mxfp6_weight_only"}},
    // TorchAO, torchtune, axolotl.
    Alias{"int4", {"int4_weight_only_g128", "int4_weight_only_g32", "int8dyn_int4_g32"}},
    Alias{"int8", {"int8_weight_only", "int8dyn_int8"}},
    Alias{"int4_weight_only_group", {"int4_weight_only_g128", "int4_weight_only_g32"}},
    Alias{"int4wo", {"int4_weight_only_g128", "int4_weight_only_g32"}},
    Alias{"int8wo", {"int8_weight_only"}},
    Alias{"float8wo", {"float8_weight_only"}},
    Alias{"float8dq", {"float8_dynamic"}},
    Alias{"int8dq", {"int8dyn_int8"}},
    Alias{"8da4w", {"int8dyn_int4_g32", "int8dyn_int4_g128"}},
    Alias{"4w", {"int4_weight_only_g32", "int4_weight_only_g128"}},
    Alias{"int4weightonly", {"int4_weight_only_g128", "int4_weight_only_g32"}},
    Alias{"int8weightonly", {"int8_weight_only"}},
    Alias{"float8weightonly", {"float8_weight_only"}},
    Alias{"int8dynamicactivationint8weight", {"int8dyn_int8"}},
    Alias{"int8_dynamic_activation_int8_weight", {"int8dyn_int8"}},
    Alias{"int8dynamicactivationint4weight", {"int8dyn_int4_g32", "int8dyn_int4_g128"}},
    Alias{"int8_dynamic_activation_int4_weight", {"int8dyn_int4_g32", "int8dyn_int4_g128"}},
    Alias{"int8dynact_int4", {"int8dyn_int4_g32", "int8dyn_int4_g128"}},
    Alias{"float8dynamicactivationfloat8weight", {"float8_dynamic"}},
    Alias{"float8_dynamic_activation_float8_weight", {"float8_dynamic"}},
    Alias{"float8_dynamic_activation_int4_weight", {"float8dyn_int4_g128"}},
    // Bit width implied.
    Alias{"awq", {"int4_weight_only_g128_asym", "int4_weight_only_g128"}},
    Alias{"gptq", {"int4_weight_only_g128", "int4_weight_only_g32"}},
    Alias{"hqq", {"int4_weight_only_g64_asym", "int4_weight_only_g128_asym"}},
    Alias{"bnb", {"int4_weight_only_g64", "int8_weight_only"}},
    Alias{"bitsandbytes", {"int4_weight_only_g64", "int8_weight_only"}},
    Alias{"nf4", {"int4_weight_only_g64", "int4_weight_only_g32"}},
    Alias{"4bit", {"int4_weight_only_g128", "int4_weight_only_g32", "q4_k_m"}},
    Alias{"8bit", {"int8_weight_only", "int8dyn_int8", "q8_0"}},
    // llama.cpp: other names of its mixes, and types that are read only.
    Alias{"q8", {"q8_0"}},
    Alias{"q6", {"q6_k"}},
    Alias{"q5", {"q5_k_m", "q5_0"}},
    Alias{"q4", {"q4_k_m", "q4_0"}},
    Alias{"q3", {"q3_k_m"}},
    Alias{"q2", {"q2_k"}},
    Alias{"iq4", {"iq4_xs", "iq4_nl"}},
    Alias{"iq3", {"iq3_m", "iq3_s"}},
    Alias{"iq2", {"iq2_m", "iq2_xs"}},
    Alias{"iq1_s", {"iq2_xxs"}},
    Alias{"iq1_m", {"iq2_xxs"}},
    Alias{"mxfp4_moe", {"mxfp4_gguf"}},
};

// "int4_g128", "int4_128", "w4a16_g128".
std::string without_group(const std::string& name, std::string& group) {
  const std::size_t bar = name.rfind('_');
  if (bar == std::string::npos) return name;
  std::string last = name.substr(bar + 1);
  if (last.starts_with('g')) last.erase(0, 1);
  if (last != "32" && last != "64" && last != "128" && last != "256") return name;
  group = "_g" + last;
  return name.substr(0, bar);
}

// Requested group first.
std::vector<std::string> aliased(const std::string& name) {
  std::string group;
  for (const std::string& key : {name, without_group(name, group)}) {
    const auto* alias = std::ranges::find(kAliases, key, &Alias::name);
    if (alias == kAliases.end()) continue;
    std::vector<std::string> schemes;
    for (const std::string_view scheme : alias->schemes)
      if (!scheme.empty()) schemes.emplace_back(scheme);
    if (key != name) {  // replaces the group of each scheme
      std::string ignored;
      const std::string grouped = without_group(schemes.front(), ignored) + group;
      if (find_scheme(grouped) != nullptr) return {grouped};
    }
    return schemes;
  }
  return {};
}

}  // namespace

std::vector<std::string> similar_schemes(std::string_view name) {
  const std::string wanted = plain(name);
  if (find_scheme(wanted) != nullptr) return {wanted};
  if (std::vector<std::string> found = aliased(wanted); !found.empty()) return found;
  std::vector<std::string> names;
  for (const Scheme& scheme : scheme_table()) names.push_back(scheme.name);
  const std::string near = nearest_name(wanted, names);
  return near.empty() ? std::vector<std::string>() : std::vector{near};
}

std::string missing_scheme_reason(std::string_view name) {
  const std::string wanted = plain(name);
  std::string group;
  if (without_group(wanted, group) == "int1_weight_only")
    return fmt::format(
        "one bit without a zero point has the values -1 and 0, and every weight becomes 0; use int1_weight_only{}_asym "
        "or int2_weight_only{}",
        group, group);
  return {};
}

}  // namespace quench
