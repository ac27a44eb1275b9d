// Tokenizer files of exported folders.

#include "train/model_folder/carried_files.h"

#include <gmock/gmock.h>

#include "core/json/json.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "tests/testing.h"
#include "tests/train/metrics/captured_log.h"
#include "train/model_folder/model_folder.h"

namespace quench {
namespace {

using testing::CapturedLog;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

class CarriedFiles : public ::testing::Test {
 protected:
  // tokenizer_config.json of a folder with this one.
  [[nodiscard]] std::string carried(const std::string& config) const {
    const std::filesystem::path from = temp_ / "from", to = temp_ / "to";
    std::filesystem::remove_all(to);
    for (const auto& folder : {from, to}) std::filesystem::create_directories(folder);
    write_file(from / "tokenizer_config.json", config);
    write_small_files(Json::object(), {.model = from, .tokenizer_folder = from}, to);
    return read_file(to / "tokenizer_config.json");
  }

  TempDir temp_;
};

TEST_F(CarriedFiles, TokenizerClassOfTransformers5IsWrittenForVersion4Too) {
  EXPECT_EQ(carried("{\n  \"model_max_length\": 1e+30,\n  \"tokenizer_class\" :\t\"TokenizersBackend\",\n  \"x\": "
                    "\"TokenizersBackend\"}\n"),
            "{\n  \"model_max_length\": 1e+30,\n  \"tokenizer_class\" :\t\"PreTrainedTokenizerFast\",\n  \"x\": "
            "\"TokenizersBackend\"}\n");
  const Json both = Json::parse(carried(R"({"auto_map": {}, "tokenizer_class": "TokenizersBackend"})"));
  EXPECT_EQ(both.find("auto_map"), nullptr);
  EXPECT_EQ(both.at("tokenizer_class"), Json("PreTrainedTokenizerFast"));
}

TEST_F(CarriedFiles, OtherTokenizerConfigsKeepTheirBytes) {
  for (const std::string config :
       {R"({"tokenizer_class":   "LlamaTokenizer", "model_max_length": 1e+30})",
        R"({"tokenizer_class": null, "backend": "TokenizersBackend", "tokenizer_class_"  : 1})", "{}"})
    EXPECT_EQ(carried(config), config);
}

// Readers cap the context by it.
TEST_F(CarriedFiles, LengthOfTheTokenizerFollowsARescaledContext) {
  const auto length = [&](std::string_view rope, std::string_view stored) {
    const std::filesystem::path file = temp_ / "tokenizer_config.json";
    write_file(file, fmt::format(R"({{"model_max_length": {}}})", stored));
    Json config = Json::parse(R"({"model_type": "llama", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 1024, "quantization_config": {}})");
    config.set("rope_scaling", Json::parse(rope));
    extend_model_max_length(config, file);
    return Json::parse(read_file(file)).at("model_max_length").dump();
  };
  const char* const yarn = R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256})";
  EXPECT_EQ(length(yarn, "256"), "1024");
  EXPECT_EQ(length(R"({"rope_type": "linear", "factor": 4.0})", "256"), "1024");
  EXPECT_EQ(length(yarn, "512"), "512") << "someone's own";
  EXPECT_EQ(length(yarn, "1000000000000000019884624838656"), "1e+30") << "no limit";
  EXPECT_EQ(length("null", "1024"), "1024");
}

TEST_F(CarriedFiles, TokenizerLargerThanTheEmbeddingIsWarnedAbout) {
  const auto save = [&](std::int64_t rows) {
    nn::CausalLm model(
        nn::parse_model_config(Json::parse(fmt::format(R"({{"architectures": ["LlamaForCausalLM"], "vocab_size": {},
            "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
            "num_key_value_heads": 1, "tie_word_embeddings": false}})",
                                                       rows)),
                               "config.json"),
        nn::ParameterOptions{});
    model.initialize(1);
    const auto tokenizer = make_byte_tokenizer();
    const CapturedLog log;
    save_model_folder(model, {temp_ / "out"}, {.dtype = DType::f32, .small_files = {.tokenizer = tokenizer.get()}});
    return log.text();
  };
  EXPECT_THAT(save(259), Not(HasSubstr("embedding")));
  EXPECT_THAT(save(258), HasSubstr("the tokenizer has 259 tokens, the model's embedding 258 rows"));
}

}  // namespace
}  // namespace quench
