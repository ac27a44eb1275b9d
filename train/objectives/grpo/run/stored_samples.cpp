// Samples of a rollout in a checkpoint.

#include <cmath>
#include <limits>

#include "train/objectives/grpo/run/policy_samples.h"

namespace quench {
namespace {

// Scalar figures, in the order of their list.
std::vector<double*> scalars_of(RolloutFigures& figures) {
  return {&figures.reward, &figures.reward_std, &figures.zero_std, &figures.length, &figures.cut, &figures.skipped};
}

template <class T>
Json list_of(const std::vector<T>& values) {
  Json::Array list;
  for (const T value : values) list.emplace_back(value);
  return list;
}

// null is NaN.
std::vector<double> numbers_in(const Json& list) {
  std::vector<double> numbers;
  for (const Json& number : list.as_array())
    numbers.push_back(number.is_null() ? std::numeric_limits<double>::quiet_NaN() : number.as_double());
  return numbers;
}

std::vector<std::int32_t> tokens_in(const Json& list) {
  std::vector<std::int32_t> tokens;
  for (const Json& token : list.as_array()) tokens.push_back(static_cast<std::int32_t>(token.as_int()));
  return tokens;
}

Json to_json(const PolicySample& sample) {
  return Json::Object{{"prompt", list_of(sample.prompt)},
                      {"tokens", list_of(sample.completion.tokens)},
                      {"logps", list_of(sample.completion.logps)},
                      {"ended", sample.completion.ended},
                      {"advantage", sample.advantage}};
}

PolicySample sample_in(const Json& json) {
  PolicySample sample{.prompt = tokens_in(json.at("prompt")), .completion = {}, .advantage = 0};
  sample.completion.tokens = tokens_in(json.at("tokens"));
  sample.completion.logps = numbers_in(json.at("logps"));
  sample.completion.ended = json.at("ended").as_bool();
  sample.advantage = json.at("advantage").as_double();
  QUENCH_CHECK_AS(ErrorCode::corrupt,
                  !sample.prompt.empty() && !sample.completion.tokens.empty() &&
                      sample.completion.tokens.size() == sample.completion.logps.size(),
                  "a completion of {} tokens has {} log-probabilities and a prompt of {} tokens",
                  sample.completion.tokens.size(), sample.completion.logps.size(), sample.prompt.size());
  return sample;
}

}  // namespace

std::string write_samples(const PolicySamples& samples, std::int64_t step, const RolloutRanks& ranks) {
  Json::Array own;
  for (const PolicySample& sample : samples.samples) own.push_back(to_json(sample));
  RolloutFigures figures = samples.figures;
  std::vector<double> scalars;
  for (const double* figure : scalars_of(figures)) scalars.push_back(*figure);
  std::string text = Json(Json::Object{{"step", step},
                                       {"figures", list_of(scalars)},
                                       {"part_means", list_of(figures.part_means)},
                                       {"part_stds", list_of(figures.part_stds)}})
                         .dump();
  text.pop_back();
  text += ",\"ranks\":[";
  const std::vector<std::string> parts =
      distributed::exchange_texts(*ranks.ranks->host, Json(std::move(own)).dump(), "completions");
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i > 0 ? "," : "") + parts[i];
  return text + "]}";
}

StoredSamples read_samples(std::string_view text, const RolloutRanks& ranks) {
  try {
    const Json json = Json::parse(text, {.max_bytes = std::size_t{1} << 36,
                                         .max_values = std::size_t{1} << 32,
                                         .source = "the completions of the checkpoint"});
    StoredSamples stored{.samples = {}, .step = json.at("step").as_int()};
    const std::vector<double> scalars = numbers_in(json.at("figures"));
    const std::vector<double*> targets = scalars_of(stored.samples.figures);
    for (std::size_t i = 0; i < targets.size(); ++i) *targets[i] = scalars.at(i);
    stored.samples.figures.part_means = numbers_in(json.at("part_means"));
    stored.samples.figures.part_stds = numbers_in(json.at("part_stds"));
    const Json::Array& parts = json.at("ranks").as_array();
    const auto size = static_cast<std::size_t>(ranks.ranks->size), rank = static_cast<std::size_t>(ranks.ranks->rank);
    std::vector<const Json*> all;
    for (std::size_t part = 0; part < parts.size(); ++part)
      if (parts.size() != size || part == rank)
        for (const Json& sample : parts[part].as_array()) all.push_back(&sample);
    const bool shares = parts.size() != size;
    const std::size_t begin = shares ? all.size() * rank / size : 0;
    const std::size_t end = shares ? all.size() * (rank + 1) / size : all.size();
    for (std::size_t i = begin; i < end; ++i) stored.samples.samples.push_back(sample_in(*all[i]));
    return stored;
  } catch (const std::out_of_range& error) {
    QUENCH_FAIL(ErrorCode::corrupt, "the completions of the checkpoint lack figures: {}", error.what());
  }
}

}  // namespace quench
