// Folders whose experts are fused as Transformers 5 has them in memory (save_original_format=False): of a layer one
// tensor [E, 2 * width, hidden] and one [E, hidden, width], next to a router of one name in all families.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/safetensors/safetensors.h"
#include "export/table/format.h"
#include "tests/core/ops/op_testing.h"
#include "tests/testing.h"
#include "train/model_folder/model_folder.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSizes = R"("vocab_size": 48, "hidden_size": 24, "intermediate_size": 12, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64, "num_experts_per_tok": 2)";

struct FusedFamily {
  const char* name;
  const char* fields;
};

class FusedExperts : public ::testing::TestWithParam<FusedFamily> {
 protected:
  FusedExperts()
      : model_(nn::parse_model_config(Json::parse(fmt::format("{{{}, {}}}", kSizes, GetParam().fields)), "config.json"),
               {}) {
    model_.initialize(1);
  }

  // Memory has the layout of the fused tensors.
  void write(std::int64_t experts) {
    std::vector<SafetensorsItem> items;
    for (const nn::Parameter* p : model_.parameters()) {
      const Tensor value = p->variable.value();
      const auto add = [&](std::string name, const Tensor& rows, const Shape& shape) {
        items.push_back(
            {std::move(name), DType::f32, shape, {static_cast<const std::byte*>(rows.raw_data()), rows.nbytes()}});
      };
      const std::string bare = p->name.substr(0, p->name.rfind(".weight"));
      if (p->experts > 0) {
        const std::int64_t rows = value.size(0) / p->experts;
        add(bare, value.narrow(0, 0, experts * rows), {experts, rows, value.size(1)});
      } else if (p->name.ends_with("mlp.gate.weight")) {
        add(p->name, value, value.shape());
      } else {
        for (const nn::ParameterPiece& piece : p->pieces) {
          const Tensor rows = value.narrow(0, piece.row_begin, piece.rows);
          add(piece.hf_name, rows, rows.shape());
        }
      }
    }
    write_safetensors(folder_ / "model.safetensors", items);
    testing::write_file(folder_ / "config.json", to_hf_json(model_.config(), DType::f32).dump());
  }

  nn::CausalLm model_;
  testing::TempDir folder_;
};

TEST_P(FusedExperts, AreReadAndWrittenAsAMatrixEach) {
  write(5);
  nn::CausalLm loaded(read_model_config(folder_.path()), {});
  load_weights(loaded, folder_.path());
  const auto a = model_.parameters(), b = loaded.parameters();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(testing::same_bits(a[i]->variable.value(), b[i]->variable.value())) << a[i]->name;
  save_model_folder(loaded, {folder_ / "copy"}, {.dtype = DType::f32});
  const SafetensorsReader copy(folder_ / "copy/model.safetensors");
  for (const nn::Parameter* p : b)
    for (const nn::ParameterPiece& piece : p->pieces) EXPECT_NE(copy.find(piece.hf_name), nullptr) << piece.hf_name;
}

TEST_P(FusedExperts, AMissingExpertIsNamed) {
  write(4);
  nn::CausalLm loaded(read_model_config(folder_.path()), {});
  try {
    load_weights(loaded, folder_.path());
    FAIL() << "one of five experts is missing";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("experts.4."));
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("experts.3.")));
  }
}

// Transformers would take a matrix of codes an expert for another model's, and leave its own experts at random values.
TEST_P(FusedExperts, StayInHighPrecisionInTorchaosLayout) {
  QuantizationRules rules{.scheme = &require_scheme("int8_weight_only", "scheme")};
  const ModelFolderReport report = save_model_folder(
      model_, {folder_ / "torchao"},
      {.dtype = DType::f32, .format = &require_export_format("torchao", "format"), .quantization = rules});
  for (const LayerReport& row : report.layers) {
    const bool expert = row.layer.find(".experts.") != std::string::npos;
    EXPECT_EQ(row.scheme, expert || row.layer == "lm_head" ? "" : "int8_weight_only") << row.layer;
    EXPECT_EQ(expert, row.kept_because.find("quantized experts") != std::string::npos) << row.kept_because;
  }
  const SafetensorsReader file(folder_ / "torchao/model.safetensors");
  for (const nn::Parameter* p : model_.parameters()) {
    if (p->experts == 0) continue;
    for (const nn::ParameterPiece& piece : p->pieces) EXPECT_EQ(file.at(piece.hf_name).dtype, DType::f32);
  }
  nn::CausalLm loaded(read_model_config(folder_ / "torchao"), {});
  load_weights(loaded, folder_ / "torchao");
  const auto a = model_.parameters(), b = loaded.parameters();
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i]->experts == 0 || testing::same_bits(a[i]->variable.value(), b[i]->variable.value()));
}

INSTANTIATE_TEST_SUITE_P(
    Families, FusedExperts,
    ::testing::Values(FusedFamily{"mixtral", R"("model_type": "mixtral", "num_local_experts": 5)"},
                      FusedFamily{"qwen3_moe", R"("model_type": "qwen3_moe", "num_experts": 5,
                                                  "moe_intermediate_size": 8, "mlp_only_layers": [0])"},
                      FusedFamily{"deepseek_v3",
                                  R"("model_type": "deepseek_v3", "n_routed_experts": 5, "n_group": 1, "topk_group": 1,
                                     "moe_intermediate_size": 8, "first_k_dense_replace": 1, "kv_lora_rank": 8,
                                     "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
                                     "v_head_dim": 8)"}),
    [](const auto& family) { return std::string(family.param.name); });

}  // namespace
}  // namespace quench
