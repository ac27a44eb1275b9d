// Folders of format mxfp4 (gpt-oss): their codes are those that QAT simulates, and unchanged ones keep their bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "core/ops/quantize/round_mx.h"
#include "core/safetensors/safetensors.h"
#include "core/safetensors/safetensors_folder.h"
#include "export/formats/safetensors_rows.h"
#include "tests/testing.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/stored_block_scales.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

nn::ModelConfig small_gpt_oss() {
  return nn::parse_model_config(Json::parse(R"({"architectures": ["GptOssForCausalLM"], "vocab_size": 16,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 16, "num_local_experts": 3, "num_experts_per_tok": 2})"),
                                "config.json");
}

ModelFolderOptions in_mxfp4(DType dtype = DType::bf16) {
  ModelFolderOptions options;
  options.dtype = dtype;
  options.format = &require_export_format("mxfp4", "format");
  options.quantization = QuantizationRules{.scheme = &require_scheme("mxfp4_weight_only", "scheme")};
  return options;
}

std::string file_of(const std::filesystem::path& folder) {
  return testing::read_file(folder / "model.safetensors");
}

void expect_equal_values(nn::CausalLm& a, nn::CausalLm& b) {
  for (std::size_t i = 0; i < a.parameters().size(); ++i) {
    const Tensor x = a.parameters()[i]->variable.value(), y = b.parameters()[i]->variable.value();
    EXPECT_EQ(std::memcmp(x.raw_data(), y.raw_data(), x.nbytes()), 0) << a.parameters()[i]->name;
  }
}

TEST(Mxfp4Folder, HoldsTheValuesThatTrainingSimulates) {
  const TempDir temp;
  nn::CausalLm model(small_gpt_oss(), {.dtype = DType::bf16});
  model.initialize(3);
  (void)save_model_folder(model, {temp / "out"}, in_mxfp4());
  const nn::ModelConfig config = read_model_config(temp / "out");
  nn::CausalLm loaded(config, {.dtype = DType::bf16});
  load_weights(loaded, temp / "out");
  for (nn::Parameter* parameter : model.parameters()) {  // as recipes/qat/fake_quantizer.h
    const Tensor weight = parameter->variable.value();
    if (parameter->experts == 0 || weight.rank() != 2) continue;
    const Tensor rounded = Tensor::empty_like(weight);
    round_mx({.x = weight, .out = rounded, .element = ElementFormat::e2m1});
    Tensor(weight).copy_from(rounded);
  }
  expect_equal_values(model, loaded);

  const SafetensorsFolder files(temp / "out");
  const auto shape = [&](const std::string& name) { return files.at("model.layers.1.mlp." + name).entry->shape; };
  EXPECT_EQ(shape("experts.gate_up_proj_blocks"), (Shape{3, 192, 2, 16}));
  EXPECT_EQ(shape("experts.gate_up_proj_scales"), (Shape{3, 192, 2}));
  EXPECT_EQ(shape("experts.gate_up_proj_bias"), (Shape{3, 192}));
  EXPECT_EQ(shape("experts.down_proj_blocks"), (Shape{3, 64, 3, 16}));
  EXPECT_EQ(shape("experts.down_proj_scales"), (Shape{3, 64, 3}));
  const Json quantization = Json::parse_file(temp / "out" / "config.json").at("quantization_config");
  EXPECT_EQ(quantization, Json::parse(R"({"quant_method": "mxfp4", "modules_to_not_convert":
      ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]})"));
}

// The folder with other codes and scales, among them blocks with an amax of 3 or less, which rounding would
// store under a smaller scale.
void replace_codes(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "model.safetensors";
  std::vector<std::pair<std::string, Tensor>> tensors;
  {
    const SafetensorsFolder files(folder);
    for (const std::string& name : files.names()) {
      const auto entry = files.at(name);
      const Tensor values = Tensor::empty(entry.entry->shape, *entry.entry->dtype);
      read_rows(entry, values, 0);
      for (std::int64_t i = 0; i < values.numel() && values.dtype() == DType::u8; ++i) {
        const std::uint64_t draw = std::uint64_t(i + 1) * 0x9E3779B97F4A7C15u;
        const auto byte = static_cast<std::uint8_t>(draw >> 40);
        const bool small = i / 16 % 3 == 0;
        values.data<std::uint8_t>()[i] = name.ends_with("_scales")
                                             ? static_cast<std::uint8_t>(110 + byte % 12)
                                             : static_cast<std::uint8_t>(byte & (small ? 0xBB : 0xFF));
      }
      tensors.emplace_back(name, values);
    }
  }
  std::vector<SafetensorsItem> items;
  for (const auto& [name, values] : tensors)
    items.push_back({name, values.dtype(), values.shape(),
                     std::span(static_cast<const std::byte*>(values.raw_data()), values.nbytes())});
  write_safetensors(path, items);
}

TEST(Mxfp4Folder, UnchangedCodesAndScalesKeepTheirBytes) {
  const TempDir temp;
  nn::CausalLm model(small_gpt_oss(), {.dtype = DType::bf16});
  model.initialize(3);
  (void)save_model_folder(model, {temp / "in"}, in_mxfp4());
  replace_codes(temp / "in");
  load_weights(model, temp / "in");
  ModelFolderOptions options = in_mxfp4();
  (void)save_model_folder(model, {temp / "rounded"}, options);
  options.quantization->block_scales = stored_block_scales(temp / "in");
  ASSERT_TRUE(options.quantization->block_scales);
  (void)save_model_folder(model, {temp / "out"}, options);
  const SafetensorsFolder in(temp / "in"), out(temp / "out");
  for (const std::string& name : in.names()) {
    const Tensor a = read_entry(in, in.at(name), in.at(name).entry->shape, *in.at(name).entry->dtype),
                 b = read_entry(out, out.at(name), a.shape(), a.dtype());
    EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), a.nbytes()), 0) << name;
  }
  EXPECT_NE(file_of(temp / "rounded"), file_of(temp / "out"));
  nn::CausalLm loaded(small_gpt_oss(), {.dtype = DType::bf16});
  load_weights(loaded, temp / "rounded");
  expect_equal_values(model, loaded);

  // A changed block is rounded, the others keep their bytes.
  for (nn::Parameter* parameter : model.parameters())
    if (parameter->experts > 0 && parameter->variable.value().rank() == 2)
      parameter->variable.value().data<bfloat16>()[5] = bfloat16(0.12345f);
  (void)save_model_folder(model, {temp / "changed"}, options);
  const SafetensorsFolder changed(temp / "changed");
  const std::string name = "model.layers.0.mlp.experts.down_proj_scales";
  const Tensor a = read_entry(in, in.at(name), in.at(name).entry->shape, DType::u8),
               b = read_entry(changed, changed.at(name), a.shape(), DType::u8);
  EXPECT_NE(a.data<std::uint8_t>()[0], b.data<std::uint8_t>()[0]);
  EXPECT_EQ(std::memcmp(a.data<std::uint8_t>() + 1, b.data<std::uint8_t>() + 1, a.nbytes() - 1), 0);
}

TEST(Mxfp4Folder, OtherModelsAndSchemesAreRefused) {
  const TempDir temp;
  const auto refusal = [&](nn::CausalLm& model, const ModelFolderOptions& options) -> std::string {
    try {
      (void)save_model_folder(model, {temp / "no"}, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  nn::CausalLm llama(
      nn::parse_model_config(Json::parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 16, "hidden_size": 32,
          "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1})"),
                             "config.json"),
      {});
  EXPECT_THAT(refusal(llama, in_mxfp4(DType::f32)), HasSubstr("model type 'llama' has no folders of MXFP4 experts"));
  nn::CausalLm model(small_gpt_oss(), {});
  model.initialize(1);
  ModelFolderOptions inputs = in_mxfp4(DType::f32);
  inputs.quantization->scheme = &require_scheme("mxfp4", "scheme");
  EXPECT_THAT(refusal(model, inputs), HasSubstr("it says nothing of inputs; mxfp4_weight_only has the same weights"));
  ModelFolderOptions partly = in_mxfp4(DType::f32);
  partly.quantization->exclude = {"*.experts.1.*"};
  EXPECT_THAT(refusal(model, partly), HasSubstr("is not quantized, but format mxfp4 stores all experts in MXFP4"));
  EXPECT_FALSE(stored_block_scales(temp.path())) << "no folder of MXFP4 blocks";
}

}  // namespace
}  // namespace quench
