// Calibrated quantization from end to end, on models that have learned something where figures are compared.

#include <gmock/gmock.h>

#include <array>
#include <random>

#include "core/json/json.h"
#include "core/safetensors/safetensors.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_program;

// Small stories of a trade, a person and a thing that return from sentence to sentence: a text that a small model
// learns something of, and that is always the same.
std::string stories(std::uint32_t seed, int count) {
  struct Trade {
    std::array<const char*, 6> things, acts, places;
  };
  static constexpr std::array<Trade, 5> kTrades = {{
      {{"loaf", "cake", "pie", "bun", "roll", "tart"},
       {"baked", "sliced", "glazed", "burned", "sold", "tasted"},
       {"bakery", "kitchen", "market", "oven", "cellar", "shop"}},
      {{"boat", "net", "anchor", "oar", "sail", "lantern"},
       {"mended", "lost", "painted", "hauled", "borrowed", "found"},
       {"harbour", "beach", "river", "island", "pier", "bay"}},
      {{"letter", "book", "map", "poem", "diary", "song"},
       {"wrote", "read", "copied", "hid", "printed", "burned"},
       {"library", "school", "office", "attic", "study", "archive"}},
      {{"clock", "wheel", "lamp", "engine", "lock", "bell"},
       {"repaired", "built", "cleaned", "broke", "sold", "tested"},
       {"workshop", "tower", "station", "garage", "mill", "yard"}},
      {{"rose", "apple", "seed", "hedge", "fern", "pumpkin"},
       {"planted", "watered", "picked", "pruned", "carried", "sold"},
       {"garden", "orchard", "field", "greenhouse", "meadow", "park"}},
  }};
  static constexpr std::array<const char*, 12> kPeople = {"Anna",  "Boris", "Clara", "David", "Elena", "Felix",
                                                          "Greta", "Henry", "Irma",  "Jonas", "Karin", "Lukas"};
  static constexpr std::array<const char*, 6> kDays = {"Monday",   "Tuesday", "Wednesday",
                                                       "Thursday", "Friday",  "Saturday"};
  std::mt19937 random(seed);
  const auto one_of = [&random](const auto& values) { return values[random() % values.size()]; };
  std::string text;
  for (int i = 0; i < count; ++i) {
    const Trade trade = one_of(kTrades);
    const std::string who = one_of(kPeople), friend_of = one_of(kPeople), thing = one_of(trade.things),
                      place = one_of(trade.places);
    text += fmt::format("On {} {} went to the {}.", one_of(kDays), who, place);
    for (std::uint32_t sentence = 0, length = 3 + random() % 4; sentence < length; ++sentence) switch (random() % 6) {
        case 0: text += fmt::format(" {} {} the {}.", who, one_of(trade.acts), thing); break;
        case 1: text += fmt::format(" The {} was in the {}.", thing, place); break;
        case 2: text += fmt::format(" {} saw that {} {} it.", friend_of, who, one_of(trade.acts)); break;
        case 3: text += fmt::format(" Then {} asked {} for a {}.", who, friend_of, one_of(trade.things)); break;
        case 4: text += fmt::format(" \"Is this your {}?\" asked {}.", thing, friend_of); break;
        default: text += fmt::format(" Nobody else had ever {} a {} there.", one_of(trade.acts), thing); break;
      }
    text += fmt::format(" In the evening {} left the {} with the {}.\n", who, place, thing);
  }
  return text;
}

class CalibrationVerbSlow : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new testing::TempDir();
    testing::write_file(*folder_ / "train.txt", stories(1, 900));
    testing::write_file(*folder_ / "calibration.txt", stories(2, 200));
    testing::write_file(*folder_ / "held_out.txt", stories(3, 120));
    ok({"tokenize", "train", "--input", "train.txt", "--vocab-size", "512", "--output", "tokenizer"});
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static void ok(const std::vector<std::string>& arguments) {
    const Outcome outcome = run_program(folder_->path(), arguments);
    ASSERT_EQ(outcome.status, 0) << arguments[0] << ": " << outcome.errors << outcome.output;
  }

  // Every test is a process of its own: it trains what it needs, for as long as it needs.
  static void train_model(const std::string& model, int seed, int steps) {
    testing::write_file(*folder_ / "run.json", R"({
      "model": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256,
                "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 128, "rms_norm_eps": 1e-5},
      "data": {"train": ["train.txt"], "seq_len": 64, "tokenizer": "tokenizer"},
      "training": {"micro_batch_size": 16, "dtype": "f32"},
      "optimizer": {"lr": 3e-3}, "lr_schedule": {"warmup_steps": 20},
      "metrics": {"tensorboard": false}, "checkpoint": {"interval": 0},
      "run": {"folder": "run"}, "export": {"folder": "model"}})");
    ok({"train", "run.json", "--training.seed", std::to_string(seed), "--training.steps", std::to_string(steps),
        "--run.folder", "run-" + model, "--export.folder", model});
  }

  static Outcome quantize(const std::string& scheme, const std::string& method, std::vector<std::string> more = {},
                          const std::string& model = "model") {
    std::vector<std::string> arguments{"quantize", "--model",  model,
                                       "--scheme", scheme,     "--method",
                                       method,     "--output", "out-" + scheme + "-" + method,
                                       "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder_->path(), arguments);
  }

  static std::vector<std::string> calibrated(const std::string& method) {
    if (method == "rtn" || method == "hqq" || method == "mse") return {};
    return {"--calibration", "calibration.txt", "--calibration-samples", "40", "--calibration-seq-len", "128"};
  }

  struct Measured {
    double before = 0, after = 0;
  };
  static Measured perplexity(const std::string& scheme, const std::string& method, std::vector<std::string> more = {},
                             const std::string& model = "model") {
    for (const std::string& one : calibrated(method)) more.push_back(one);
    more.insert(more.end(), {"--perplexity", "held_out.txt", "--overwrite"});
    const Outcome made = quantize(scheme, method, more, model);
    EXPECT_EQ(made.status, 0) << made.errors;
    if (made.status != 0) return {};
    const Json json = Json::parse(made.output);
    return {json.at("perplexity_before").as_double(), json.at("perplexity").as_double()};
  }

  static testing::TempDir* folder_;
};
testing::TempDir* CalibrationVerbSlow::folder_ = nullptr;

// GPTQ lowers the loss that few bits cost. HQQ sees weights only and promises a smaller error of those
// (Hqq.LowersTheMeanError); AWQ is for outliers of inputs, which so small a model has not: both are in
// tests/export/methods/calibration_test.cpp.
TEST_F(CalibrationVerbSlow, GptqLowersThePerplexityOfFewBits) {
  double nearest_sum = 0, gptq_sum = 0;
  int cases = 0, wins = 0;
  for (int seed = 1; seed <= 2; ++seed) {
    const std::string model = fmt::format("model-{}", seed);
    train_model(model, seed, 400);
    for (const std::string scheme :
         {"int3_weight_only_g64", "int2_weight_only_g32_asym", "int2_weight_only_g128_asym"}) {
      const std::vector<std::string> format = {"--format", "torchao"};  // zero points of 2 bits have no other reader
      const Measured nearest = perplexity(scheme, "rtn", format, model);
      const Measured gptq = perplexity(scheme, "gptq", format, model);
      EXPECT_EQ(gptq.before, nearest.before);
      ++cases;
      wins += gptq.after < nearest.after ? 1 : 0;
      gptq_sum += std::log(gptq.after / gptq.before);
      nearest_sum += std::log(nearest.after / nearest.before);
    }
  }
  RecordProperty("loss", fmt::format("rtn {:.4f}, gptq {:.4f}, wins {} of {}", nearest_sum, gptq_sum, wins, cases));
  EXPECT_GT(nearest_sum, cases * std::log(1.01));
  EXPECT_LT(gptq_sum, 0.75 * nearest_sum);
  EXPECT_GT(wins, cases / 2);
}

// The model card matches the folder.
TEST_F(CalibrationVerbSlow, ThePerplexityOfTheCardIsThatOfTheFolder) {
  train_model("model", 1, 60);
  for (const auto& [scheme, method] : {std::pair<std::string, std::string>{"int4_weight_only_g32", "gptq"},
                                       {"int4_weight_only_g32_asym", "hqq"},
                                       {"int3_weight_only_g64", "mse"},
                                       {"int3_weight_only_g64", "autoround"},
                                       {"int8dyn_int8", "smoothquant"},
                                       {"float8_static", "rtn"},
                                       {"int8static_int8", "rtn"},
                                       {"nvfp4", "rtn"}}) {
    SCOPED_TRACE(scheme);
    std::vector<std::string> more;
    if (method == "rtn") more = calibrated("gptq");
    if (method == "autoround") more = {"--iterations", "5", "--batch-size", "2"};
    const Measured measured = perplexity(scheme, method, more);
    const Outcome done = run_program(folder_->path(), {"eval", "--model", "out-" + scheme + "-" + method, "--data",
                                                       "held_out.txt", "--json", "--device", "cpu"});
    ASSERT_EQ(done.status, 0) << done.errors;
    EXPECT_NEAR(Json::parse(done.output).at("token_perplexity").as_double(), measured.after, 1e-3 * measured.after);
    const std::string card = testing::read_file(*folder_ / ("out-" + scheme + "-" + method + "/README.md"));
    EXPECT_THAT(card, HasSubstr("`" + scheme + "`"));
    EXPECT_EQ(card.find("40 sequences of 128 tokens from calibration.txt") != std::string::npos,
              method != "hqq" && method != "mse");
    EXPECT_THAT(card, HasSubstr("- `lm_head`: excluded"));
    EXPECT_THAT(card, HasSubstr(fmt::format("{:.4f} a token on held_out.txt", measured.after)));
  }
}

// Experts have codes of their own, routers stay.
TEST(QuantizeExperts, KeepTheOutputs) {
  for (const std::string model : {"mixtral", "qwen3_moe"}) {
    SCOPED_TRACE(model);
    const testing::TempDir folder;
    const std::string source = (testing::golden_dir() / "models" / model).string();
    std::vector<std::int64_t> ids(16);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(7 * i % 60);
    write_safetensors(folder / "input.safetensors",
                      {{"input_ids", DType::i64, {1, 16}, std::as_bytes(std::span(ids))}});
    const auto logits = [&](const std::string& of) {
      const Outcome done =
          run_program(folder.path(), {"forward", "--model", of, "--input", "input.safetensors", "--output",
                                      "logits.safetensors", "--overwrite", "--device", "cpu", "--dtype", "f32"});
      EXPECT_EQ(done.status, 0) << done.errors;
      const SafetensorsReader reader(folder / "logits.safetensors");
      const SafetensorsEntry& entry = reader.at("logits");
      std::vector<float> values(static_cast<std::size_t>(entry.shape.numel()));
      reader.read(entry, std::as_writable_bytes(std::span(values)));
      return values;
    };
    const Outcome made = run_program(
        folder.path(), {"quantize", "--model", source, "--scheme", "int8_weight_only", "--output", "q", "--json"});
    ASSERT_EQ(made.status, 0) << made.errors;
    EXPECT_THAT(made.output, HasSubstr("experts.0"));
    EXPECT_THAT(testing::read_file(folder / "q/config.json"), HasSubstr("gate\""));  // the router, which is left alone
    const double distance = testing::relative_l2<float, float>(logits("q"), logits(source));
    EXPECT_GT(distance, 0);
    EXPECT_LT(distance, 0.05);
  }
}

TEST_F(CalibrationVerbSlow, RefusesWhatMakesNoSense) {
  train_model("model", 1, 21);
  const auto refusal = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    return outcome.errors;
  };
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "gptq")), HasSubstr("needs calibration data"));
  EXPECT_THAT(refusal(quantize("float8_static", "rtn")), HasSubstr("needs calibration data"));
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "smoothquant", calibrated("gptq"))),
              HasSubstr("schemes with quantized inputs"));
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "awq", {"--damping", "0.1", "--calibration", "train.txt"})),
              HasSubstr("--damping has no effect on method awq; it acts on: gptq, smoothquant_gptq"));
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "gptq", {"--iterations", "9", "--calibration", "train.txt"})),
              HasSubstr("--iterations has no effect on method gptq; it acts on: autoround"));
  EXPECT_THAT(refusal(quantize("q4_0", "autoround", {"--format", "gguf", "--calibration", "train.txt"})),
              HasSubstr("AutoRound has no rule for GGUF's blocks"));
  testing::write_file(*folder_ / "empty.txt", "");
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "gptq", {"--calibration", "empty.txt"})),
              HasSubstr("hold 0 tokens"));
  EXPECT_THAT(quantize("int4_weight_only_g32", "gptq", {"--calibration", "absent.txt"}).errors,
              HasSubstr("absent.txt"));
  EXPECT_THAT(refusal(quantize("int4_weight_only_g32", "gptq",
                               {"--calibration", "calibration.txt", "--calibration-seq-len", "999"})),
              HasSubstr("exceed the model's context"));
  EXPECT_FALSE(fs::exists(*folder_ / "out-int4_weight_only_g32-gptq-refused"));
}

}  // namespace
}  // namespace quench
