// Folders whose config.json ties the head to the embedding table and whose weights hold a head: tied where the two are
// equal, else not, with a warning (as Transformers 5 does).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/safetensors/safetensors.h"
#include "export/formats/safetensors_items.h"
#include "export/ptq/quantize_model.h"
#include "export/schemes/scheme.h"
#include "export/table/format.h"
#include "export/table/open_stored_weights.h"
#include "tests/testing.h"
#include "tests/train/metrics/captured_log.h"
#include "train/config/presets.h"
#include "train/model_folder/model_folder.h"

namespace quench {
namespace {

using testing::CapturedLog;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;

nn::ModelConfig untied_config() {
  return nn::parse_model_config(Json::parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 600,
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "tie_word_embeddings": false})"),
                                "config.json");
}

// A folder in the format, written from an untied model, whose config.json then says that the head is tied.
struct HeadFolder {
  TempDir temp;
  nn::CausalLm model{untied_config(), nn::ParameterOptions{}};

  HeadFolder() { model.initialize(3); }
  [[nodiscard]] Tensor weight(std::string_view name) {
    for (nn::Parameter* p : model.parameters())
      if (p->pieces[0].hf_name == name) return p->variable.value();
    return {};
  }
  [[nodiscard]] Tensor head() { return weight("lm_head.weight"); }
  [[nodiscard]] Tensor table() { return weight("model.embed_tokens.weight"); }

  std::filesystem::path write(const ExportFormat* format = nullptr, const char* scheme = nullptr) {
    const std::filesystem::path folder = temp / "model";
    ModelFolderOptions options{.dtype = DType::f32, .format = format};
    if (scheme != nullptr) options.quantization = QuantizationRules{.scheme = find_scheme(scheme), .exclude = {}};
    (void)save_model_folder(model, {folder}, options);
    Json config = Json::parse_file(folder / "config.json");
    config.set("tie_word_embeddings", true);
    testing::write_file(folder / "config.json", config.dump(2));
    return folder;
  }
};

TEST(TiedHead, HeadOfOtherValuesIsNotTied) {
  HeadFolder f;
  const auto folder = f.write();
  const CapturedLog log;
  const nn::ModelConfig config = read_model_config(folder);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_THAT(
      log.text(),
      HasSubstr("tie_word_embeddings is true in config.json or by default, but lm_head.weight holds other values"));
  nn::CausalLm loaded(config, nn::ParameterOptions{});
  load_weights(loaded, folder);
  for (nn::Parameter* p : loaded.parameters()) {
    if (p->pieces[0].hf_name != "lm_head.weight") continue;
    EXPECT_EQ(p->variable.value().data<float>()[17], f.head().data<float>()[17]);
  }
  EXPECT_EQ(model_config({.path = folder.string()}).at("tie_word_embeddings"), Json(false)) << "of a training run";
  EXPECT_EQ(model_config({.path = folder.string(), .init = ModelSection::Init::random}).at("tie_word_embeddings"),
            Json(true))
      << "of new weights";
  EXPECT_EQ(nn::to_hf_json(config, DType::f32).at("tie_word_embeddings"), Json(false)) << "of an export";
}

// SmolLM3 has a tied head by default, and modules of Llama's names.
TEST(TiedHead, AbsentMemberIsTheDefaultOfTheFamily) {
  HeadFolder f;
  const auto folder = f.write();
  Json config = Json::parse_file(folder / "config.json");
  config.set("architectures", Json(Json::Array{Json("SmolLM3ForCausalLM")}));
  config.set("model_type", "smollm3");
  config.erase("tie_word_embeddings");
  testing::write_file(folder / "config.json", config.dump(2));
  EXPECT_FALSE(read_model_config(folder).tie_word_embeddings);
  f.head().copy_from(f.table());
  const auto equal = f.write();
  testing::write_file(equal / "config.json", config.dump(2));
  EXPECT_TRUE(read_model_config(equal).tie_word_embeddings);
}

TEST(TiedHead, LastRowCounts) {
  HeadFolder f;
  f.head().copy_from(f.table());
  f.head().data<float>()[f.head().numel() - 1] += 1.0f;
  EXPECT_FALSE(read_model_config(f.write()).tie_word_embeddings);
}

TEST(TiedHead, EqualHeadIsTiedInSilence) {
  HeadFolder f;
  f.head().copy_from(f.table());
  const auto folder = f.write();
  const CapturedLog log;
  const nn::ModelConfig config = read_model_config(folder);
  EXPECT_TRUE(config.tie_word_embeddings);
  nn::CausalLm loaded(config, nn::ParameterOptions{});
  EXPECT_NO_THROW(load_weights(loaded, folder));
  EXPECT_EQ(model_config({.path = folder.string()}).at("tie_word_embeddings"), Json(true));
  EXPECT_THAT(log.text(), Not(HasSubstr("tie_word_embeddings")));
}

TEST(TiedHead, QuantizedFoldersToo) {
  for (const char* format : {"compressed-tensors", "torchao"}) {
    HeadFolder f;
    EXPECT_FALSE(read_model_config(f.write(export_formats().find(format), "int8_weight_only")).tie_word_embeddings)
        << format;
  }
}

TEST(TiedHead, GgufWithAConfigFileToo) {
  HeadFolder f;
  EXPECT_FALSE(read_model_config(f.write(export_formats().find("gguf"), "q8_0")).tie_word_embeddings);
}

// Transformers 5 takes the head for the table.
TEST(TiedHead, HeadAloneIsTheTable) {
  for (const bool bf16 : {false, true}) {
    HeadFolder f;
    const auto folder = f.write();
    const std::vector<ModelTensor> tensors = model_tensors(f.model, bf16 ? DType::bf16 : DType::f32);
    const auto write_others = [&](bool with_head) {
      SafetensorsItems items;
      for (const ModelTensor& tensor : tensors)
        if (tensor.name != "model.embed_tokens.weight" && (with_head || tensor.name != "lm_head.weight"))
          items.add(tensor);
      write_safetensors(folder / "model.safetensors", items.take());
    };
    write_others(true);
    const CapturedLog log;
    const nn::ModelConfig config = read_model_config(folder);
    EXPECT_TRUE(config.tie_word_embeddings);
    EXPECT_FALSE(open_stored_weights(folder, config.source)->find("lm_head.weight"));
    nn::CausalLm loaded(config, nn::ParameterOptions{});
    load_weights(loaded, folder);
    const nn::Parameter& table = *loaded.units().front().parameters.front();
    ASSERT_EQ(table.name, "model.embed_tokens.weight");
    for (std::int64_t i = 0; i < f.head().numel(); ++i) {
      const float expected = f.head().data<float>()[i];
      ASSERT_EQ(table.variable.value().data<float>()[i], bf16 ? float(bfloat16(expected)) : expected) << i;
    }
    EXPECT_THAT(log.text(), Not(HasSubstr("tie_word_embeddings")));

    const auto refusal = [&] {
      try {
        nn::CausalLm other(read_model_config(folder), nn::ParameterOptions{});
        load_weights(other, folder);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    Json untied = Json::parse_file(folder / "config.json");
    untied.set("tie_word_embeddings", false);
    testing::write_file(folder / "config.json", untied.dump());
    EXPECT_THAT(refusal(), HasSubstr("model.embed_tokens.weight is missing"));
    untied.set("tie_word_embeddings", true);
    testing::write_file(folder / "config.json", untied.dump());
    write_others(false);
    EXPECT_THAT(refusal(), HasSubstr("model.embed_tokens.weight is missing")) << "neither";
  }
}

TEST(TiedHead, FolderWithoutWeightsIsAsItsConfigSays) {
  HeadFolder f;
  const auto folder = f.write();
  std::filesystem::remove(folder / "model.safetensors");
  EXPECT_TRUE(read_model_config(folder).tie_word_embeddings);
}

}  // namespace
}  // namespace quench
