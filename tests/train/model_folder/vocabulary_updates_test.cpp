// PEFT adapters whose target_modules name embed_tokens and lm_head.

#include "train/model_folder/vocabulary_updates.h"

#include <gmock/gmock.h>

#include "tests/testing.h"
#include "train/model_folder/peft_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kRows = 16, kWidth = 8, kRank = 2;
constexpr float kScale = 3;  // lora_alpha 6 / r 2

template <class Values>
auto& at(Values& values, std::int64_t i) {
  return values.at(static_cast<std::size_t>(i));
}

class VocabularyUpdatesTest : public ::testing::Test {
 protected:
  [[nodiscard]] static std::unique_ptr<nn::CausalLm> model(bool tied = false) {
    const std::string config = fmt::format(R"({{"architectures": ["LlamaForCausalLM"], "vocab_size": {},
        "hidden_size": {}, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "tie_word_embeddings": {}}})",
                                           kRows, kWidth, tied);
    auto made = std::make_unique<nn::CausalLm>(nn::parse_model_config(Json::parse(config), "config.json"),
                                               nn::ParameterOptions{});
    made->initialize(1);
    return made;
  }
  [[nodiscard]] static std::vector<float> values(nn::CausalLm& model, const std::string& name) {
    for (nn::Parameter* parameter : model.parameters())
      if (parameter->name == name) {
        const Tensor value = parameter->variable.value();
        return {value.data<float>(), value.data<float>() + value.numel()};
      }
    ADD_FAILURE() << name;
    return {};
  }

  void add(const std::string& name, const Shape& shape, const std::vector<float>& data) {
    tensors_.push_back({"base_model.model." + name, Tensor::from_values<float>(shape, data)});
  }
  // Values of a matrix that no other has.
  [[nodiscard]] static std::vector<float> matrix(std::int64_t size, int seed) {
    std::vector<float> data;
    for (std::int64_t i = 0; i < size; ++i) data.push_back(static_cast<float>((i * 7 + seed * 5) % 11 - 5) / 16);
    return data;
  }
  void add_head() {
    add("lm_head.lora_A.weight", {kRank, kWidth}, matrix(kRank * kWidth, 1));
    add("lm_head.lora_B.weight", {kRows, kRank}, matrix(kRows * kRank, 2));
  }
  void add_table() {
    add("model.embed_tokens.lora_embedding_A", {kRank, kRows}, matrix(kRank * kRows, 3));
    add("model.embed_tokens.lora_embedding_B", {kWidth, kRank}, matrix(kWidth * kRank, 4));
  }
  [[nodiscard]] fs::path folder(const std::string& targets = R"("lm_head")", const std::string& more = "") const {
    std::vector<SafetensorsItem> items;
    for (const auto& [name, value] : tensors_)
      items.push_back(
          {name, DType::f32, value.shape(), {static_cast<const std::byte*>(value.raw_data()), value.nbytes()}});
    fs::create_directories(temp_ / "adapter");
    write_safetensors(temp_ / "adapter/adapter_model.safetensors", items);
    testing::write_file(
        temp_ / "adapter/adapter_config.json",
        R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": [)" + targets + "]" + more + "}");
    return temp_ / "adapter";
  }
  [[nodiscard]] static std::string refusal(nn::CausalLm& model, const fs::path& adapter) {
    try {
      (void)load_adapter(model, adapter, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  // weight + scale * B A of the head.
  [[nodiscard]] static std::vector<float> updated_head(std::vector<float> weight) {
    const std::vector<float> a = matrix(kRank * kWidth, 1), b = matrix(kRows * kRank, 2);
    for (std::int64_t row = 0; row < kRows; ++row)
      for (std::int64_t column = 0; column < kWidth; ++column)
        for (std::int64_t r = 0; r < kRank; ++r)
          at(weight, row * kWidth + column) += kScale * at(b, row * kRank + r) * at(a, r * kWidth + column);
    return weight;
  }
  // weight + scale * (B A)^T of the embedding.
  [[nodiscard]] static std::vector<float> updated_table(std::vector<float> weight) {
    const std::vector<float> a = matrix(kRank * kRows, 3), b = matrix(kWidth * kRank, 4);
    for (std::int64_t row = 0; row < kRows; ++row)
      for (std::int64_t column = 0; column < kWidth; ++column)
        for (std::int64_t r = 0; r < kRank; ++r)
          at(weight, row * kWidth + column) += kScale * at(b, column * kRank + r) * at(a, r * kRows + row);
    return weight;
  }
  static void expect_near(const std::vector<float>& values, const std::vector<float>& expected) {
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-6) << i;
  }

  testing::TempDir temp_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

TEST_F(VocabularyUpdatesTest, HeadAndEmbeddingAreMerged) {
  const auto changed = model();
  const std::vector<float> head = values(*changed, "lm_head.weight"),
                           table = values(*changed, "model.embed_tokens.weight");
  add_head();
  add_table();
  const auto adapter = load_adapter(*changed, folder(R"("lm_head", "embed_tokens")"), {});
  EXPECT_EQ(values(*changed, "lm_head.weight"), head) << "next to the model";
  adapter->merge();
  expect_near(values(*changed, "lm_head.weight"), updated_head(head));
  expect_near(values(*changed, "model.embed_tokens.weight"), updated_table(table));
}

TEST_F(VocabularyUpdatesTest, StoredBaseIsTheOneThatIsUpdated) {
  const auto changed = model();
  const std::vector<float> base = matrix(kRows * kWidth, 9);
  add_head();
  add("lm_head.base_layer.weight", {kRows, kWidth}, base);
  EXPECT_EQ(adapter_vocabulary(folder()), kRows);
  load_adapter(*changed, folder(), {})->merge();
  expect_near(values(*changed, "lm_head.weight"), updated_head(base));
}

TEST_F(VocabularyUpdatesTest, WhatIsWrittenIsTheSameModel) {
  const auto changed = model(), again = model();
  add_head();
  const auto adapter = load_adapter(*changed, folder(), {});
  save_adapter_folder(*changed, *adapter, {temp_ / "copy"}, {.dtype = DType::f32, .base = "base"});
  load_adapter(*again, temp_ / "copy", {})->merge();
  adapter->merge();
  EXPECT_EQ(values(*again, "lm_head.weight"), values(*changed, "lm_head.weight"));
}

TEST_F(VocabularyUpdatesTest, TiedModelsAreRefusedInOneLine) {
  const auto tied = model(true);
  add_table();
  add("model.embed_tokens.base_layer.weight", {kRows, kWidth}, matrix(kRows * kWidth, 9));
  EXPECT_THAT(
      refusal(*tied, folder(R"("embed_tokens")")),
      AllOf(HasSubstr("adapter_config.json: adapters of model.embed_tokens"), HasSubstr("tie_word_embeddings"),
            HasSubstr("load the adapter over an untied model"), Not(HasSubstr("faults")), Not(HasSubstr("\n"))));
}

TEST_F(VocabularyUpdatesTest, DoraIsRefusedInOneLine) {
  const auto untied = model();
  add_head();
  add("lm_head.lora_magnitude_vector", {kRows}, matrix(kRows, 5));
  EXPECT_THAT(refusal(*untied, folder(R"("lm_head")", R"(, "use_dora": true)")),
              AllOf(HasSubstr("DoRA (use_dora) of lm_head is not supported"), HasSubstr("merge_and_unload"),
                    Not(HasSubstr("faults"))));
}

TEST_F(VocabularyUpdatesTest, WhatDoesNotFitIsNamed) {
  const auto untied = model();
  add("lm_head.lora_A.weight", {kRank, kWidth}, matrix(kRank * kWidth, 1));
  EXPECT_THAT(refusal(*untied, folder()), HasSubstr("lm_head has no lora_B.weight"));
  add("lm_head.lora_B.weight", {kRows + 1, kRank}, matrix((kRows + 1) * kRank, 1));
  EXPECT_THAT(refusal(*untied, folder()),
              HasSubstr("lm_head.lora_B.weight has shape [17, 2]; expected [16, 2] for rank 2"));
}

}  // namespace
}  // namespace quench
