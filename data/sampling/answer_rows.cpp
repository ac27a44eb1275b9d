// Rows of answers in pairs.

#include <xxhash.h>

#include <algorithm>

#include "data/sampling/bin_packing.h"
#include "data/sampling/document_split.h"
#include "data/sampling/packing.h"

namespace quench {
namespace {

// Neighbouring records that are searched for another prompt.
constexpr std::size_t kMostAnswersToAPrompt = 64;

}  // namespace

void PackedRows::Answer::cut(std::uint64_t inputs) noexcept {
  const std::uint64_t length = std::min(span.total(), inputs + 1);
  span.length = std::min(span.length, length);
  span.tail_length = length - span.length;
}

std::vector<PackedRows::Answer> PackedRows::read_answers() const {
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, source_->has_target_mask(),
      "preference training reads text records of answers; tokens without marked answers cannot be used\n  {}",
      source_->describe());
  std::vector<Answer> answers;
  std::vector<std::uint8_t> flags;
  std::vector<std::int32_t> prompt;
  for_each_document(*source_, [&](std::uint64_t begin, std::uint64_t length) {
    flags.resize(static_cast<std::size_t>(length));
    source_->read_target_mask(begin, flags);
    const auto first = std::find(flags.begin() + 1, flags.end(), std::uint8_t{1});
    prompt.resize(static_cast<std::size_t>(first - flags.begin()));
    source_->read(begin, prompt);
    answers.push_back({.span = {begin, length},
                       .prompt = prompt.size(),
                       .prompt_hash = XXH3_64bits(prompt.data(), prompt.size() * sizeof(std::int32_t)),
                       .mark = flags.front() != 0});
  });
  return answers;
}

std::size_t PackedRows::mismatched_answer(const std::vector<Answer>& answers, std::size_t i) {
  const std::size_t count = answers.size();
  for (std::size_t back = 1; back < std::min(count, kMostAnswersToAPrompt); ++back)
    if (const std::size_t j = (i + count - back) % count; answers[j].prompt_hash != answers[i].prompt_hash) return j;
  return (i + count - 1) % count;
}

void PackedRows::index_answers() {
  const std::vector<Answer> answers = read_answers();
  const bool labelled = options_.answers == AnswerRecords::labels;
  const std::size_t count = answers.size();
  item_count_ = labelled ? count : count / 2;
  std::uint64_t too_long = 0, longest = 0;
  const auto add = [&](const Pair& pair, const Answer& first, const Answer& second) {
    Answer sharing = second;
    sharing.span.shared = may_share(first, second) ? shared_tokens(first, second) : 0;
    longest = std::max(longest, first.span.total() + second.span.total() - 2 - sharing.span.shared);
    if (!add_pair(pair, first, sharing)) ++too_long;
  };
  if (labelled) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, count > 1,
                    "KTO compares every record with the answer of another one; there is only one record\n  {}",
                    source_->describe());
    for (std::size_t i = 0; i < count; ++i) {
      const Answer& other = answers[mismatched_answer(answers, i)];
      Answer mismatched = answers[i];
      mismatched.span.length = std::min(mismatched.prompt, mismatched.span.length);
      mismatched.span.tail_begin = other.span.begin + other.prompt;
      mismatched.span.tail_length = other.span.length - other.prompt;
      add({.item = i, .desirable = answers[i].mark}, answers[i], mismatched);
    }
  } else {
    for (std::size_t i = 0; i < count; i += 2) {
      QUENCH_CHECK_AS(ErrorCode::bad_config, i + 1 < count && answers[i].mark && !answers[i + 1].mark,
                      "document {} is no chosen answer followed by a rejected one; preference training reads text "
                      "records of answers\n  {}",
                      i, source_->describe());
      add({.item = i / 2}, answers[i], answers[i + 1]);
    }
  }
  QUENCH_CHECK_AS(ErrorCode::bad_config, too_long == 0,
                  "{} of {} pairs are longer than a sequence of {} tokens (data.seq_len), the longest has {}; the two "
                  "answers of a pair share a sequence and are not split: raise data.seq_len, or set data.on_long to "
                  "truncate or drop\n  {}",
                  too_long, item_count_, options_.seq_len, longest, source_->describe());
  QUENCH_CHECK(!pairs_.empty(),
               "no row: of {} pairs, {} were dropped as longer than seq_len = {} and {} have an answer "
               "without a target\n  {}",
               item_count_, losses_.dropped_documents / 2, options_.seq_len, losses_.untrained_pairs,
               source_->describe());
  pack_pairs();
  row_count_ = row_starts_.size() - 1;
  losses_.padding = row_count_ * static_cast<std::uint64_t>(options_.seq_len);
  for (const Span& span : documents_) losses_.padding -= inputs_of(span);
}

std::uint64_t PackedRows::shared_tokens(const Answer& first, const Answer& second) const {
  const std::uint64_t most = std::min({first.prompt, second.prompt, first.span.length, second.span.length});
  std::vector<std::int32_t> of_first(static_cast<std::size_t>(most)), of_second(of_first.size());
  source_->read(first.span.begin, of_first);
  source_->read(second.span.begin, of_second);
  const auto common = std::ranges::mismatch(of_first, of_second).in1 - of_first.begin();
  return common > 0 ? static_cast<std::uint64_t>(common - 1) : 0;
}

bool PackedRows::may_share(const Answer& first, const Answer& second) const {
  const auto inputs = [](const Answer& answer) { return static_cast<std::int64_t>(answer.span.total()) - 1; };
  return !options_.may_share || options_.may_share(inputs(first), inputs(second));
}

bool PackedRows::add_pair(const Pair& pair, Answer first, Answer second) {
  // Inputs of both together, shared ones counted twice.
  const std::uint64_t capacity = static_cast<std::uint64_t>(options_.seq_len) + second.span.shared;
  const auto inputs = [](const Answer& answer) { return answer.span.total() - 1; };
  const Answer whole_first = first, whole_second = second;
  if (!first.has_target() || !second.has_target()) {
    ++losses_.untrained_pairs;
    return true;
  }
  // An answer of another record only estimates the KL divergence: it is cut first.
  if (options_.answers == AnswerRecords::labels && inputs(first) + second.prompt <= capacity)
    second.cut(capacity - inputs(first));
  const bool too_long = inputs(first) + inputs(second) > capacity;
  if (too_long && options_.long_documents == LongDocuments::split) return false;
  if (too_long && options_.long_documents == LongDocuments::drop) {
    losses_.dropped_documents += 2;
    losses_.dropped_tokens += whole_first.span.total() + whole_second.span.total();
    return true;
  }
  if (too_long) {
    // The longer answer is cut first.
    const std::uint64_t half = capacity / 2;
    const std::uint64_t of_first = inputs(second) < half ? capacity - inputs(second) : capacity - half;
    first.cut(of_first);
    second.cut(capacity - inputs(first));
  }
  if (second.span.shared > 0 && !may_share(first, second)) {  // a cut has changed how one is rotated
    Answer alone = whole_second;
    alone.span.shared = 0;
    return add_pair(pair, whole_first, alone);
  }
  if (!first.has_target() || !second.has_target()) {
    ++losses_.untrained_pairs;
    return true;
  }
  if (too_long) {
    losses_.truncated_documents += 2;
    losses_.truncated_tokens +=
        whole_first.span.total() + whole_second.span.total() - first.span.total() - second.span.total();
  }
  pairs_.push_back(pair);
  documents_.push_back(first.span);
  documents_.push_back(second.span);
  return true;
}

void PackedRows::pack_pairs() {
  const std::size_t count = pairs_.size();
  if (!options_.packing) {
    row_starts_.resize(count + 1);
    for (std::size_t i = 0; i <= count; ++i) row_starts_[i] = 2 * i;
    return;
  }
  std::vector<std::uint64_t> sizes(count);
  for (std::size_t i = 0; i < count; ++i) sizes[i] = inputs_of(documents_[2 * i]) + inputs_of(documents_[2 * i + 1]);
  const Bins bins = pack_bins(sizes, static_cast<std::uint64_t>(options_.seq_len));
  std::vector<Span> documents;
  std::vector<Pair> pairs;
  for (const std::uint64_t item : bins.items) {
    pairs.push_back(pairs_[item]);
    documents.insert(documents.end(), {documents_[2 * item], documents_[2 * item + 1]});
  }
  documents_ = std::move(documents);
  pairs_ = std::move(pairs);
  for (const std::uint64_t start : bins.starts) row_starts_.push_back(2 * start);
}

}  // namespace quench
