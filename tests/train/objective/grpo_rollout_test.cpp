#include "train/rollouts/rollouts.h"

#include <gtest/gtest.h>

#include "core/ops/loss/cross_entropy.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "tests/engine/engine_testing.h"
#include "train/objectives/grpo/run/grpo_objective.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

constexpr const char* kBytes = R"({"vocab_size": 259, "max_position_embeddings": 64})";

// Rows of prompts, as PackedRows writes them.
Batch prompt_batch(const Tokenizer& tokenizer, const std::vector<std::string>& prompts, std::int64_t length) {
  Batch batch;
  const auto rows = std::ssize(prompts);
  batch.input_ids = Tensor::zeros({rows, length}, DType::i32);
  batch.labels = Tensor::empty({rows, length}, DType::i32);
  batch.positions = Tensor::zeros({rows, length}, DType::i32);
  std::fill_n(batch.labels.data<std::int32_t>(), rows * length, kIgnoreLabel);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<std::int32_t> ids = tokenizer.encode(prompts[static_cast<std::size_t>(row)]);
    const std::size_t prompt = ids.size();
    for (const std::int32_t id : tokenizer.encode(R"({"answer":"7"})", {.add_special_tokens = false}))
      ids.push_back(id);
    std::ranges::copy(ids, batch.input_ids.data<std::int32_t>() + row * length);
    for (std::size_t i = prompt; i < ids.size(); ++i)
      batch.labels.data<std::int32_t>()[row * length + static_cast<std::int64_t>(i) - 1] = ids[i];
    batch.sequences.push_back({row * length, std::ssize(ids), row * length, std::ssize(ids)});
  }
  return batch;
}

struct Rollout {
  explicit Rollout(std::uint64_t seed = 3) : model({}, kBytes), tokenizer(make_byte_tokenizer()) {
    options = {.generations = 3, .max_tokens = 8, .sequence_tokens = 40, .sampling = {.temperature = 1, .seed = seed}};
    options.stop_tokens = {*tokenizer->eos_id()};
    data.push_back(prompt_batch(*tokenizer, {"one", "twelve"}, 40));
  }
  [[nodiscard]] std::vector<std::vector<Completion>> sample(std::int64_t step) const {
    return sample_completions(model.lm, rollout_prompts(data, *tokenizer), options, step, *tokenizer);
  }
  testing::EngineModel model;
  std::shared_ptr<const Tokenizer> tokenizer;
  RolloutOptions options;
  std::vector<Batch> data;
};

std::vector<std::string> texts_of(const std::vector<std::vector<Completion>>& groups) {
  std::vector<std::string> texts;
  for (const auto& group : groups)
    for (const Completion& completion : group) texts.push_back(completion.text);
  return texts;
}

TEST(GrpoRollout, PromptsAndTheirFieldsAreReadFromRows) {
  const Rollout rollout;
  const std::vector<RolloutPrompt> prompts = rollout_prompts(rollout.data, *rollout.tokenizer);
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[1].tokens, rollout.tokenizer->encode("twelve"));
  EXPECT_EQ(prompts[1].record, Json::parse(R"({"answer": "7"})"));
  EXPECT_EQ(prompts[1].sample, 1u);
}

TEST(GrpoRollout, CompletionsAreAFunctionOfSeedStepAndPlace) {
  const Rollout rollout, other(4);
  const std::vector<std::string> texts = texts_of(rollout.sample(1));
  ASSERT_EQ(texts.size(), 6u);
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_EQ(texts_of(rollout.sample(1)), texts);
  EXPECT_NE(texts_of(rollout.sample(2)), texts);
  EXPECT_NE(texts_of(other.sample(1)), texts);
}

TEST(GrpoRollout, SequencesArePackedWholeWithLabelsOfCompletionsAlone) {
  const std::vector<std::int32_t> a = {1, 2, 3}, b = {4, 5}, c = {6};
  const std::vector<RolloutSequence> sequences = {{a, b}, {b, a}, {c, c}, {a, a}};
  const RolloutBatches packed = pack_rollouts(sequences, 1, 6);
  std::size_t members = 0;
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < packed.batches.size(); ++i) {
    const Batch& batch = packed.batches[i];
    EXPECT_EQ(batch.first_sample, i);
    ASSERT_EQ(batch.sequences.size(), packed.members[i].size());
    for (std::size_t m = 0; m < batch.sequences.size(); ++m) {
      const RolloutSequence& sequence = sequences[packed.members[i][m]];
      std::vector<std::int32_t> whole(sequence.prompt.begin(), sequence.prompt.end());
      whole.insert(whole.end(), sequence.completion.begin(), sequence.completion.end());
      ASSERT_EQ(batch.sequences[m].q_length, std::ssize(whole) - 1);
      for (std::size_t t = 0; t + 1 < whole.size(); ++t) {
        const auto at = batch.sequences[m].q_begin + static_cast<std::int64_t>(t);
        EXPECT_EQ(batch.input_ids.data<std::int32_t>()[at], whole[t]);
        EXPECT_EQ(batch.labels.data<std::int32_t>()[at], t + 1 < sequence.prompt.size() ? kIgnoreLabel : whole[t + 1]);
        EXPECT_EQ(batch.positions.data<std::int32_t>()[at], static_cast<std::int32_t>(t));
      }
      ++members;
    }
    tokens += batch.valid_tokens;
  }
  EXPECT_EQ(members, sequences.size());
  EXPECT_EQ(tokens, 2 + 3 + 1 + 3);
  const RolloutBatches empty = pack_rollouts({}, 2, 6);
  ASSERT_EQ(empty.batches.size(), 1u);
  EXPECT_EQ(empty.batches[0].valid_tokens, 0);
}

// Number of tokens "a" to "m".
class LetterReward final : public Reward {
 public:
  [[nodiscard]] std::vector<double> score(std::span<const RewardSample> samples) const override {
    std::vector<double> rewards;
    for (const RewardSample& sample : samples) rewards.push_back(static_cast<double>(sample.completion.size() % 7));
    return rewards;
  }
};

RewardSet letter_rewards() {
  std::vector<RewardSet::Part> parts(1);
  parts[0] = {.name = "letters", .weight = 1, .reward = std::make_unique<LetterReward>()};
  return RewardSet(std::move(parts));
}

struct Pass {
  double loss = 0;
  std::vector<double> metrics;
};

// Loss and metrics of a step, means over units.
Pass pass_of(GrpoObjective& objective, const nn::CausalLm& model, const std::vector<Batch>& batches) {
  Pass pass;
  double units = 0;
  for (const Batch& batch : batches) units += static_cast<double>(objective.units(batch));
  std::vector<double> sums(objective.metric_names().size());
  for (const Batch& batch : batches) {
    if (objective.units(batch) == 0) continue;
    const std::int64_t tokens = batch.input_ids.numel();
    const ObjectiveInput in{.batch = batch,
                            .ids = batch.input_ids.view({tokens}),
                            .labels = batch.labels.view({tokens}),
                            .context = batch_context(model, batch)};
    objective.prepare(in);
    const Tensor metrics = Tensor::empty({std::ssize(sums)}, DType::f32);
    autograd::Tape tape;
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = objective.loss(in, static_cast<float>(1 / units), {}, metrics);
    }
    tape.backward(loss);
    pass.loss += static_cast<double>(*loss.value().data<float>());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(metrics.data<float>()[i]);
  }
  pass.metrics = objective.reported(sums);
  return pass;
}

double metric_of(const GrpoObjective& objective, const Pass& pass, const std::string& name) {
  const std::vector<std::string> names = objective.metric_names();
  return pass.metrics.at(static_cast<std::size_t>(std::ranges::find(names, name) - names.begin()));
}

TEST(GrpoRollout, TrainingPassesHaveTheLogProbabilitiesOfSampling) {
  Rollout rollout;
  rollout.options.generations = 8;
  for (const PolicyLossType type : {PolicyLossType::grpo, PolicyLossType::dapo, PolicyLossType::dr_grpo}) {
    GrpoObjective objective(
        rollout.model.lm,
        {.loss = {.type = type, .max_completion_length = 8}, .rollout = rollout.options, .micro_batch_size = 2},
        letter_rewards(), rollout.tokenizer, {});
    const std::vector<Batch> batches = objective.step_batches(rollout.data, 1);
    const Pass pass = pass_of(objective, rollout.model.lm, batches);
    const double difference = metric_of(objective, pass, "sampling_logp_difference");
    RecordProperty("difference", fmt::format("{:.3g}", difference));
    EXPECT_LT(difference, 2e-6);
    EXPECT_EQ(metric_of(objective, pass, "clip_ratio/region_mean"), 0);
    EXPECT_TRUE(std::isnan(metric_of(objective, pass, "kl")));
    // Ratios are 1: the mean over completions of advantages that add up to 0.
    if (type == PolicyLossType::grpo) {
      EXPECT_NEAR(pass.loss, 0, 1e-5);
    }
  }
}

}  // namespace
}  // namespace quench
