// Losses, metrics and gradients against TRL's trainers (tests/reference/make_preferences.py).

#include "core/ops/loss/answer_loss_names.h"
#include "tests/train/model_folder/golden_model.h"
#include "train/objectives/preference/run/preference_objective.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

using testing::read_f32;
using testing::reference_dir;
using Ids = std::vector<std::int32_t>;

constexpr double kTolerance = 1e-5;

Ids ids_of(const Json& list) {
  Ids ids;
  for (const Json& id : list.as_array()) ids.push_back(static_cast<std::int32_t>(id.as_int()));
  return ids;
}

// Recorded log-probabilities.
class RecordedReference final : public ReferenceModel {
 public:
  [[nodiscard]] Tensor answer_logps(const ObjectiveInput&) override {
    return Tensor::from_values<double>({std::ssize(logps)}, logps);
  }
  std::vector<double> logps;
};

// A micro-batch of answers, as the loader makes them.
struct Answers {
  Batch batch;
  RecordedReference reference;

  // `shared`: first tokens that are those of the sequence before.
  void add(const Ids& prompt, const Ids& answer, std::size_t shared = 0) {
    Ids whole = prompt;
    whole.insert(whole.end(), answer.begin(), answer.end());
    const auto begin = std::ssize(ids), length = std::ssize(whole) - 1 - static_cast<std::ptrdiff_t>(shared);
    if (shared > 0)
      batch.prefixes.push_back({.sequence = batch.sequences.size(),
                                .begin = batch.sequences.back().q_begin,
                                .length = static_cast<std::int64_t>(shared)});
    batch.sequences.push_back({begin, length, begin, length});
    for (std::size_t i = shared; i + 1 < whole.size(); ++i) {
      ids.push_back(whole[i]);
      labels.push_back(i + 1 < prompt.size() ? kIgnoreLabel : whole[i + 1]);
      positions.push_back(static_cast<std::int32_t>(i));
      batch.valid_tokens += labels.back() == kIgnoreLabel ? 0 : 1;
    }
  }
  void finish() {
    const auto row = [](const Ids& values) {
      return Tensor::from_values<std::int32_t>({1, std::ssize(values)}, values);
    };
    batch.input_ids = row(ids);
    batch.labels = row(labels);
    batch.positions = row(positions);
  }

  Ids ids, labels, positions;
};

Answers answers_of(const Json& figures, bool labelled, bool share) {
  Answers all;
  const Json::Array& records = figures.at(labelled ? "labels" : "pairs").as_array();
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Json& record = records[i];
    all.batch.pairs.push_back(
        {.item = i, .desirable = !labelled || record.at("label").as_bool(), .sequence = all.batch.sequences.size()});
    const Ids prompt = ids_of(record.at("prompt"));
    all.add(prompt, ids_of(record.at(labelled ? "completion" : "chosen")));
    const Json& other = records[(i + records.size() - 1) % records.size()];
    all.add(prompt, ids_of(labelled ? other.at("completion") : record.at("rejected")), share ? prompt.size() - 1 : 0);
    for (const Json& logp : record.at("reference").as_array()) all.reference.logps.push_back(logp.as_double());
  }
  all.finish();
  return all;
}

AnswerLossOptions options_of(const Json& json) {
  const auto number = [&](const char* key, double otherwise) {
    const Json* value = json.find(key);
    return value != nullptr ? value->as_double() : otherwise;
  };
  const AnswerLossOptions unset;
  return {.loss = require_enum<AnswerLoss>(json.at("loss").as_string(), "loss"),
          .beta = json.at("beta").as_double(),
          .label_smoothing = number("label_smoothing", 0),
          .length_normalization = json.find("length_normalization") != nullptr,
          .simpo_margin = number("simpo_margin", unset.simpo_margin),
          .desirable_weight = number("desirable_weight", 1),
          .undesirable_weight = number("undesirable_weight", 1)};
}

// Values of metric `name` in TRL's terms; kto's are sums over the records of a label.
double recorded(const Json& metrics, const std::string& name) {
  if (const Json* value = metrics.find(name)) return value->as_double();
  const std::string label = name.ends_with("chosen") ? "count/chosen" : "count/rejected";
  return metrics.at(name + "_sum").as_double() / metrics.at(label).as_double();
}

class PreferenceGolden : public ::testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(PreferenceGolden, LossMetricsAndGradientsOfTrl) {
  const std::filesystem::path folder = testing::golden_dir() / "models" / "llama";
  nn::CausalLm model(read_model_config(folder), nn::ParameterOptions{.dtype = DType::f32, .grad_dtype = DType::f32});
  load_weights(model, folder);
  const Json figures = Json::parse(testing::read_file(reference_dir() / "preferences.json"));
  const SafetensorsReader gradients(reference_dir() / "preferences.safetensors");
  const Json& expected = figures.at("cases").at(std::get<0>(GetParam()));
  const AnswerLossOptions options = options_of(expected.at("options"));
  Answers answers = answers_of(figures, options.loss == AnswerLoss::kto, std::get<1>(GetParam()));
  PreferenceObjective objective(model, options, &answers.reference, *distributed::Ranks::single());
  const std::int64_t tokens = answers.batch.input_ids.numel();
  const ObjectiveInput in{.batch = answers.batch,
                          .ids = answers.batch.input_ids.view({tokens}),
                          .labels = answers.batch.labels.view({tokens}),
                          .context = batch_context(model, answers.batch)};
  const std::vector<std::string> names = objective.metric_names();
  const Tensor metrics = Tensor::empty({std::ssize(names)}, DType::f32);
  objective.prepare(in);
  autograd::Tape tape;
  autograd::Variable loss;
  {
    const autograd::TapeScope scope(tape);
    loss = objective.loss(in, 1.0f / static_cast<float>(objective.units(answers.batch)), {.chunk_rows = 16}, metrics);
  }
  tape.backward(loss);
  const double wanted = expected.at("loss").as_double();
  EXPECT_NEAR(*loss.value().data<float>(), wanted, kTolerance * std::max(1.0, std::abs(wanted)));

  const std::vector<double> values = objective.reported({metrics.data<float>(), metrics.data<float>() + names.size()});
  const Json& trl = expected.at("metrics");
  for (std::size_t i = 0; i < names.size(); ++i) {
    // TRL's kto has neither; its count is a number of records.
    if (options.loss == AnswerLoss::kto && i >= 2 &&
        (names[i] == "rewards/margins" || names[i] == "rewards/accuracies"))
      continue;
    double value = recorded(trl, names[i]);
    if (names[i] == "count/chosen") value /= static_cast<double>(answers.batch.pairs.size());
    EXPECT_NEAR(values[i], value, kTolerance * std::max(1.0, std::abs(value))) << names[i];
  }

  std::size_t compared = 0;
  for (const nn::Parameter* parameter : model.parameters())
    for (const nn::ParameterPiece& piece : parameter->pieces) {
      const std::string name = std::get<0>(GetParam()) + "." + piece.hf_name;
      if (gradients.find(name) == nullptr) continue;
      const std::vector<float> stored = read_f32(gradients, name);
      const Tensor rows = parameter->variable.grad().narrow(0, piece.row_begin, piece.rows);
      EXPECT_LT(testing::relative_l2(std::span<const float>(static_cast<const float*>(rows.raw_data()), stored.size()),
                                     std::span<const float>(stored)),
                kTolerance)
          << name;
      ++compared;
    }
  EXPECT_EQ(compared, 3u);
}

INSTANTIATE_TEST_SUITE_P(Trl, PreferenceGolden,
                         ::testing::Combine(::testing::Values("dpo", "dpo_smoothed", "dpo_averaged", "ipo", "simpo",
                                                              "simpo_smoothed", "orpo", "kto"),
                                            ::testing::Bool()),
                         [](const auto& one) {
                           return std::get<0>(one.param) + (std::get<1>(one.param) ? "_shared_prompts" : "");
                         });

}  // namespace
}  // namespace quench
