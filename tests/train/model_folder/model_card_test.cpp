// Model cards: metadata of the Hub, training, and what a later export takes over.

#include "train/model_folder/model_card.h"

#include <gmock/gmock.h>

#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TrainingFacts facts() {
  TrainingFacts training{.base = "SmolLM2-135M-Instruct", .scheme = find_scheme("int4_weight_only_g32")};
  training.add("Training data", "chats.jsonl: 600 documents, 41,203 tokens");
  return training;
}

std::string card(const TrainingFacts& training, const QuantizationRules* rules, std::string_view format) {
  const nn::ModelConfig config;
  const std::vector<LayerReport> layers;
  return to_markdown({.title = "out",
                      .training = training,
                      .config = config,
                      .format = export_formats().require(format),
                      .dtype = DType::bf16,
                      .quantization = rules,
                      .layers = layers});
}

TEST(ModelCardText, MetadataAreThoseOfTheHub) {
  const QuantizationRules rules{.scheme = find_scheme("int8_weight_only")};
  const TrainingFacts base{.base = "org/model"};
  EXPECT_THAT(card(base, &rules, "compressed-tensors"),
              HasSubstr("---\nbase_model: \"org/model\"\nbase_model_relation: quantized\nlibrary_name: transformers\n"
                        "pipeline_tag: text-generation\ntags:\n- quench\n- compressed-tensors\n---\n"));
  EXPECT_THAT(card(facts(), nullptr, "hf"), HasSubstr("base_model_relation: finetune\nlibrary_name: transformers\n"));
  EXPECT_THAT(card(base, &rules, "gguf"), HasSubstr("library_name: gguf\n"));
  EXPECT_THAT(card({}, &rules, "gguf"), Not(HasSubstr("base_model")));
  EXPECT_THAT(
      adapter_card("adapter", "LoRA of rank 4", facts()),
      AllOf(HasSubstr("base_model: \"SmolLM2-135M-Instruct\"\nbase_model_relation: adapter\nlibrary_name: peft\n"),
            HasSubstr("- lora\n"), HasSubstr("| Adapters | LoRA of rank 4 |\n"),
            HasSubstr("| Training data | chats.jsonl: 600 documents, 41,203 tokens |\n")));
}

TEST(ModelCardText, CodesThatTrainingSimulatedAreNoRtn) {
  QuantizationRules rules{.scheme = find_scheme("int4_weight_only_g32")};
  EXPECT_THAT(card(facts(), &rules, "compressed-tensors"),
              AllOf(HasSubstr("| Method | quantization-aware training: the values that it simulated |\n"),
                    Not(HasSubstr("Calibration")), Not(HasSubstr("`rtn`"))));
  rules.scheme = find_scheme("int8_weight_only");
  EXPECT_THAT(card(facts(), &rules, "compressed-tensors"),
              AllOf(HasSubstr("| Method | `rtn`"), HasSubstr("| Calibration | none |\n")));
}

TEST(ModelCardText, TrainingIsTakenOverFromTheCardOfAFolder) {
  const testing::TempDir folder;
  testing::write_file(folder / "README.md", card(facts(), nullptr, "hf"));
  const TrainingFacts read = training_in(folder.path());
  EXPECT_EQ(read.base, facts().base);
  EXPECT_EQ(read.rows, facts().rows);
  testing::write_file(folder / "README.md", "---\nbase_model: other\n---\nA model of somebody.\n");
  EXPECT_EQ(training_in(folder.path()).base, folder.path().filename().string());
  EXPECT_EQ(training_in(folder.path()).rows, "");
}

TEST(ModelCardText, NamesAreThoseOfTheHubOrOfTheFolder) {
  EXPECT_EQ(model_name("/home/a/.cache/huggingface/hub/models--HuggingFaceTB--SmolLM2-135M/snapshots/12fd"),
            "HuggingFaceTB/SmolLM2-135M");
  EXPECT_EQ(model_name("models/SmolLM2-135M/"), "SmolLM2-135M");
  EXPECT_EQ(model_name("runs/dates/export"), "dates");
  EXPECT_EQ(model_name("models/SmolLM2-135M.Q4_1.gguf"), "SmolLM2-135M.Q4_1");
}

}  // namespace
}  // namespace quench
