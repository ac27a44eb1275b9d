// Adapters in llama.cpp's form: what --lora adds to a base file gives the file of the merged model.

#include "train/model_folder/gguf_adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/writer.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

nn::ModelConfig config_of(const char* family) {
  Json json = Json::parse(R"({"vocab_size": 48, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 8})");
  json.set("architectures", Json(Json::Array{Json(family)}));
  if (std::string_view(family) == "Qwen3MoeForCausalLM") {
    json.set("num_experts", std::int64_t{3});
    json.set("num_experts_per_tok", std::int64_t{2});
    json.set("moe_intermediate_size", std::int64_t{16});
    json.set("norm_topk_prob", true);
  }
  return nn::parse_model_config(json, "config.json");
}

std::vector<float> values_of(const std::filesystem::path& file, const GgufEntry& entry) {
  const Tensor values = Tensor::empty(entry.shape, DType::f32);
  read_gguf_tensor(file, entry, values);
  return {values.data<float>(), values.data<float>() + values.numel()};
}

class GgufAdapter : public ::testing::Test {
 protected:
  // Base, merged model and adapter as files, with random A and B.
  void write(const char* family, const recipes::LoraOptions& options) {
    nn::CausalLm model(config_of(family), {.dtype = DType::f32, .trainable = false});
    model.initialize(1);
    const auto write_model = [&](const char* name) {
      std::filesystem::create_directory(folder_ / name);
      (void)write_gguf({model_tensors(model, DType::f32), model.config(), folder_ / name, 1 << 30});
    };
    write_model("base");
    const recipes::Adapters adapters(model, recipes::lora_layers(model, options), options, {});
    std::uint64_t seed = 2;
    for (nn::Parameter* parameter : adapters.parameters()) {
      float* x = parameter->variable.value().data<float>();
      for (std::int64_t i = 0; i < parameter->variable.value().numel(); ++i)
        x[i] = static_cast<float>((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 40) * 0x1p-24f - 0.5f;
    }
    adapters.attach();
    save_gguf_adapter(model, adapters, {.folder = folder_ / "adapter.gguf"}, DType::f32);
    adapters.merge();
    write_model("merged");
  }

  // base + alpha / rank * B A against merged: the largest difference, of all adapted tensors.
  double difference() {
    const std::filesystem::path adapter = folder_ / "adapter.gguf";
    const GgufHead head = read_gguf_head(adapter);
    const double alpha = head.metadata.at("adapter.lora.alpha").as_double();
    const GgufHead base = read_gguf_head(folder_ / "base/model.gguf"),
                   merged = read_gguf_head(folder_ / "merged/model.gguf");
    const auto at = [](const GgufHead& of, const std::string& name) {
      return *std::ranges::find(of.tensors, name, &GgufEntry::name);
    };
    double most = 0;
    for (const GgufEntry& a : head.tensors) {
      if (!a.name.ends_with(".lora_a")) continue;
      const std::string name = a.name.substr(0, a.name.size() - 7);
      const GgufEntry b = at(head, name + ".lora_b"), before = at(base, name);
      const int axes = a.shape.rank();
      EXPECT_EQ(axes, before.shape.rank()) << name;
      const std::int64_t rank = a.shape[axes - 2], in = a.shape[axes - 1], out = b.shape[axes - 2];
      EXPECT_EQ(b.shape[axes - 1], rank) << name;
      const auto x = values_of(adapter, a), y = values_of(adapter, b);
      const auto w = values_of(folder_ / "base/model.gguf", before),
                 sum = values_of(folder_ / "merged/model.gguf", at(merged, name));
      const std::int64_t experts = axes == 3 ? a.shape[0] : 1;
      EXPECT_EQ(static_cast<std::int64_t>(w.size()), experts * out * in);
      for (std::int64_t i = 0; i < experts * out * in; ++i) {
        const std::int64_t expert = i / (out * in), row = i / in, column = i % in;
        double update = 0;
        for (std::int64_t r = 0; r < rank; ++r)
          update += static_cast<double>(y[static_cast<std::size_t>(row * rank + r)]) *
                    static_cast<double>(x[static_cast<std::size_t>((expert * rank + r) * in + column)]);
        const auto index = static_cast<std::size_t>(i);
        most = std::max(most, std::abs(w[index] + alpha / static_cast<double>(rank) * update - sum[index]));
      }
      ++adapted_;
    }
    return most;
  }

  TempDir folder_;
  int adapted_ = 0;
};

TEST_F(GgufAdapter, GivesTheMergedModelWithRanksAndScalesOfTheirOwn) {
  write("LlamaForCausalLM", {.rank = 4,
                             .alpha = 6,
                             .targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
                             .rank_pattern = {{"v_proj", 2}},
                             .alpha_pattern = {{"layers.1.mlp.up_proj", 24}}});
  EXPECT_LT(difference(), 1e-5);
  EXPECT_EQ(adapted_, 14);
  const GgufHead head = read_gguf_head(folder_ / "adapter.gguf");
  EXPECT_EQ(head.metadata.at("general.type"), Json("adapter"));
  EXPECT_EQ(head.metadata.at("general.architecture"), Json("llama"));
  EXPECT_EQ(head.metadata.at("adapter.type"), Json("lora"));
}

TEST_F(GgufAdapter, GivesTheMergedModelUnderRsloraAndForExperts) {
  write("LlamaForCausalLM", {.rank = 4, .alpha = 8, .targets = {"q_proj", "k_proj"}, .rslora = true});
  EXPECT_LT(difference(), 1e-5);
  EXPECT_EQ(adapted_, 4);
  std::filesystem::remove_all(folder_ / "base");
  std::filesystem::remove_all(folder_ / "merged");
  write("Qwen3MoeForCausalLM", {.rank = 4, .alpha = 8, .targets = {"q_proj", "down_proj", "up_proj"}});
  EXPECT_LT(difference(), 1e-5);
  EXPECT_EQ(adapted_, 4 + 6);
}

TEST_F(GgufAdapter, WhatLlamaCppCannotHoldIsRefusedAndNothingIsWritten) {
  const auto refused = [&](const recipes::LoraOptions& options) -> std::string {
    try {
      write("LlamaForCausalLM", options);
    } catch (const Error& error) {
      EXPECT_FALSE(std::filesystem::exists(folder_ / "adapter.gguf"));
      std::filesystem::remove_all(folder_ / "base");
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(refused({.rank = 4, .targets = {"q_proj"}, .dora = true}), HasSubstr("have no magnitudes (lora.dora)"));
  EXPECT_THAT(refused({.rank = 4, .targets = {"q_proj"}, .modules_to_save = {"lm_head"}}),
              HasSubstr("no whole modules and no rows of the embedding (lora.modules_to_save"));
}

}  // namespace
}  // namespace quench
