// Model::open(): folders, GGUF files, adapters, checkpoints, runs, and weights of other steps.

#include <gmock/gmock.h>

#include <cstring>

#include "tests/train/run/sample_run.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/model/model.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path golden(const char* name) {
  return testing::golden_dir() / "models" / name;
}

Model open_on_cpu(const fs::path& path, ModelOptions options = {}) {
  options.device = "cpu";
  return Model::open(path, options);
}

const Tensor& values(const Model& model, const std::string& name) {
  for (const nn::Parameter* parameter : model.model().parameters())
    if (parameter->name == name) return parameter->variable.value();
  throw std::runtime_error("no parameter " + name);
}

float first_value(const Model& model, const std::string& name) {
  return *values(model, name).data<float>();
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.raw_data(), b.raw_data(), a.nbytes()) == 0;
}

std::vector<float> logits(const Model& opened) {
  constexpr std::int64_t kCount = 9;
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < kCount; ++i) ids.push_back(i * 5 % 64);
  const autograd::NoGrad no_grad;
  nn::CausalLm& model = opened.model();
  const Tensor result = model.logits(model.hidden(Tensor::from_values<std::int32_t>({kCount}, ids),
                                                  model.make_context({{0, kCount, 0, kCount}}, kCount)));
  return {result.data<float>(), result.data<float>() + result.numel()};
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return most;
}

template <class Call>
std::string error_of(const Call& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

constexpr const char* kNorm = "model.layers.1.input_layernorm.weight";

TEST(OpenModel, ReadsAModelFolder) {
  const Model model = open_on_cpu(golden("llama"));
  EXPECT_EQ(model.source().kind(), ModelSourceKind::model_folder);
  EXPECT_EQ(model.files(), golden("llama"));
  EXPECT_FALSE(model.is_quantized());
  EXPECT_EQ(model.adapters(), nullptr);
  EXPECT_EQ(model.trained_scheme().scheme, nullptr);
  EXPECT_TRUE(model.training().rows.empty());
  nn::CausalLm read(model.config(), {.dtype = model.model().options().dtype, .trainable = false});
  load_weights(read, golden("llama"));
  const auto wanted = read.parameters(), got = model.model().parameters();
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(equal(got[i]->variable.value(), wanted[i]->variable.value())) << got[i]->name;
}

TEST(OpenModel, NamesTheReasonForAMissingTokenizer) {
  const Model model = open_on_cpu(golden("llama"));
  EXPECT_EQ(model.find_tokenizer(), nullptr);
  EXPECT_THAT(error_of([&] { (void)model.require_tokenizer(); }, ErrorCode::not_found),
              HasSubstr(model.no_tokenizer() + "; name one with --tokenizer"));
  EXPECT_NE(model.find_tokenizer("bytes"), nullptr);
}

TEST(OpenModel, RefusesUnknownDtypesAndPaths) {
  EXPECT_THAT(error_of([] { (void)open_on_cpu(golden("llama"), {.dtype = "f8"}); }, ErrorCode::bad_config),
              HasSubstr("'f8' is not supported; use auto, f32 or bf16"));
  EXPECT_THAT(error_of([] { (void)open_on_cpu("nowhere"); }, ErrorCode::not_found), HasSubstr("nowhere"));
  EXPECT_THAT(
      error_of([] { (void)open_on_cpu(golden("llama"), {.weights = {.weights = "ema"}}); }, ErrorCode::bad_config),
      HasSubstr("is a model folder: --average and --weights are for runs and checkpoints"));
}

TEST(OpenModel, GivesAnotherDtype) {
  const Model narrow = open_on_cpu(golden("llama"), {.dtype = "bf16"});
  EXPECT_EQ(narrow.model().options().dtype, DType::bf16);
  const Model wide = open_on_cpu(golden("llama"), {.dtype = "f32"});
  EXPECT_EQ(wide.model().options().dtype, DType::f32);
}

TEST(OpenModel, KeepsQuantizedWeightsOfAGgufFilePacked) {
  const testing::TempDir temp;
  SaveTarget target{.path = temp / "small.gguf", .format = "gguf"};
  target.quantization.scheme = "q8_0";
  const SavedModel saved = convert_model(golden("llama"), {.device = "cpu"}, target);
  EXPECT_EQ(saved.scheme, "q8_0");
  const Model model = open_on_cpu(temp / "small.gguf");
  EXPECT_EQ(model.source().kind(), ModelSourceKind::gguf_file);
  EXPECT_TRUE(model.is_quantized());
  EXPECT_LT(distance(logits(model), logits(open_on_cpu(golden("llama")))), 0.5);
  EXPECT_THAT(error_of([&] { (void)open_on_cpu(temp / "small.gguf", {.trainable = true}); }, ErrorCode::unsupported),
              HasSubstr("quantized weights have no gradients"));
}

TEST(OpenModel, AppliesAndMergesAPeftAdapter) {
  EXPECT_THAT(error_of([] { (void)open_on_cpu(golden("llama_lora")); }, ErrorCode::bad_config),
              HasSubstr("is a PEFT adapter folder, no model folder"));
  Model model = open_on_cpu(golden("llama"), {.dtype = "f32", .adapter = golden("llama_lora")});
  const std::vector<float> base = logits(model);
  model.use_adapter(golden("llama_lora"));
  ASSERT_NE(model.adapters(), nullptr);
  const std::vector<float> adapted = logits(model);
  EXPECT_GT(distance(adapted, base), 1e-3);
  model.merge_adapters();
  EXPECT_EQ(model.adapters(), nullptr);
  EXPECT_LT(distance(logits(model), adapted), 1e-4);
  EXPECT_EQ(model.training().base, "llama");
}

TEST(OpenModel, ReadsARunItsCheckpointsAndTheirMeans) {
  const testing::TinyRun tiny;
  tiny.run(tiny.config("run", {"--training.steps=4", "--checkpoint.interval=2", "--training.ema_decay=0.5"}));
  const Model run = open_on_cpu(tiny.folder("run"));
  EXPECT_EQ(run.source().kind(), ModelSourceKind::run_folder);
  EXPECT_THAT(run.training().rows, HasSubstr("4"));
  const float last = first_value(run, kNorm);
  EXPECT_EQ(first_value(open_on_cpu(tiny.checkpoint("run", 4)), kNorm), last);
  const float earlier = first_value(open_on_cpu(tiny.checkpoint("run", 2)), kNorm);
  EXPECT_NE(earlier, last);
  const float mean = first_value(open_on_cpu(tiny.folder("run"), {.weights = {.steps = {2, 4}}}), kNorm);
  EXPECT_NEAR(mean, (last + earlier) / 2, 1e-6);
  EXPECT_NE(first_value(open_on_cpu(tiny.folder("run"), {.weights = {.weights = "ema"}}), kNorm), last);
  EXPECT_THAT(error_of(
                  [&] {
                    (void)open_on_cpu(tiny.folder("run"), {.weights = {.steps = {2, 3}}});
                  },
                  ErrorCode::not_found),
              HasSubstr("has no valid checkpoint of step 3; it has those of 4, 2"));
}

TEST(OpenModel, AppliesTheAdaptersOfARunToTheirBase) {
  const testing::TinyRun tiny;
  tiny.run(tiny.config("run", {"--training.steps=2", "--checkpoint.interval=2", "--lora.rank=2"}));
  Model run = open_on_cpu(tiny.folder("run"));
  ASSERT_NE(run.adapters(), nullptr);
  const std::vector<float> adapted = logits(run);
  run.merge_adapters();
  EXPECT_LT(distance(logits(run), adapted), 1e-4);
}

TEST(OpenModel, KnowsTheSchemeThatARunTrainedFor) {
  const testing::TinyRun tiny;
  tiny.run(tiny.config("run", {"--training.steps=2", "--checkpoint.interval=2", "--recipe.name=qat_intx_weight_only",
                               "--recipe.group_size=32", "--recipe.learned_scales=true",
                               R"(--recipe.filter.exclude=["lm_head", "*.down_proj"])"}));
  const Model run = open_on_cpu(tiny.folder("run"));
  ASSERT_NE(run.trained_scheme().scheme, nullptr);
  EXPECT_EQ(run.trained_scheme().recipe, "qat_intx_weight_only");
  EXPECT_FALSE(run.learned_scales().rows.empty());
  const Model evaluated = open_on_cpu(tiny.folder("run"), {.mtp = MtpLayers::left_out});
  EXPECT_EQ(evaluated.trained_scheme().scheme, nullptr);
}

TEST(OpenModel, FindsTheTokenizerOfARun) {
  const testing::SampleRun sample;
  sample.run(sample.config("run", {"--evaluation.interval=0"}));
  const Model run = open_on_cpu(sample.folder() / "run");
  const std::unique_ptr<Tokenizer> tokenizer = run.require_tokenizer();
  EXPECT_THAT(tokenizer->decode(tokenizer->encode("the cat")), ::testing::EndsWith("the cat"));
  EXPECT_FALSE(run.token_ids(tokenizer.get()).generation.eos.empty());
}

TEST(OpenModel, CallsTheWorkBeforeWeightsAreRead) {
  std::int64_t vocabulary = 0;
  bool ran = false;
  const Model model = open_on_cpu(golden("llama"), {.work = [&](const Model& opened) {
                                    vocabulary = opened.config().vocab_size;
                                    return [&] { ran = true; };
                                  }});
  EXPECT_EQ(vocabulary, model.config().vocab_size);
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace quench
