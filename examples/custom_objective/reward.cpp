// A training objective as a plug-in: a reward model, a scalar head over the last token of an answer. Pairs of a chosen
// and a rejected answer have the loss of Bradley and Terry (1952), -log sigmoid(chosen - rejected), as in TRL's
// RewardTrainer. The head is "score.weight", which AutoModelForSequenceClassification(num_labels=1) reads.
#include <quench/plugin.h>
#include <quench/train.h>

#include <array>

QUENCH_PLUGIN("reward", "1.0")

namespace {

using namespace quench;
using autograd::Variable;

constexpr std::string_view kHead = "score";

// Config section "reward": its presence makes this the run's objective.
struct RewardSection {
  double center = 0;  // weight of the mean squared sum of a pair's rewards, as center_rewards_coefficient
  friend bool operator==(const RewardSection&, const RewardSection&) = default;
};

void add_fields(std::vector<Field>& fields) {
  add_field(fields, "reward.center", QUENCH_OBJECTIVE_MEMBER(RewardSection, center), at_least(0), ResumePolicy::guarded,
            "Weight of the mean squared sum of a pair's rewards, which keeps them near 0 (TRL: "
            "center_rewards_coefficient).");
}

void check(Checker& checker) {
  if (checker.config().lora && checker.usable({"reward.center"}))
    checker.report("reward.center", "the head of rewards is no adapter: remove section lora");
}

// Values of evaluations by which early stopping and the best checkpoint may choose.
constexpr std::array<ObjectiveMetric, 2> kMetrics = {{{"rewards/accuracies", true}, {"rewards/margins", true}}};

// Loss, gradients and metrics of a micro-batch, in units of pairs.
class RewardObjective final : public Objective {
 public:
  RewardObjective(const nn::CausalLm& model, const nn::Parameter& head, double center)
      : model_(model), head_(head), center_(static_cast<float>(center)) {}

  std::vector<std::string> metric_names() const override {
    return {"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"};
  }
  std::int64_t units(const Batch& batch) const override { return std::ssize(batch.pairs); }

  Variable loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions&, const Tensor& metrics) override {
    const std::int64_t pairs = units(in.batch);
    const Device device = in.ids.device();
    std::vector<std::int32_t> last;  // chosen and rejected answers in turn
    for (const AnswerPair& pair : in.batch.pairs)
      for (const std::size_t answer : {pair.sequence, pair.sequence + 1}) {
        const SequenceRange& rows = in.batch.sequences[answer];
        last.push_back(static_cast<std::int32_t>(rows.q_begin + rows.q_length - 1));
      }
    const Variable hidden = autograd::permute_tokens(model_.hidden(in.ids, in.context),
                                                     autograd::select_tokens(last, in.batch.labels.numel(), device));
    const Variable rewards = autograd::reshape(autograd::router_logits(hidden, head_.weight()), {pairs, 2});  // f32
    // Two classes, the first of which is right: -log softmax is -log sigmoid of the difference.
    Variable loss = autograd::cross_entropy(rewards, Tensor::zeros({pairs}, DType::i32, device), scale);
    if (center_ > 0) {
      const Tensor ones = Tensor::from_values<float>({2, 1}, std::array{1.0f, 1.0f}).to(device);
      const Variable sums = autograd::matmul(rewards, Variable(ones));
      const Variable mean_square = autograd::mean(autograd::mul(sums, sums));
      loss = autograd::add(loss, autograd::scale(mean_square, center_ * scale * static_cast<float>(pairs)));
    }
    if (metrics.defined() && !device.is_meta()) write_metrics(rewards.value().to(Device{}), scale, metrics);
    return loss;
  }

 private:
  // Sums over pairs, times `scale`. The copy to the host waits for the device.
  static void write_metrics(const Tensor& rewards, float scale, Tensor metrics) {
    std::array<float, 4> sums{};
    for (std::int64_t pair = 0; pair < rewards.size(0); ++pair) {
      const float chosen = rewards.data<float>()[2 * pair], rejected = rewards.data<float>()[2 * pair + 1];
      sums[0] += chosen * scale;
      sums[1] += rejected * scale;
      sums[2] += (chosen - rejected) * scale;
      sums[3] += chosen > rejected ? scale : 0.0f;
    }
    metrics.copy_from(Tensor::from_values<float>({4}, sums));
  }

  const nn::CausalLm& model_;
  const nn::Parameter& head_;
  float center_;
};

// The objective of one run: the same loss measures validation data.
class RewardRun final : public RunObjective {
 public:
  RewardRun(const nn::CausalLm& model, const nn::Parameter& head, double center) : objective_(model, head, center) {}
  Objective* training() noexcept override { return &objective_; }
  Objective* validation() noexcept override { return &objective_; }

 private:
  RewardObjective objective_;
};

std::unique_ptr<RunObjective> make(const RunSession& session, const ObjectiveInputs*) {
  for (const nn::Parameter* parameter : session.model().parameters())
    if (parameter->name == std::string(kHead) + ".weight")
      return std::make_unique<RewardRun>(session.model(), *parameter,
                                         session.config().objectives.find<RewardSection>()->center);
  throw Error(ErrorCode::invalid_argument, "the model has no head of rewards");
}

const ObjectiveRuntime kRuntime{.make = make, .arrange = arrange_pairs};

const Registered<ObjectiveEntry> kReward{{
    .name = "reward",
    .summary = "scalar rewards of answers, by the order of pairs (Bradley-Terry)",
    .section = objective_section<RewardSection>(
        "Training of a reward model on pairs of answers (plug-in reward). Off unless present.", add_fields),
    .check = check,
    .records = [](const RunConfig&) { return AnswerRecords::pairs; },
    .metrics = kMetrics,
    .is_likelihood = false,
    .describe = [](const RunConfig&) { return std::string("reward: a scalar head, Bradley-Terry loss of pairs\n"); },
    .facts = [](const RunConfig&) { return std::string("reward model (Bradley-Terry)"); },
    .method = [](const RunConfig&) { return std::string("reward model"); },
    .extend = [](nn::CausalLm& model, const RunConfig&,
                 const nn::ParameterOptions& options) { (void)model.add_head(std::string(kHead), 1, options); },
    .runtime = &kRuntime,
}};

}  // namespace
