#include <gmock/gmock.h>

#include <limits>

#include "core/safetensors/safetensors_folder.h"
#include "export/formats/export_mark.h"
#include "export/kv_cache/kv_cache_scales.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;

nn::ModelConfig config_of(const char* more = "") {
  return nn::parse_model_config(
      Json::parse(fmt::format(R"({{"model_type": "llama", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3{}}})",
                              more)),
      "config.json");
}

Json config_with(const Json& scheme) {
  Json config = Json::object();
  config.set("quant_method", "compressed-tensors");
  config.set("kv_cache_scheme", scheme);
  return config;
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(KvCacheScheme, IsReadAsWritten) {
  for (const KvFormat& format : kv_formats())
    for (const KvScaleChoice& scales : kv_scale_choices()) {
      const Json written = to_json(KvCacheScheme{&format, &scales});
      const auto read = read_kv_cache_scheme(config_with(written), "config.json");
      ASSERT_TRUE(read.has_value());
      EXPECT_EQ(read->format, &format);
      EXPECT_EQ(read->scales, &scales);
    }
  const Json fp8 = to_json(KvCacheScheme{&kv_formats().front(), &kv_scale_choices().front()});
  EXPECT_EQ(fp8.at("num_bits"), Json(8));
  EXPECT_EQ(fp8.at("type"), Json("float"));
  EXPECT_EQ(fp8.at("strategy"), Json("tensor"));
  EXPECT_EQ(fp8.at("symmetric"), Json(true));
  EXPECT_EQ(fp8.at("dynamic"), Json(false));
  EXPECT_FALSE(read_kv_cache_scheme(Json::parse(R"({"kv_cache_scheme": null})"), "c").has_value());
  // As short as other programs write it.
  const auto brief = read_kv_cache_scheme(Json::parse(R"({"kv_cache_scheme": {"num_bits": 8, "type": "float"}})"), "c");
  EXPECT_EQ(brief->scales->name, "tensor");
}

TEST(KvCacheScheme, WhatIsNotSupportedIsNamed) {
  const auto error = [](const char* key, const Json& value) {
    Json scheme = to_json(KvCacheScheme{&kv_formats().front(), &kv_scale_choices().front()});
    scheme.set(key, value);
    return error_of([&] { (void)read_kv_cache_scheme(config_with(scheme), "m/config.json"); });
  };
  EXPECT_THAT(error("num_bits", 4), AllOf(HasSubstr("m/config.json: quantization_config.kv_cache_scheme.num_bits: 4"),
                                          HasSubstr("expected 8")));
  EXPECT_THAT(error("type", "complex"), HasSubstr("kv_cache_scheme.type"));
  EXPECT_THAT(error("symmetric", false), HasSubstr("kv_cache_scheme.symmetric"));
  EXPECT_THAT(error("strategy", "channel"), HasSubstr("expected \"tensor\" or \"attn_head\""));
  EXPECT_THAT(error("dynamic", "local"), HasSubstr("kv_cache_scheme.dynamic"));
  EXPECT_THAT(error_of([] { (void)read_kv_cache_scheme(config_with(Json(3)), "m"); }), HasSubstr("expected an object"));
}

class KvScales : public ::testing::Test {
 protected:
  KvScales() { model.initialize(7); }

  static KvCacheScheme scheme_of(std::string_view scales, std::string_view format = "fp8") {
    return {kv_formats().find(format), kv_scale_choices().find(scales)};
  }
  void write(const StoredKvCache& cache) {
    SafetensorsItems items;
    add_kv_scales(items, cache);
    write_safetensors_folder(folder.path(), items.take(), 1 << 30, export_metadata());
  }
  // Folder with these scales of layer 0's keys, and 1 for the rest.
  std::string reading_error(const KvCacheScheme& scheme, const Tensor& first) {
    SafetensorsItems items;
    items.add("model.layers.0.self_attn.k_scale", first);
    const Tensor one = Tensor::from_values<float>({1}, std::array{1.0f});
    for (const char* name :
         {"model.layers.0.self_attn.v_scale", "model.layers.1.self_attn.k_scale", "model.layers.1.self_attn.v_scale"})
      items.add(name, one);
    write_safetensors_folder(folder.path(), items.take(), 1 << 30, export_metadata());
    return error_of([&] { (void)read_kv_cache(folder.path(), scheme, model.config(), Device{}); });
  }

  TempDir folder;
  nn::CausalLm model{config_of(), nn::ParameterOptions{}};
  std::vector<std::vector<std::int32_t>> sequences{{3, 1, 4, 1, 5, 9, 2, 6}, {5, 3, 5, 8, 9}};
};

TEST_F(KvScales, AreTheLargestMagnitudesByTheLargestCode) {
  // Magnitudes in the cache itself.
  std::vector<std::vector<float>> most(2, std::vector<float>(4));
  const autograd::NoGrad no_grad;
  for (const auto& sequence : sequences) {
    nn::KvCache cache = model.make_cache(8);
    const auto tokens = static_cast<std::int64_t>(sequence.size());
    nn::ForwardContext context = model.make_context({{0, tokens, 0, tokens}}, tokens);
    context.cache = &cache;
    (void)model.hidden(Tensor::from_values<std::int32_t>({tokens}, sequence), context);
    for (std::int64_t layer = 0; layer < 2; ++layer)
      for (std::int64_t i = 0; i < tokens * 32; ++i) {
        float& largest = most[static_cast<std::size_t>(layer)][static_cast<std::size_t>(i % 32 / 8)];
        largest = std::max(largest, std::abs(cache.rows(layer).data<float>()[i]));
      }
  }
  for (const KvFormat& format : kv_formats()) {
    const auto by_head = calibrate_kv_cache(model, scheme_of("head", format.name), sequences);
    const auto by_tensor = calibrate_kv_cache(model, scheme_of("tensor", format.name), sequences);
    ASSERT_EQ(by_head.scales.size(), 2u);
    for (std::size_t layer = 0; layer < 2; ++layer)
      for (std::size_t h = 0; h < 4; ++h) {
        EXPECT_EQ(by_head.scales[layer].data<float>()[h], most[layer][h] / format.largest);
        const std::size_t first = h / 2 * 2;
        EXPECT_EQ(by_tensor.scales[layer].data<float>()[h],
                  std::max(most[layer][first], most[layer][first + 1]) / format.largest);
      }
  }
  EXPECT_TRUE(calibrate_kv_cache(model, scheme_of("dynamic"), {}).scales.empty());
}

TEST_F(KvScales, ModelsThatAreNotFiniteAreNamed) {
  for (nn::Parameter* parameter : model.parameters())
    if (parameter->name.find("layers.1.self_attn.qkv_proj") != std::string::npos)
      parameter->variable.value().data<float>()[33 * 32] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error_of([&] { (void)calibrate_kv_cache(model, scheme_of("tensor"), sequences); }),
              HasSubstr("keys of layer 1 are not finite"));
}

TEST_F(KvScales, AreReadAsWritten) {
  for (const char* scales : {"tensor", "head"}) {
    const KvCacheScheme scheme = scheme_of(scales);
    const StoredKvCache stored{scheme, calibrate_kv_cache(model, scheme, sequences)};
    write(stored);
    const SafetensorsFolder files(folder.path());
    EXPECT_EQ(files.at("model.layers.1.self_attn.v_scale").entry->shape,
              scheme.by_head() ? (Shape{2, 1, 1}) : (Shape{1}));
    const nn::KvCacheElements read = read_kv_cache(folder.path(), scheme, model.config(), Device{});
    EXPECT_EQ(read.format, scheme.format);
    for (std::size_t layer = 0; layer < 2; ++layer)
      for (int h = 0; h < 4; ++h)
        EXPECT_EQ(read.scales[layer].data<float>()[h], stored.elements.scales[layer].data<float>()[h]);
  }
}

TEST_F(KvScales, OlderNamesAndPrefixesAreRead) {
  SafetensorsItems items;
  for (const char* layer : {"0", "1"})
    for (const char* part : {"k", "v"})
      items.add(fmt::format("language_model.model.layers.{}.self_attn.{}_proj.output_scale", layer, part),
                Tensor::from_values<float>({1}, std::array{0.25f}));
  write_safetensors_folder(folder.path(), items.take(), 1 << 30, export_metadata());
  const auto read = read_kv_cache(folder.path(), scheme_of("tensor"), model.config(), Device{});
  EXPECT_EQ(read.scales[1].data<float>()[3], 0.25f);
}

TEST_F(KvScales, BadScalesAreNamed) {
  const auto one = [](float value) { return Tensor::from_values<float>({1}, std::array{value}); };
  const KvCacheScheme tensor = scheme_of("tensor"), head = scheme_of("head");
  EXPECT_EQ(reading_error(tensor, one(0.5f)), "no error");
  for (const float value : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")})
    EXPECT_THAT(reading_error(tensor, one(value)),
                AllOf(HasSubstr("model.layers.0.self_attn.k_scale holds"), HasSubstr("expected positive finite"),
                      HasSubstr("--kv-cache model")));
  EXPECT_THAT(reading_error(tensor, Tensor::zeros({3}, DType::f32)), HasSubstr("expected one number"));
  EXPECT_THAT(reading_error(tensor, Tensor::zeros({1}, DType::i32)), HasSubstr("expected one number"));
  EXPECT_THAT(reading_error(head, one(0.5f)), HasSubstr("expected 2 numbers, one a KV head"));
  SafetensorsItems items;
  items.add("model.layers.0.self_attn.k_scale", one(1));
  write_safetensors_folder(folder.path(), items.take(), 1 << 30, export_metadata());
  EXPECT_THAT(error_of([&] { (void)read_kv_cache(folder.path(), tensor, model.config(), Device{}); }),
              HasSubstr("model.layers.0.self_attn.v_scale is missing"));
}

TEST_F(KvScales, LatentAttentionHasNoneInFolders) {
  EXPECT_NO_THROW(require_kv_scales(config_of()));
  nn::ModelConfig latent = config_of();
  latent.blocks.back().attention.mla.emplace();
  EXPECT_THROW(require_kv_scales(latent), Error);
}

}  // namespace
}  // namespace quench
