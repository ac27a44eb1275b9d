// A PEFT adapter over a golden model: logits, loss, gradients; what is written comes back; what does not fit is named.

#include "tests/train/model_folder/peft_golden.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::adapter_folder;
using ::testing::AllOf;
using testing::dora_folder;
using ::testing::HasSubstr;
using testing::PeftGolden;
using testing::read_f32;
using testing::saved_folder;

TEST_F(PeftGolden, LogitsBesideAndMerged) {
  expect_logits(adapter_folder());
}

TEST_F(PeftGolden, LossAndGradientsOfTheAdapter) {
  expect_gradients(adapter_folder(), 12);
}

// Magnitudes too (tests/reference/make_dora.py).
class DoraGolden : public PeftGolden {
 protected:
  DoraGolden() : PeftGolden(dora_folder()) {}
};

TEST_F(DoraGolden, LogitsBesideAndMerged) {
  expect_logits(dora_folder());
}

TEST_F(DoraGolden, LossAndGradientsOfTheAdapter) {
  expect_gradients(dora_folder(), 18);
}

TEST_F(DoraGolden, WhatIsWrittenComesBack) {
  const testing::TempDir temp;
  const auto adapter = load_adapter(model_, dora_folder(), {});
  save_adapter_folder(model_, *adapter, {temp / "copy"}, {.dtype = DType::f32, .base = "models/llama"});
  EXPECT_TRUE(Json::parse_file(temp / "copy" / "adapter_config.json").at("use_dora").as_bool());
  const SafetensorsReader ours(temp / "copy" / "adapter_model.safetensors"),
      theirs(dora_folder() / "adapter_model.safetensors");
  ASSERT_EQ(ours.header().entries.size(), theirs.header().entries.size());
  for (const SafetensorsEntry& entry : theirs.header().entries)
    EXPECT_EQ(read_f32(ours, entry.name), read_f32(theirs, entry.name)) << entry.name;
}

// Trained copies of embedding, head and norms (tests/reference/make_saved_modules.py).
class SavedModulesGolden : public PeftGolden {
 protected:
  SavedModulesGolden() : PeftGolden(saved_folder()) {}
};

TEST_F(SavedModulesGolden, LogitsBesideAndMerged) {
  expect_logits(saved_folder());
}

TEST_F(SavedModulesGolden, LossAndGradientsOfTheAdapter) {
  expect_gradients(saved_folder(), 15);
}

class TiedModulesGolden : public PeftGolden {
 protected:
  TiedModulesGolden() : PeftGolden(saved_folder("llama_saved_tied"), "llama31_tied") {}
};

TEST_F(TiedModulesGolden, LogitsBesideAndMerged) {
  expect_logits(saved_folder("llama_saved_tied"));
}

TEST_F(TiedModulesGolden, LossAndGradientsOfTheAdapter) {
  expect_gradients(saved_folder("llama_saved_tied"), 9);
}

void expect_written(nn::CausalLm& model, const fs::path& folder, const std::string& modules, bool tied) {
  const testing::TempDir temp;
  const auto adapter = load_adapter(model, folder, {});
  save_adapter_folder(model, *adapter, {temp / "copy"}, {.dtype = DType::f32, .base = "models/llama"});
  const Json config = Json::parse_file(temp / "copy" / "adapter_config.json");
  EXPECT_EQ(config.at("modules_to_save").dump(), modules);
  EXPECT_EQ(config.find("ensure_weight_tying") != nullptr, tied);
  const SafetensorsReader ours(temp / "copy" / "adapter_model.safetensors"),
      theirs(folder / "adapter_model.safetensors");
  ASSERT_EQ(ours.header().entries.size(), theirs.header().entries.size());
  for (const SafetensorsEntry& entry : theirs.header().entries)
    EXPECT_EQ(read_f32(ours, entry.name), read_f32(theirs, entry.name)) << entry.name;
}

TEST_F(SavedModulesGolden, WhatIsWrittenComesBack) {
  expect_written(model_, saved_folder(), R"(["embed_tokens","lm_head","norm"])", false);
}

TEST_F(TiedModulesGolden, WhatIsWrittenComesBack) {
  expect_written(model_, saved_folder("llama_saved_tied"), R"(["embed_tokens"])", true);
}

TEST_F(PeftGolden, WhatIsWrittenComesBack) {
  const testing::TempDir temp;
  const auto adapter = load_adapter(model_, adapter_folder(), {});
  save_adapter_folder(model_, *adapter, {temp / "copy"}, {.dtype = DType::f32, .base = "models/llama"});
  const Json config = Json::parse_file(temp / "copy" / "adapter_config.json");
  EXPECT_EQ(config.at("r").as_int(), 4);
  EXPECT_EQ(config.at("lora_alpha").as_double(), 8);
  EXPECT_EQ(config.at("target_modules").dump(), R"(["down_proj","q_proj","v_proj"])");
  EXPECT_EQ(config.at("base_model_name_or_path").as_string(), "models/llama");
  EXPECT_EQ(config.at("rank_pattern").dump(), "{}");
  const SafetensorsReader ours(temp / "copy" / "adapter_model.safetensors"),
      theirs(adapter_folder() / "adapter_model.safetensors");
  ASSERT_EQ(ours.header().entries.size(), theirs.header().entries.size());
  for (const SafetensorsEntry& entry : theirs.header().entries)
    EXPECT_EQ(read_f32(ours, entry.name), read_f32(theirs, entry.name)) << entry.name;
}

// The golden adapter with keys of its config changed.
fs::path changed_adapter(const testing::TempDir& temp, const Json::Object& changes,
                         const fs::path& adapter = adapter_folder()) {
  fs::copy(adapter, temp.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  Json config = Json::parse_file(temp / "adapter_config.json");
  for (const auto& [key, value] : changes) config.set(key, value);
  testing::write_file(temp / "adapter_config.json", config.dump());
  return temp.path();
}

// PEFT matches "(.*\.)?(key)$"; the first key that matches counts. Its rank is 4.
TEST_F(PeftGolden, PatternsAreRegularExpressions) {
  const testing::TempDir temp;
  const Json::Object alphas{{"^model\\.layers\\.0\\..*(q|v)_proj", 4}, {"(q|k)_proj", 12}, {"proj", 100}};
  const auto adapter = load_adapter(model_, changed_adapter(temp, {{"alpha_pattern", alphas}}), {});
  std::map<std::string, double> scales;
  for (const recipes::LoraLayer& layer : adapter->layers()) scales[layer.name] = layer.scale;
  EXPECT_EQ(scales, (std::map<std::string, double>{{"model.layers.0.mlp.down_proj", 2},
                                                   {"model.layers.0.self_attn.q_proj", 1},
                                                   {"model.layers.0.self_attn.v_proj", 1},
                                                   {"model.layers.1.mlp.down_proj", 2},
                                                   {"model.layers.1.self_attn.q_proj", 3},
                                                   {"model.layers.1.self_attn.v_proj", 2}}));
}

// Targets without weights are missing, but for those that the config excludes.
TEST_F(PeftGolden, ExcludedTargetsHaveNoWeights) {
  const testing::TempDir temp;
  const auto list = [](std::initializer_list<const char*> names) {
    Json::Array array;
    for (const char* name : names) array.emplace_back(name);
    return Json(array);
  };
  const Json targets = list({"q_proj", "v_proj", "down_proj", "k_proj", "lm_head"});
  for (const Json& excluded : {list({"k_proj", "lm_head"}), Json(".*k_proj|lm_head")})
    EXPECT_EQ(
        load_adapter(model_, changed_adapter(temp, {{"target_modules", targets}, {"exclude_modules", excluded}}), {})
            ->layers()
            .size(),
        6U);
  EXPECT_ANY_THROW((void)load_adapter(
      model_, changed_adapter(temp, {{"target_modules", targets}, {"exclude_modules", list({"k_pro", "lm_head"})}}),
      {}));
}

// What is said of the golden adapter with one key of its config changed.
std::string refusal(nn::CausalLm& model, std::string_view key, Json value, const fs::path& adapter = adapter_folder()) {
  const testing::TempDir temp;
  try {
    (void)load_adapter(model, changed_adapter(temp, {{std::string(key), std::move(value)}}, adapter), {});
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST_F(PeftGolden, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(refusal(model_, "some_new_key", 3), "");
  EXPECT_THAT(refusal(model_, "use_dora", true), HasSubstr("has no lora_magnitude_vector"));
  EXPECT_THAT(refusal(model_, "bias", "all"), HasSubstr("bias is \"all\""));
  EXPECT_THAT(refusal(model_, "modules_to_save", Json(Json::Array{Json("lm_head")})),
              HasSubstr("names lm_head in modules_to_save, but lm_head has no weight"));
  EXPECT_THAT(refusal(model_, "modules_to_save", Json(Json::Array{Json("k_proj")})),
              HasSubstr("names k_proj in modules_to_save, which is no embedding, head or norm of the model"));
  EXPECT_THAT(refusal(model_, "peft_type", "IA3"), HasSubstr("peft_type is \"IA3\"; LORA is read"));
  EXPECT_THAT(refusal(model_, "r", 8),
              AllOf(HasSubstr("6 faults"), HasSubstr("has shape [4, 32]"), HasSubstr("expected [8, 32] for rank 8")));
  EXPECT_THAT(refusal(model_, "target_modules", Json(Json::Array{Json("k_proj")})),
              HasSubstr("names k_proj, which has no weights"));
  EXPECT_THAT(refusal(model_, "alpha_pattern", Json(Json::Object{{"*.q_proj", 4}})),
              AllOf(HasSubstr("alpha_pattern"), HasSubstr("does not compile")));
  EXPECT_THAT(refusal(model_, "init_lora_weights", "pissa_niter_4"),
              HasSubstr("init_lora_weights is \"pissa_niter_4\""));
  EXPECT_EQ(refusal(model_, "init_lora_weights", "gaussian"), "");
  nn::CausalLm other(nn::parse_model_config(Json::parse(R"({"model_type": "llama", "vocab_size": 48, "hidden_size": 64,
      "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2})"),
                                            "config.json"),
                     {});
  EXPECT_THAT(refusal(other, "some_new_key", 3),
              AllOf(HasSubstr("model.layers.1.self_attn.q_proj is not a linear layer of the model"),
                    HasSubstr("model.layers.0.self_attn.q_proj.lora_A.weight has shape [4, 32]")));
}

TEST_F(SavedModulesGolden, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(
      refusal(model_, "modules_to_save", Json(Json::Array{Json("embed_tokens"), Json("lm_head")}), saved_folder()),
      HasSubstr("base_model.model.model.norm.weight is the weight of a module that modules_to_save in "
                "adapter_config.json does not name"));
  EXPECT_EQ(refusal(model_, "modules_to_save", Json(Json::Array{Json("embed_tokens"), Json("norm")}), saved_folder()),
            "")
      << "a head that is not named replaces the base's, as with PEFT's save_embedding_layers";
  Json config = read_model_config(testing::golden_dir() / "models" / "llama").source;
  config.set("vocab_size", 163);
  nn::CausalLm larger(nn::parse_model_config(config, "config.json"), {});
  EXPECT_THAT(
      refusal(larger, "some_new_key", 3, saved_folder()),
      AllOf(HasSubstr("2 faults"), HasSubstr("model.embed_tokens.weight has shape [160, 32]; expected [163, 32]: "
                                             "the adapter was trained with another vocabulary")));
}

TEST_F(TiedModulesGolden, TheHeadStaysTied) {
  const fs::path folder = saved_folder("llama_saved_tied");
  EXPECT_THAT(
      refusal(model_, "ensure_weight_tying", false, folder),
      AllOf(HasSubstr("adapter_config.json: ensure_weight_tying is not set"), HasSubstr("tie_word_embeddings")));
  EXPECT_EQ(refusal(model_, "modules_to_save", Json(Json::Array{Json("lm_head")}), folder), "");
}

// Trained rows of the embedding.
class TokenRowsGolden : public PeftGolden {
 protected:
  TokenRowsGolden() : PeftGolden(saved_folder("llama_tokens")) {}
};

class TiedTokenRowsGolden : public PeftGolden {
 protected:
  TiedTokenRowsGolden() : PeftGolden(saved_folder("llama_tokens_tied"), "llama31_tied") {}
};

TEST_F(TokenRowsGolden, LogitsBesideAndMerged) {
  expect_logits(saved_folder("llama_tokens"));
}

TEST_F(TokenRowsGolden, LossAndGradientsOfTheAdapter) {
  expect_gradients(saved_folder("llama_tokens"), 9);
}

TEST_F(TiedTokenRowsGolden, LogitsBesideAndMerged) {
  expect_logits(saved_folder("llama_tokens_tied"));
}

TEST_F(TiedTokenRowsGolden, LossAndGradientsOfTheAdapter) {
  expect_gradients(saved_folder("llama_tokens_tied"), 9);
}

TEST_F(TokenRowsGolden, WhatIsWrittenComesBack) {
  const fs::path folder = saved_folder("llama_tokens");
  const testing::TempDir temp;
  const auto adapter = load_adapter(model_, folder, {});
  save_adapter_folder(model_, *adapter, {temp / "copy"}, {.dtype = DType::f32, .base = "models/llama"});
  EXPECT_EQ(Json::parse_file(temp / "copy" / "adapter_config.json").at("trainable_token_indices").dump(),
            "[150,3,7,99,40,41,42,43]");
  const SafetensorsReader ours(temp / "copy" / "adapter_model.safetensors"),
      theirs(folder / "adapter_model.safetensors");
  ASSERT_EQ(ours.header().entries.size(), theirs.header().entries.size());
  for (const SafetensorsEntry& entry : theirs.header().entries)
    EXPECT_EQ(read_f32(ours, entry.name), read_f32(theirs, entry.name)) << entry.name;
}

TEST_F(TokenRowsGolden, WhatDoesNotFitIsNamed) {
  const fs::path folder = saved_folder("llama_tokens");
  const auto ids = [](std::initializer_list<int> list) {
    Json::Array array;
    for (const int id : list) array.emplace_back(id);
    return Json(array);
  };
  const char* key = "trainable_token_indices";
  EXPECT_THAT(refusal(model_, key, ids({1, 2}), folder),
              HasSubstr("has shape [8, 32]; expected [2, 32] for the 2 ids of trainable_token_indices"));
  EXPECT_THAT(refusal(model_, key, ids({1, 2, 3, 4, 5, 6, 7, 160}), folder),
              HasSubstr("trainable_token_indices names token 160, but the model's vocabulary has 160"));
  EXPECT_THAT(refusal(model_, key, ids({1, 2, 3, 4, 5, 6, 7, 7}), folder), HasSubstr("7 is listed twice"));
  EXPECT_THAT(refusal(model_, key, ids({1})), HasSubstr("names trainable_token_indices, which have no weights"));
  EXPECT_THAT(refusal(model_, key, Json(Json::Object{{"lm_head", ids({1})}}), folder),
              HasSubstr("has shape [8, 32]; expected [0, 32] for the 0 ids of trainable_token_indices"));
  EXPECT_THAT(refusal(model_, key, Json(Json::Object{{"wte", ids({1})}}), folder),
              HasSubstr("rows of embed_tokens and lm_head are read"));
  EXPECT_EQ(refusal(model_, key, Json(Json::Object{{"embed_tokens", ids({1, 2, 3, 4, 5, 6, 7, 8})}}), folder), "");
}

}  // namespace
}  // namespace quench
