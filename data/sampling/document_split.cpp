#include "data/sampling/document_split.h"

#include <algorithm>
#include <cmath>

#include "core/number/random.h"
#include "data/sampling/permutation.h"

namespace quench {

void for_each_document(const TokenSource& source, const std::function<void(std::uint64_t, std::uint64_t)>& each) {
  constexpr std::uint64_t kBlock = 1 << 16;
  const std::uint64_t total = source.size();
  std::vector<std::int32_t> tokens;
  std::vector<std::uint64_t> starts;
  std::uint64_t document = 0;
  // Blocks overlap by one token: a block's first is never reported.
  for (std::uint64_t begin = 0; begin < total; begin += kBlock) {
    tokens.resize(static_cast<std::size_t>(std::min(kBlock + 1, total - begin)));
    source.read(begin, tokens);
    starts.clear();
    source.find_document_starts(begin, tokens, starts);
    for (const std::uint64_t start : starts) {
      each(document, start - document);
      document = start;
    }
  }
  each(document, total - document);
}

DocumentSubset::DocumentSubset(std::shared_ptr<const TokenSource> source, std::vector<Run> runs)
    : source_(std::move(source)), runs_(std::move(runs)) {
  QUENCH_CHECK(!runs_.empty(), "a part of no documents");
  starts_.push_back(0);
  for (const Run& run : runs_) starts_.push_back(starts_.back() + run.length);
}

template <class Visit>
void DocumentSubset::for_each_run(std::uint64_t begin, std::uint64_t count, Visit visit) const {
  QUENCH_CHECK(begin <= size() && count <= size() - begin, "tokens {} to {} asked for, the part has {}", begin,
               begin + count, size());
  auto i = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin()) - 1;
  for (std::uint64_t done = 0; done < count; ++i) {
    const std::uint64_t inside = begin + done - starts_[i];
    const std::uint64_t part = std::min(count - done, runs_[i].length - inside);
    visit(runs_[i].begin + inside, static_cast<std::size_t>(done), static_cast<std::size_t>(part), inside == 0);
    done += part;
  }
}

void DocumentSubset::read(std::uint64_t begin, std::span<std::int32_t> out) const {
  for_each_run(begin, out.size(), [&](std::uint64_t from, std::size_t done, std::size_t part, bool) {
    source_->read(from, out.subspan(done, part));
  });
}

void DocumentSubset::read_target_mask(std::uint64_t begin, std::span<std::uint8_t> out) const {
  for_each_run(begin, out.size(), [&](std::uint64_t from, std::size_t done, std::size_t part, bool) {
    source_->read_target_mask(from, out.subspan(done, part));
  });
}

void DocumentSubset::find_document_starts(std::uint64_t begin, std::span<const std::int32_t> tokens,
                                          std::vector<std::uint64_t>& starts) const {
  for_each_run(begin, tokens.size(), [&](std::uint64_t from, std::size_t done, std::size_t part, bool first) {
    if (first && done > 0) starts.push_back(begin + done);
    const std::size_t found = starts.size();
    source_->find_document_starts(from, tokens.subspan(done, part), starts);
    for (std::size_t k = found; k < starts.size(); ++k) starts[k] = starts[k] - from + begin + done;
  });
}

DocumentSplit split_documents(const std::vector<std::shared_ptr<const TokenSource>>& sources, double share,
                              std::uint64_t seed, std::uint64_t documents) {
  std::uint64_t count = 0;
  const auto each_record = [&](const TokenSource& source, const auto& record) {
    std::uint64_t begin = 0, length = 0, seen = 0;
    for_each_document(source, [&](std::uint64_t start, std::uint64_t size) {
      if (size == 0) return;
      if (seen % documents == 0) begin = start, length = 0;
      length += size;
      if (++seen % documents == 0) record(begin, length);
    });
    if (seen % documents != 0) record(begin, length);
  };
  for (const auto& source : sources) each_record(*source, [&](std::uint64_t, std::uint64_t) { ++count; });
  DocumentSplit split{.records = count};
  const double wanted = share < 1 ? std::ceil(share * static_cast<double>(count)) : share;
  QUENCH_CHECK_AS(ErrorCode::bad_config, wanted < static_cast<double>(count),
                  "{} held out of {} records leaves none to train on", wanted, count);
  split.held_out_records = static_cast<std::uint64_t>(wanted);
  const Permutation order(count, mix64(seed ^ hash64("validation split")));
  std::uint64_t number = 0;
  for (const auto& source : sources) {
    std::vector<DocumentSubset::Run> kept, held_out;
    each_record(*source, [&](std::uint64_t begin, std::uint64_t length) {
      auto& runs = order(number++) < split.held_out_records ? held_out : kept;
      if (!runs.empty() && runs.back().begin + runs.back().length == begin)
        runs.back().length += length;
      else
        runs.push_back({begin, length});
    });
    const auto part = [&](std::vector<DocumentSubset::Run>& runs) -> std::shared_ptr<const TokenSource> {
      return runs.empty() ? nullptr : std::make_shared<DocumentSubset>(source, std::move(runs));
    };
    split.kept.push_back(part(kept));
    split.held_out.push_back(part(held_out));
  }
  return split;
}

}  // namespace quench
