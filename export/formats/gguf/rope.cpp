#include "export/formats/gguf/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "export/formats/gguf/architectures/architecture.h"
#include "nn/modules/rope_scale.h"
#include "nn/modules/rope_table.h"

namespace quench {
namespace {

constexpr std::string_view kScaling = "rope.scaling.";
constexpr std::string_view kType = "rope.scaling.type", kFactor = "rope.scaling.factor",
                           kOriginal = "rope.scaling.original_context_length", kAttention = "rope.scaling.attn_factor",
                           kBetaFast = "rope.scaling.yarn_beta_fast", kBetaSlow = "rope.scaling.yarn_beta_slow",
                           // Hugging Face's attention_factor, in llama.cpp's converter.
    kHfAttention = "rope.scaling.yarn_attn_factor", kExtrapolation = "rope.scaling.yarn_ext_factor",
                           kFinetuned = "rope.scaling.finetuned", kLogMultiplier = "rope.scaling.yarn_log_multiplier";
constexpr std::array kKnown = {kType,        kFactor,        kOriginal,  kAttention,     kBetaFast,         kBetaSlow,
                               kHfAttention, kExtrapolation, kFinetuned, kLogMultiplier, kGgufYarnTruncated};
constexpr std::string_view kLongrope = "longrope";
constexpr std::string_view kOldLinear = "rope.scale_linear";

// Tensor against a config's divisors, relative.
constexpr double kTolerance = 1e-5;

// The first layer's: llama.cpp has one table for all layers of these architectures.
std::vector<float> frequencies_of(const nn::ModelConfig& config, const nn::RopeScaling& scaling) {
  nn::RotarySpec rotary = config.block(0).attention.rotary.value();
  rotary.scaling = scaling;
  return nn::rope_inverse_frequencies(rotary);
}

std::vector<float> divisors_of(const nn::ModelConfig& config) {
  const std::vector<float> scaled = frequencies_of(config, config.rope);
  std::vector<float> divisors = frequencies_of(config, {.theta = config.rope.theta});
  for (std::size_t i = 0; i < divisors.size(); ++i) divisors[i] /= scaled[i];
  return divisors;
}

// With llama.cpp's settings.
bool is_plain_yarn(const nn::ModelConfig& config) {
  nn::RopeScaling plain = config.rope;
  const nn::RopeScaling defaults;
  plain.beta_fast = defaults.beta_fast;
  plain.beta_slow = defaults.beta_slow;
  plain.truncate = defaults.truncate;
  return frequencies_of(config, plain) == frequencies_of(config, config.rope);
}

void add_yarn(const nn::ModelConfig& config, GgufRope& out) {
  const nn::RopeScaling& rope = config.rope;
  const GgufArchitecture& architecture = *find_gguf_architecture(config.model_type);
  const bool plain = is_plain_yarn(config) || architecture.unrounded_yarn;
  const auto add = [&](std::string_view key, auto value) { out.metadata.emplace_back(key, value); };
  add(kType, std::string(plain ? "yarn" : "none"));
  add(kFactor, static_cast<float>(rope.factor));
  add(kOriginal, static_cast<std::uint32_t>(rope.original_max_position_embeddings));
  out.rounded = !is_plain_yarn(config) && architecture.unrounded_yarn;
  if (architecture.unrounded_yarn) add(kGgufYarnTruncated, rope.truncate);
  if (!plain) out.divisors.all = divisors_of(config);
  if (architecture.latent_attention)
    return add(kLogMultiplier, static_cast<float>(0.1 * rope.mscale_all_dim.value_or(0.0)));
  const double implied = plain ? nn::yarn_mscale(rope.factor, 1.0) : 1.0;
  add(kAttention, static_cast<float>(nn::rope_attention_factor(rope) / implied));
  add(kBetaFast, static_cast<float>(rope.beta_fast));
  add(kBetaSlow, static_cast<float>(rope.beta_slow));
}

Json yarn_json(const GgufFields& fields, double factor) {
  Json scaling = Json::object();
  scaling.set("rope_type", "yarn");
  scaling.set("factor", factor);
  if (const auto original = fields.find_integer(kOriginal)) scaling.set("original_max_position_embeddings", *original);
  if (const auto beta = fields.find_number(kBetaFast)) scaling.set("beta_fast", *beta);
  if (const auto beta = fields.find_number(kBetaSlow)) scaling.set("beta_slow", *beta);
  return scaling;
}

// Equivalent Llama 3 settings. Between unscaled and scaled frequencies the unscaled share is linear in the turns over
// the original context: two divisors determine it; low_freq_factor is 1.
std::optional<Json> llama3_json(const std::vector<float>& divisors, double theta) {
  const double factor = *std::ranges::max_element(divisors);
  struct Point {
    double turns, kept;  // turns of one pair
  };
  std::vector<Point> points;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double d = divisors[i];
    if (d > 1 + kTolerance && d < factor * (1 - kTolerance))
      points.push_back(
          {std::pow(theta, -static_cast<double>(i) / static_cast<double>(divisors.size())) / (2 * std::numbers::pi),
           (1 / d - 1 / factor) / (1 - 1 / factor)});
  }
  if (points.size() < 2) return std::nullopt;
  const Point first = points.front(), last = points.back();
  const double slope = (first.kept - last.kept) / (first.turns - last.turns);
  const double below = slope * last.turns - last.kept;  // kept = slope * turns - below
  const double original = std::round(slope / below);
  if (!(below > 0) || !(original >= 1 && original < 1e9)) return std::nullopt;
  return Json(Json::Object{{"rope_type", "llama3"},
                           {"factor", factor},
                           {"low_freq_factor", 1.0},
                           {"high_freq_factor", std::round((1 + 1 / below) * 1000) / 1000},
                           {"original_max_position_embeddings", static_cast<std::int64_t>(original)}});
}

bool gives(Json config, const Json& scaling, const std::vector<float>& divisors, std::string_view source) {
  config.set("rope_scaling", scaling);
  const std::vector<float> given = divisors_of(nn::parse_model_config(config, source));
  return std::ranges::equal(given, divisors, [](double a, double b) { return std::abs(a - b) <= kTolerance * b; });
}

// Equivalent to the divisors.
Json scaling_of_divisors(const GgufFields& fields, const std::vector<float>& divisors, const Json& config, double theta,
                         double factor) {
  std::vector<Json> candidates;
  if (fields.find(kBetaFast) != nullptr && fields.find(kBetaSlow) != nullptr && fields.find(kOriginal) != nullptr) {
    Json yarn = yarn_json(fields, factor);
    yarn.set("attention_factor", fields.find_number(kAttention).value_or(1.0));
    for (const bool truncate : {true, false}) {
      yarn.set("truncate", truncate);
      candidates.push_back(yarn);
    }
  } else if (const auto llama3 = llama3_json(divisors, theta)) {
    candidates.push_back(*llama3);
  }
  for (const Json& candidate : candidates)
    if (gives(config, candidate, divisors, fields.source())) return candidate;
  QUENCH_FAIL(ErrorCode::unsupported,
              "{}: {} fits no known RoPE scaling; put the model's config.json into the file's folder", fields.source(),
              kRopeDivisors);
}

Json number_list(const std::vector<float>& values) {
  Json list = Json::array();
  for (const float value : values) list.push_back(Json(static_cast<double>(value)));
  return list;
}

// llama.cpp's converter writes no type.
void read_longrope(const GgufFields& fields, const GgufDivisors& divisors, Json& config) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, !divisors.shorter.empty() && !divisors.longer.empty(),
                  "{}: longrope needs both {} and {}", fields.source(), kShortDivisors, kLongDivisors);
  const auto original = fields.find_integer(kOriginal);
  QUENCH_CHECK_AS(ErrorCode::corrupt, original.has_value(), "{}: it has no {}", fields.source(),
                  fields.name(kOriginal));
  Json scaling = Json::object();
  scaling.set("rope_type", kLongrope);
  scaling.set("short_factor", number_list(divisors.shorter));
  scaling.set("long_factor", number_list(divisors.longer));
  scaling.set("attention_factor", fields.find_number(kAttention).value_or(1.0));
  config.set("original_max_position_embeddings", *original);
  config.set("rope_scaling", std::move(scaling));
}

void check_keys(const GgufFields& fields) {
  for (const std::string& key : fields.keys(kScaling))
    QUENCH_CHECK_AS(ErrorCode::unsupported, std::ranges::find(kKnown, key) != kKnown.end(),
                    "{}: {} is not supported; put the model's config.json into the file's folder", fields.source(),
                    fields.name(key));
  const double extrapolation = fields.find_number(kExtrapolation).value_or(1.0);
  QUENCH_CHECK_AS(ErrorCode::unsupported, extrapolation == 1, "{}: {} is {}, only 1 can be read", fields.source(),
                  fields.name(kExtrapolation), extrapolation);
}

}  // namespace

GgufRope gguf_rope(const nn::ModelConfig& config) {
  const nn::RopeScaling& rope = config.rope;
  using enum nn::RopeScaling::Type;
  QUENCH_CHECK(rope.type != dynamic, "GGUF has no dynamic RoPE scaling");
  GgufRope out;
  out.metadata.emplace_back("rope.dimension_count",
                            static_cast<std::uint32_t>(config.block(0).attention.rotary.value().dim));
  out.metadata.emplace_back("rope.freq_base", static_cast<float>(rope.theta));
  if (rope.type == llama3) out.divisors.all = divisors_of(config);
  if (rope.type == longrope) {
    out.metadata.emplace_back(kType, std::string(kLongrope));
    out.metadata.emplace_back(kOriginal, static_cast<std::uint32_t>(rope.original_max_position_embeddings));
    out.metadata.emplace_back(kAttention, static_cast<float>(nn::rope_attention_factor(rope)));
    out.divisors.shorter.assign(rope.short_factors.begin(), rope.short_factors.end());
    out.divisors.longer.assign(rope.long_factors.begin(), rope.long_factors.end());
  }
  if (rope.type == linear) {
    out.metadata.emplace_back(kType, std::string("linear"));
    out.metadata.emplace_back(kFactor, static_cast<float>(rope.factor));
  }
  if (rope.type == yarn) add_yarn(config, out);
  return out;
}

void read_gguf_rope(const GgufFields& fields, const GgufDivisors& tensors, Json& config) {
  check_keys(fields);
  const std::vector<float>& divisors = tensors.all;
  const double theta = fields.find_number("rope.freq_base").value_or(10000.0);
  config.set("rope_theta", theta);
  const std::string type = fields.find_text(kType).value_or("linear");
  const GgufArchitecture* architecture = find_gguf_architecture(config.at("model_type").as_string());
  if (architecture != nullptr && architecture->longrope && (type == kLongrope || !tensors.shorter.empty()))
    return read_longrope(fields, tensors, config);
  const auto old_factor = fields.find_number(kOldLinear);
  const double written = fields.find_number(kFactor).value_or(old_factor.value_or(1.0));
  const double factor = written == 0 ? 1.0 : written;
  const bool divided = !divisors.empty() && std::ranges::any_of(divisors, [](float d) { return d != 1; });
  if (divided && (type == "none" || (type == "linear" && factor == 1))) {
    config.set("rope_scaling", scaling_of_divisors(fields, divisors, config, theta, factor));
  } else if (divided) {
    QUENCH_FAIL(ErrorCode::unsupported,
                "{}: {} together with {} '{}'; put the model's config.json into the file's folder", fields.source(),
                kRopeDivisors, fields.name(kType), type);
  } else if (type == "linear" && factor != 1) {
    config.set("rope_scaling", Json::Object{{"rope_type", "linear"}, {"factor", factor}});
  } else if (type == "yarn") {
    Json scaling = yarn_json(fields, factor);
    if (const auto logarithm = fields.find_number(kLogMultiplier)) {
      scaling.set("mscale", *logarithm * 10);
      scaling.set("mscale_all_dim", *logarithm * 10);
    } else if (const auto multiplier = fields.find_number(kAttention))
      scaling.set("attention_factor", *multiplier * nn::yarn_mscale(factor, 1.0));
    else if (const auto attention = fields.find_number(kHfAttention))
      scaling.set("attention_factor", *attention);
    config.set("rope_scaling", std::move(scaling));
  } else {
    QUENCH_CHECK_AS(ErrorCode::unsupported, type == "none" || type == "linear",
                    "{}: {} is '{}'; none, linear and yarn can be read", fields.source(), fields.name(kType), type);
  }
}

}  // namespace quench
