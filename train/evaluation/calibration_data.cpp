#include "train/evaluation/calibration_data.h"

#include <algorithm>

#include "core/system/log.h"

namespace quench {

std::shared_ptr<const CalibrationData> read_calibration_data(const QuantizationSection& section,
                                                             const Tokenizer* tokenizer, const nn::ModelConfig& model,
                                                             const std::string& no_tokenizer) {
  if (section.calibration.empty()) return nullptr;
  const std::int64_t context = model.context_length();
  const std::int64_t length =
      section.calibration_seq_len > 0 ? section.calibration_seq_len : std::min(kCalibrationTokens, context);
  QUENCH_CHECK_AS(ErrorCode::bad_config, length <= context,
                  "calibration sequences of {} tokens exceed the model's context of {}", length, context);
  QUENCH_CHECK_AS(ErrorCode::bad_config, section.calibration_samples > 0,
                  "calibration needs at least one sequence, got {}", section.calibration_samples);
  auto result = std::make_shared<CalibrationData>();
  std::vector<std::int32_t> stream;
  const auto wanted = static_cast<std::size_t>(section.calibration_samples);
  std::size_t seen = 0;
  EvaluationData data{.files = section.calibration, .split = DataSplit::train};
  if (!no_tokenizer.empty()) data.no_tokenizer = no_tokenizer;
  data.enough = [&] { return result->sequences.size() >= wanted; };
  read_evaluation_data(data, tokenizer, model, [&](const ScoredDocument& document) {
    for (const std::int32_t token : document.tokens) {
      if (result->sequences.size() >= wanted) return;
      stream.push_back(token);
      ++seen;
      if (static_cast<std::int64_t>(stream.size()) < length) continue;
      result->sequences.push_back(std::move(stream));
      stream.clear();
    }
  });
  const std::string files = fmt::format("{}", fmt::join(section.calibration, ", "));
  QUENCH_CHECK_AS(ErrorCode::bad_config, seen > 0, "the calibration data hold 0 tokens: {}", files);
  const bool short_of_one = result->sequences.empty();
  if (short_of_one) result->sequences.push_back(std::move(stream));
  if (const std::size_t count = result->sequences.size(); count < wanted || short_of_one)
    QUENCH_LOG_INFO("calibration: the data hold {} tokens, enough for {} of {} sequences of {} tokens{}", seen,
                    short_of_one ? 0 : count, wanted, length, short_of_one ? ": one shorter sequence is used" : "");
  for (const std::vector<std::int32_t>& sequence : result->sequences)
    for (const std::int32_t token : sequence)
      QUENCH_CHECK_AS(ErrorCode::bad_config, token >= 0 && token < model.vocab_size,
                      "the calibration data hold token {}, the model's vocabulary {}", token, model.vocab_size);
  std::string names;
  for (const std::string& file : section.calibration)
    names += (names.empty() ? "" : ", ") + std::filesystem::path(file).filename().string();
  result->source = fmt::format("{} sequence{} of {} tokens from {}", result->sequences.size(),
                               result->sequences.size() == 1 ? "" : "s", result->sequences.front().size(), names);
  return result;
}

std::shared_ptr<const CalibrationData> calibration_rows(const Dataset& data, std::int64_t count,
                                                        const std::string& names) {
  auto result = std::make_shared<CalibrationData>();
  const auto length = static_cast<std::size_t>(data.seq_len());
  std::vector<std::int32_t> ids(length), labels(length), positions(length);
  std::uint64_t tokens = 0;
  for (std::uint64_t row = 0; row < std::min(data.row_count(), static_cast<std::uint64_t>(count)); ++row) {
    std::vector<SequenceRange> sequences;
    (void)data.read(row, {ids, labels, positions}, 0, sequences);
    std::int64_t end = 0;
    for (const SequenceRange& sequence : sequences) end = std::max(end, sequence.q_begin + sequence.q_length);
    if (end == 0) continue;
    result->sequences.emplace_back(ids.begin(), ids.begin() + end);
    tokens += static_cast<std::uint64_t>(end);
  }
  result->source =
      fmt::format("{} rows of the training data, {} tokens from {}", result->sequences.size(), tokens, names);
  return result;
}

}  // namespace quench
