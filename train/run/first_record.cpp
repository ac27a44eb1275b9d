#include "train/run/first_record.h"

#include <algorithm>
#include <vector>

#include "data/sampling/record_view.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 16;
constexpr std::size_t kShownBytes = 4000;

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

}  // namespace

std::string first_record(const RunConfig& config, const DataSetup& data) {
  const TokenSource& source = data.train->sources().front().rows->source();
  if (!data.tokenizer || source.size() == 0 || (config.model.path.empty() && !source.has_target_mask())) return {};
  const RowLimit limit{config.data.seq_len, config.data.on_long};
  std::uint64_t begin = 0;
  const auto next = [&](std::string_view what) {
    const EncodedDocument document = document_at(source, begin);
    begin += document.ids.size();
    const RecordView record = make_record_view(config.data.train.front().path, document, limit);
    return fmt::format("{}, trained tokens in {} {}:\n{}\n{}: {}\n", what, kTrainedBegin, kTrainedEnd,
                       marked_text(*data.tokenizer, record, kTrainedBegin, kTrainedEnd, kShownBytes), what,
                       record_counts(record, limit));
  };
  if (preference_records(config) != PreferenceRecords::pairs) return next("first record");
  std::string chosen = next("first pair, chosen");
  return begin < source.size() ? chosen + next("first pair, rejected") : chosen;
}

}  // namespace quench
