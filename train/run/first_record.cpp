#include "train/run/first_record.h"

#include <algorithm>
#include <vector>

#include "data/sampling/record_view.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 16;
constexpr std::size_t kShownBytes = 4000;

EncodedDocument first_document(const TokenSource& source) {
  EncodedDocument document;
  document.ids.resize(static_cast<std::size_t>(std::min(source.size(), kMaxTokens)));
  source.read(0, document.ids);
  std::vector<std::uint64_t> starts;
  source.find_document_starts(0, document.ids, starts);
  const auto next = std::ranges::find_if(starts, [](std::uint64_t start) { return start > 0; });
  if (next != starts.end()) document.ids.resize(static_cast<std::size_t>(*next));
  if (source.has_target_mask()) {
    document.targets.resize(document.ids.size());
    source.read_target_mask(0, document.targets);
  }
  return document;
}

}  // namespace

std::string first_record(const RunConfig& config, const DataSetup& data) {
  const TokenSource& source = data.train->sources().front().rows->source();
  if (!data.tokenizer || source.size() == 0 || (config.model.path.empty() && !source.has_target_mask())) return {};
  const RowLimit limit{config.data.seq_len, config.data.on_long};
  const RecordView record = make_record_view(config.data.train.front().path, first_document(source), limit);
  return fmt::format("first record, trained tokens in {} {}:\n{}\nfirst record: {}\n", kTrainedBegin, kTrainedEnd,
                     marked_text(*data.tokenizer, record, kTrainedBegin, kTrainedEnd, kShownBytes),
                     record_counts(record, limit));
}

}  // namespace quench
