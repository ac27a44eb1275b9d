#include "train/run/first_record.h"
#include "train/config/objective_table.h"

#include <algorithm>
#include <vector>

#include "data/sampling/record_view.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 16;
constexpr std::size_t kShownBytes = 4000;
constexpr std::size_t kMaxParts = 8;  // paths of data.train

// The document at `begin`, at most kMaxTokens.
EncodedDocument document_at(const TokenSource& source, std::uint64_t begin) {
  EncodedDocument document;
  document.ids.resize(static_cast<std::size_t>(std::min(source.size() - begin, kMaxTokens)));
  source.read(begin, document.ids);
  std::vector<std::uint64_t> starts;
  source.find_document_starts(begin, document.ids, starts);
  const auto next = std::ranges::find_if(starts, [begin](std::uint64_t start) { return start > begin; });
  if (next != starts.end()) document.ids.resize(static_cast<std::size_t>(*next - begin));
  if (source.has_target_mask()) {
    document.targets.resize(document.ids.size());
    source.read_target_mask(begin, document.targets);
  }
  return document;
}

std::string first_of_part(const RunConfig& config, const Tokenizer& tokenizer, const TokenSource& source,
                          const SourcePart& part, std::size_t shown_bytes) {
  const RowLimit limit{config.data.seq_len, config.data.on_long};
  std::uint64_t begin = part.begin;
  const auto next = [&](std::string_view what, std::string_view answer) {
    const EncodedDocument document = document_at(source, begin);
    begin += document.ids.size();
    const RecordView record = make_record_view(part.name, document, limit);
    const bool is_prompt = answer_records(config) == AnswerRecords::prompts;
    return fmt::format("{} of {}{}, {} in {} {}:\n{}\n{}{}: {}\n", what, part.name, answer,
                       is_prompt ? "fields next to the prompt" : "trained tokens", kTrainedBegin, kTrainedEnd,
                       marked_text(tokenizer, record, kTrainedBegin, kTrainedEnd, shown_bytes), what, answer,
                       record_counts(record, limit));
  };
  if (answer_records(config) != AnswerRecords::pairs) return next("first record", "");
  std::string chosen = next("first pair", ", chosen");
  return begin < part.begin + part.tokens ? chosen + next("first pair", ", rejected") : chosen;
}

}  // namespace

std::string first_record(const RunConfig& config, const DataSetup& data) {
  if (!data.tokenizer) return {};
  std::size_t parts = 0, shown = 0;
  for (const WeightedRows& rows : data.train->sources()) parts += rows.parts.size();
  const std::size_t shown_bytes = kShownBytes / std::clamp<std::size_t>(parts, 1, kMaxParts);
  std::string text;
  for (const WeightedRows& rows : data.train->sources()) {
    const TokenSource& source = rows.rows->source();
    if (config.model.path.empty() && !source.has_target_mask()) continue;
    for (const SourcePart& part : rows.parts)
      if (part.tokens > 0 && shown++ < kMaxParts)
        text += first_of_part(config, *data.tokenizer, source, part, shown_bytes);
  }
  return text;
}

}  // namespace quench
