// Distillation on answers that the student samples.

#include "train/objectives/distillation/run/on_policy.h"

#include <gmock/gmock.h>

#include <cmath>

#include "core/ops/loss/cross_entropy.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "tests/engine/engine_testing.h"
#include "tests/testing.h"
#include "train/objectives/distillation/run/distillation.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

constexpr const char* kByteModel = R"({"vocab_size": 259, "max_position_embeddings": 64})";
constexpr std::int64_t kRowTokens = 32;

// A row for each prompt with its answer, whose tokens are the targets.
Batch answered_batch(const Tokenizer& tokenizer, const std::vector<std::pair<std::string, std::string>>& texts) {
  Batch batch;
  const auto rows = std::ssize(texts);
  batch.input_ids = Tensor::zeros({rows, kRowTokens}, DType::i32);
  batch.labels = Tensor::empty({rows, kRowTokens}, DType::i32);
  batch.positions = Tensor::zeros({rows, kRowTokens}, DType::i32);
  std::fill_n(batch.labels.data<std::int32_t>(), rows * kRowTokens, kIgnoreLabel);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto& [prompt, answer] = texts[static_cast<std::size_t>(row)];
    std::vector<std::int32_t> ids = tokenizer.encode(prompt);
    const auto targets = std::ssize(ids);
    for (const std::int32_t id : tokenizer.encode(answer, {.add_special_tokens = false})) ids.push_back(id);
    std::ranges::copy(ids, batch.input_ids.data<std::int32_t>() + row * kRowTokens);
    for (std::int64_t i = targets; i < std::ssize(ids); ++i)
      batch.labels.data<std::int32_t>()[row * kRowTokens + i - 1] = ids[static_cast<std::size_t>(i)];
    batch.valid_tokens += std::ssize(ids) - targets;
    batch.sequences.push_back({row * kRowTokens, std::ssize(ids), row * kRowTokens, std::ssize(ids)});
  }
  return batch;
}

struct OnPolicyCase {
  OnPolicyCase() : student({}, kByteModel), tokenizer(make_byte_tokenizer()) {
    data.push_back(answered_batch(*tokenizer, {{"one", "1"}, {"thirteen", "thir"}}));
    data.push_back(answered_batch(*tokenizer, {{"a", "b"}, {"", "only targets"}}));
  }
  // A model of another seed than the student.
  [[nodiscard]] static std::unique_ptr<nn::CausalLm> other_model() {
    auto model = std::make_unique<nn::CausalLm>(testing::tiny_config(kByteModel), nn::ParameterOptions{});
    model->initialize(11);
    return model;
  }
  [[nodiscard]] OnPolicyObjective objective(const DistillationOptions& options, double share = 1) const {
    FrozenModel frozen;
    frozen.model = other_model();
    OnPolicyOptions sampling{.share = share, .micro_batch_size = 2, .logged = 100};
    sampling.rollout = {.max_tokens = 8, .sequence_tokens = kRowTokens, .sampling = {.temperature = 1, .seed = 3}};
    sampling.rollout.stop_tokens = {*tokenizer->eos_id()};
    return {
        student.lm,
        std::make_unique<DistillationObjective>(student.lm, live_targets(frozen_teacher(std::move(frozen))), options),
        std::move(sampling), tokenizer};
  }
  testing::EngineModel student;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<Batch> data;
};

TEST(OnPolicyDistillation, PromptsEndBeforeTheLastTargets) {
  const OnPolicyCase given;
  const std::vector<RolloutPrompt> prompts = answer_prompts(given.data, *given.tokenizer);
  ASSERT_EQ(prompts.size(), 3u);  // a sequence of targets alone has none
  EXPECT_EQ(prompts[0].tokens, given.tokenizer->encode("one"));
  EXPECT_EQ(prompts[1].tokens, given.tokenizer->encode("thirteen"));
  EXPECT_EQ(prompts[2].tokens, given.tokenizer->encode("a"));
  EXPECT_NE(prompts[0].sample, prompts[1].sample);
}

// log softmax of each row, in f64.
std::vector<std::vector<double>> log_probabilities(const nn::CausalLm& model, const std::vector<std::int32_t>& ids) {
  const autograd::NoGrad no_grad;
  const auto count = std::ssize(ids);
  const Tensor logits = model.logits(
      model.hidden(Tensor::from_values<std::int32_t>({count}, ids), model.make_context({{0, count, 0, count}}, count)));
  std::vector<std::vector<double>> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<double>& row = rows.emplace_back();
    double sum = 0;
    for (std::int64_t v = 0; v < logits.size(1); ++v) {
      row.push_back(static_cast<double>(logits.data<float>()[i * logits.size(1) + v]));
      sum += std::exp(row.back());
    }
    for (double& value : row) value -= std::log(sum);
  }
  return rows;
}

double kl_of(const std::vector<double>& log_p, const std::vector<double>& log_q) {
  double sum = 0;
  for (std::size_t v = 0; v < log_p.size(); ++v) sum += std::exp(log_p[v]) * (log_p[v] - log_q[v]);
  return sum;
}

TEST(OnPolicyDistillation, TheLossIsTheDivergenceAtEachSampledToken) {
  const OnPolicyCase given;
  const auto teacher = OnPolicyCase::other_model();
  for (const Divergence divergence : {Divergence::reverse_kl, Divergence::forward_kl, Divergence::jensen_shannon}) {
    OnPolicyObjective objective = given.objective({.divergence = divergence, .beta = 0.3f});
    const std::vector<Batch> batches = objective.step_batches(given.data, 5);
    const std::vector<SampledText> texts = objective.sampled_texts();
    ASSERT_EQ(texts.size(), 3u);
    double wanted = 0, tokens = 0;
    const std::vector<RolloutPrompt> prompts = answer_prompts(given.data, *given.tokenizer);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      std::vector<std::int32_t> ids = prompts[i].tokens;
      ids.insert(ids.end(), texts[i].tokens.begin(), texts[i].tokens.end());
      const auto log_q = log_probabilities(given.student.lm, ids), log_p = log_probabilities(*teacher, ids);
      for (std::size_t row = prompts[i].tokens.size() - 1; row + 1 < ids.size(); ++row, tokens += 1) {
        std::vector<double> log_m;
        for (std::size_t v = 0; v < log_p[row].size(); ++v)
          log_m.push_back(std::log(0.3 * std::exp(log_p[row][v]) + 0.7 * std::exp(log_q[row][v])));
        if (divergence == Divergence::reverse_kl) wanted += kl_of(log_q[row], log_p[row]);
        if (divergence == Divergence::forward_kl) wanted += kl_of(log_p[row], log_q[row]);
        if (divergence == Divergence::jensen_shannon)
          wanted += 0.3 * kl_of(log_p[row], log_m) + 0.7 * kl_of(log_q[row], log_m);
      }
    }
    double loss = 0, units = 0;
    for (const Batch& batch : batches) units += static_cast<double>(objective.units(batch));
    EXPECT_EQ(units, tokens);
    std::vector<double> sums(objective.metric_names().size());
    for (const Batch& batch : batches) {
      if (objective.units(batch) == 0) continue;
      const std::int64_t rows = batch.input_ids.numel();
      const ObjectiveInput in{.batch = batch,
                              .ids = batch.input_ids.view({rows}),
                              .labels = batch.labels.view({rows}),
                              .context = batch_context(given.student.lm, batch)};
      objective.prepare(in);
      const Tensor metrics = Tensor::empty({std::ssize(sums)}, DType::f32);
      autograd::Tape tape;
      const autograd::TapeScope scope(tape);
      loss +=
          static_cast<double>(*objective.loss(in, static_cast<float>(1 / units), {}, metrics).value().data<float>());
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(metrics.data<float>()[i]);
    }
    EXPECT_NEAR(loss, wanted / tokens, 2e-6 * std::max(1.0, wanted / tokens));
    const std::vector<double> reported = objective.reported(sums);
    EXPECT_NEAR(reported[0], wanted / tokens, 2e-6 * std::max(1.0, wanted / tokens));
    EXPECT_EQ(reported[2], 1);  // on_policy
    EXPECT_NEAR(reported[3], tokens / 3, 1e-12);
  }
}

TEST(OnPolicyDistillation, AShareOfTheStepsReadsTheDataAsTheyAre) {
  const OnPolicyCase given;
  OnPolicyObjective objective = given.objective({}, 0.5);
  int sampled = 0;
  for (int step = 1; step <= 64; ++step) {
    const std::vector<Batch> batches = objective.step_batches(given.data, step);
    const bool own = !objective.sampled_texts().empty();
    sampled += own ? 1 : 0;
    if (!own) {
      EXPECT_EQ(batches[0].input_ids.data<std::int32_t>(), given.data[0].input_ids.data<std::int32_t>());
    }
  }
  EXPECT_GT(sampled, 20);
  EXPECT_LT(sampled, 44);
}

TEST(OnPolicyDistillation, DataWithoutPromptsAreRefused) {
  const OnPolicyCase given;
  OnPolicyObjective objective = given.objective({});
  try {
    (void)objective.step_batches({answered_batch(*given.tokenizer, {{"", "no prompt"}})}, 1);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("has a prompt before its targets"));
  }
}

}  // namespace
}  // namespace quench
