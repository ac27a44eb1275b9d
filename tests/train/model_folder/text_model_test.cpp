// Folders of models that read images too: their text models.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/safetensors/safetensors.h"
#include "export/formats/text_model.h"
#include "export/table/open_stored_weights.h"
#include "tests/core/ops/op_testing.h"
#include "tests/testing.h"
#include "tests/train/metrics/captured_log.h"
#include "train/config/presets.h"
#include "train/model_folder/model_folder.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::write_file;

constexpr const char* kLlama4Whole = R"({"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
  "image_token_index": 47, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "text_config": {"model_type": "llama4_text", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 12,
    "intermediate_size_mlp": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "max_position_embeddings": 64, "num_local_experts": 4, "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2, "attention_chunk_size": 16, "eos_token_id": [5, 6]},
  "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 16}})";

// As published: sizes that are defaults of the family are absent, and the head is tied.
constexpr const char* kGemma3Whole = R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
  "boi_token_index": 45, "eoi_token_index": 46, "image_token_index": 47, "mm_tokens_per_image": 4,
  "eos_token_id": [5, 6], "torch_dtype": "bfloat16",
  "text_config": {"model_type": "gemma3_text", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 40,
    "num_hidden_layers": 2, "head_dim": 8, "max_position_embeddings": 64, "sliding_window": 16, "eos_token_id": 5,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
  "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 16}})";

struct Whole {
  const char *config, *architecture, *model_type;
  std::array<const char*, 3> others;  // tensors of other parts
  const char* left_out;
};
constexpr Whole kLlama4{
    kLlama4Whole,
    "Llama4ForCausalLM",
    "llama4_text",
    {"vision_model.class_embedding", "vision_model.layernorm.weight", "multi_modal_projector.linear_1.weight"},
    "multi_modal_projector (1 tensor), vision_model (2 tensors)"};
constexpr Whole kGemma3{
    kGemma3Whole,
    "Gemma3ForCausalLM",
    "gemma3_text",
    {"vision_tower.vision_model.embeddings.patch_embedding.weight", "vision_tower.vision_model.post_layernorm.weight",
     "multi_modal_projector.mm_input_projection_weight"},
    "multi_modal_projector (1 tensor), vision_tower (2 tensors)"};

class TextModel : public ::testing::TestWithParam<Whole> {};

// The text model's weights under their prefix, next to those of other parts.
struct WholeFolder {
  TempDir temp;
  nn::CausalLm model;
  std::vector<std::byte> other = std::vector<std::byte>(8);
  std::vector<SafetensorsItem> items;

  explicit WholeFolder(const Whole& whole)
      : model(nn::parse_model_config(text_model_config(Json::parse(whole.config)), "config.json"), {}) {
    model.initialize(1);
    write_file(temp / "config.json", whole.config);
    for (const nn::Parameter* p : model.parameters())
      for (const nn::ParameterPiece& piece : p->pieces) {
        const Tensor rows = p->variable.value().narrow(0, piece.row_begin, piece.rows);
        items.push_back({"language_model." + piece.hf_name,
                         DType::f32,
                         rows.shape(),
                         {static_cast<const std::byte*>(rows.raw_data()), rows.nbytes()}});
      }
    for (const char* name : whole.others) items.push_back({name, DType::f32, {2}, other});
  }
  void write() { write_safetensors(temp / "model.safetensors", items); }
};

void expect_same(nn::CausalLm& a, nn::CausalLm& b) {
  const auto x = a.parameters(), y = b.parameters();
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_TRUE(testing::same_bits(x[i]->variable.value(), y[i]->variable.value())) << x[i]->name;
}

TEST_P(TextModel, IsReadFromTheFolderOfTheWhole) {
  WholeFolder whole(GetParam());
  whole.write();
  const nn::ModelConfig config = read_model_config(whole.temp.path());
  EXPECT_EQ(config.architecture, GetParam().architecture);
  EXPECT_EQ(config.dtype, DType::bf16) << "of the whole";
  EXPECT_THAT(config.eos_token_ids, ElementsAre(5, 6));
  nn::CausalLm loaded(config, {});
  const testing::CapturedLog log;
  load_weights(loaded, whole.temp.path());
  expect_same(loaded, whole.model);
  const auto left_out = open_stored_weights(whole.temp.path(), config.source)->left_out();
  EXPECT_EQ(summary_of(left_out), GetParam().left_out);
  const std::string text = log.text(),
                    said = fmt::format("the text model is loaded, left out: {}", GetParam().left_out);
  EXPECT_THAT(text, HasSubstr(said));
  EXPECT_EQ(text.find(said), text.rfind(said)) << "once";
}

// Names of Transformers' modules: model.language_model., a bare lm_head, other parts under model.
TEST_P(TextModel, IsReadUnderNamesOfModulesToo) {
  WholeFolder whole(GetParam());
  for (SafetensorsItem& item : whole.items) {
    constexpr std::string_view kText = "language_model.", kLayers = "language_model.model.";
    if (item.name.starts_with(kLayers))
      item.name = "model.language_model." + item.name.substr(kLayers.size());
    else if (item.name.starts_with(kText))
      item.name = item.name.substr(kText.size());
    else
      item.name = "model." + item.name;
  }
  whole.write();
  const nn::ModelConfig config = read_model_config(whole.temp.path());
  nn::CausalLm loaded(config, {});
  load_weights(loaded, whole.temp.path());
  expect_same(loaded, whole.model);
  EXPECT_EQ(summary_of(open_stored_weights(whole.temp.path(), config.source)->left_out()), GetParam().left_out);
}

// Transformers 5 saves no head where the whole is tied, whatever text_config says; where a head of other values is
// stored, the two are not tied.
TEST(TextModelHead, IsTiedIfTheWholeSaysSoAndNoOtherHeadIsStored) {
  Json whole = Json::parse(kLlama4Whole);
  whole.set("tie_word_embeddings", true);
  Json text = whole.at("text_config");
  text.set("tie_word_embeddings", false);
  whole.set("text_config", text);
  WholeFolder folder(kLlama4);
  write_file(folder.temp / "config.json", whole.dump());
  folder.write();
  EXPECT_FALSE(read_model_config(folder.temp.path()).tie_word_embeddings);
  std::erase_if(folder.items, [](const SafetensorsItem& i) { return i.name == "language_model.lm_head.weight"; });
  folder.write();
  const nn::ModelConfig config = read_model_config(folder.temp.path());
  EXPECT_TRUE(config.tie_word_embeddings);
  nn::CausalLm loaded(config, {});
  load_weights(loaded, folder.temp.path());
}

TEST(TextModelType, OfMistral3AndOfTheNamedTypeAlone) {
  Json whole = Json::parse(R"({"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
      "text_config": {"model_type": "mistral", "vocab_size": 48, "hidden_size": 32, "intermediate_size": 12,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "sliding_window": null}})");
  const nn::ModelConfig config = nn::parse_model_config(text_model_config(whole), "config.json");
  EXPECT_EQ(config.architecture, "MistralForCausalLM");
  EXPECT_EQ(config.sliding_window, 0);
  Json text = whole.at("text_config");
  text.set("model_type", "ministral3");
  whole.set("text_config", text);
  try {
    (void)nn::parse_model_config(text_model_config(whole), "config.json");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model_type 'ministral3' contradicts architectures [\"MistralForCausalLM\"]"));
  }
}

TEST_P(TextModel, IsTheModelOfARun) {
  WholeFolder whole(GetParam());
  whole.write();
  ModelSection section;
  section.path = whole.temp.path().string();
  const Json config = model_config(section);
  EXPECT_EQ(config.at("architectures").as_array().front(), Json(GetParam().architecture));
  EXPECT_EQ(config.at("hidden_size").as_int(), 32);
}

TEST_P(TextModel, IsExportedAlone) {
  WholeFolder whole(GetParam());
  whole.write();
  nn::CausalLm loaded(read_model_config(whole.temp.path()), {});
  load_weights(loaded, whole.temp.path());
  const TempDir out;
  (void)save_model_folder(loaded, {out / "text"}, {.dtype = DType::f32});
  const Json written = Json::parse_file(out / "text" / "config.json");
  EXPECT_EQ(written.at("architectures").as_array().front(), Json(GetParam().architecture));
  EXPECT_EQ(written.at("model_type"), Json(GetParam().model_type));
  EXPECT_EQ(written.find("text_config"), nullptr);
  EXPECT_EQ(written.find("vision_config"), nullptr);
  nn::CausalLm again(read_model_config(out / "text"), {});
  load_weights(again, out / "text");
  expect_same(again, whole.model);
  EXPECT_THAT(open_stored_weights(out / "text", written)->left_out(), ElementsAre());
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST_P(TextModel, MissingWeightsAreNamedAndOtherClassesRefused) {
  WholeFolder whole(GetParam());
  std::erase_if(whole.items, [](const SafetensorsItem& i) { return i.name == "language_model.model.norm.weight"; });
  whole.write();
  nn::CausalLm loaded(read_model_config(whole.temp.path()), {});
  EXPECT_THAT(error_of([&] { load_weights(loaded, whole.temp.path()); }), HasSubstr("model.norm.weight is missing"));
  Json other = Json::parse(GetParam().config);
  other.set("architectures", Json(Json::Array{Json("LlavaForConditionalGeneration")}));
  write_file(whole.temp / "config.json", other.dump());
  EXPECT_THAT(error_of([&] { (void)read_model_config(whole.temp.path()); }),
              HasSubstr("LlavaForConditionalGeneration"));
}

INSTANTIATE_TEST_SUITE_P(Wholes, TextModel, ::testing::Values(kLlama4, kGemma3),
                         [](const auto& whole) { return std::string(whole.param.model_type); });

}  // namespace
}  // namespace quench
