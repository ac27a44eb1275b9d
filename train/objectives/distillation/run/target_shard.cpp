#include "train/objectives/distillation/run/target_shard.h"

#include <algorithm>
#include <cmath>

#include "train/checkpoint/hash.h"

namespace quench {
namespace {

constexpr float kRoundedOne = 1e-2f;  // largest log-probability after rounding

constexpr std::size_t kRowWords = 4;
static_assert(sizeof(TargetRow) == kRowWords * sizeof(std::uint64_t));

template <class T>
SafetensorsItem item(const char* name, DType dtype, const Shape& shape, const std::vector<T>& values) {
  return {.name = name, .dtype = dtype, .shape = shape, .data = std::as_bytes(std::span(values))};
}

// Hash of a row's values as stored.
std::uint64_t checksum(std::span<const std::byte> ids, std::span<const std::byte> log_probs,
                       std::span<const std::byte> tail) {
  StreamHash hash;
  for (const auto& part : {ids, log_probs, tail}) hash.update(part);
  return hash.digest();
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values, std::uint64_t begin, std::uint64_t end) {
  return std::as_bytes(std::span(values).subspan(begin, end - begin));
}

}  // namespace

std::uint64_t hash_row(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
  StreamHash hash;
  hash.update(std::as_bytes(ids));
  hash.update(std::as_bytes(labels));
  return hash.digest();
}

TargetShardWriter::TargetShardWriter(std::int64_t k, DType dtype, std::map<std::string, std::string> names)
    : k_(k), dtype_(dtype), names_(std::move(names)) {
  names_["format"] = "quench_targets";
  QUENCH_CHECK(dtype == DType::f16 || dtype == DType::f32, "targets of dtype {}", to_string(dtype));
}

void TargetShardWriter::begin_row(std::uint64_t source, std::uint64_t row, std::uint64_t hash) {
  rows_.push_back({source, row, tail_.size(), hash});
}

void TargetShardWriter::add(std::span<const std::int32_t> ids, std::span<const float> log_probs,
                            std::span<const float> tail) {
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  tail_.insert(tail_.end(), tail.begin(), tail.end());
  if (dtype_ == DType::f32)
    log_probs_.insert(log_probs_.end(), log_probs.begin(), log_probs.end());
  else
    for (const float x : log_probs) halves_.push_back(float16(x).bits);
}

std::uint64_t TargetShardWriter::bytes() const noexcept {
  return ids_.size() * sizeof(std::int32_t) + log_probs_.size() * sizeof(float) +
         halves_.size() * sizeof(std::uint16_t) + tail_.size() * sizeof(float) + rows_.size() * sizeof(TargetRow);
}

void TargetShardWriter::write(const std::filesystem::path& path) {
  const std::int64_t targets = std::ssize(tail_);
  std::vector<SafetensorsItem> items;
  items.push_back(item("rows", DType::u64, {std::ssize(rows_), static_cast<std::int64_t>(kRowWords)}, rows_));
  items.push_back(item("ids", DType::i32, {targets, k_}, ids_));
  items.push_back(dtype_ == DType::f32 ? item("log_probs", dtype_, {targets, k_}, log_probs_)
                                       : item("log_probs", dtype_, {targets, k_}, halves_));
  items.push_back(item("tail", DType::f32, {targets}, tail_));
  std::vector<std::uint64_t> checksums;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::uint64_t begin = rows_[i].first, end = i + 1 < rows_.size() ? rows_[i + 1].first : tail_.size(),
                        k = static_cast<std::uint64_t>(k_);
    checksums.push_back(checksum(
        bytes_of(ids_, begin * k, end * k),
        dtype_ == DType::f32 ? bytes_of(log_probs_, begin * k, end * k) : bytes_of(halves_, begin * k, end * k),
        bytes_of(tail_, begin, end)));
  }
  items.push_back(item("checksums", DType::u64, {std::ssize(checksums)}, checksums));
  write_safetensors(path, items, names_);
  rows_.clear();
  ids_.clear();
  log_probs_.clear();
  halves_.clear();
  tail_.clear();
}

TargetShard::TargetShard(const std::filesystem::path& path, std::int64_t k, DType dtype)
    : reader_(path), k_(k), dtype_(dtype) {
  const SafetensorsEntry& rows = reader_.at("rows");
  const auto count = static_cast<std::int64_t>(rows.nbytes() / sizeof(TargetRow));
  const auto check = [&](const SafetensorsEntry& entry, DType type, const Shape& shape) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, entry.dtype == type && entry.shape == shape,
                    "{}: {} is {} {}, expected {} {}; remove the file, `quench distill-targets` computes it again",
                    path.string(), entry.name, entry.dtype_name, entry.shape.to_string(), safetensors_name(type),
                    shape.to_string());
  };
  check(rows, DType::u64, {count, static_cast<std::int64_t>(kRowWords)});
  const SafetensorsEntry& tail = reader_.at("tail");
  const auto targets = static_cast<std::int64_t>(tail.nbytes() / sizeof(float));
  check(tail, DType::f32, {targets});
  check(reader_.at("ids"), DType::i32, {targets, k});
  check(reader_.at("log_probs"), dtype, {targets, k});
  count_ = static_cast<std::uint64_t>(targets);
  const SafetensorsEntry& checksums = reader_.at("checksums");
  check(checksums, DType::u64, {count});
  checksums_.resize(static_cast<std::size_t>(count));
  reader_.read(checksums, std::as_writable_bytes(std::span(checksums_)));
  rows_.resize(static_cast<std::size_t>(count));
  reader_.read(rows, std::as_writable_bytes(std::span(rows_)));
  std::uint64_t before = 0;
  for (const TargetRow& row : rows_) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, row.first >= before && row.first <= count_,
                    "{}: row {} of source {} starts at target {} of {}; remove the file, `quench distill-targets` "
                    "computes it again",
                    path.string(), row.row, row.source, row.first, count_);
    before = row.first;
  }
}

std::string TargetShard::name(const char* key) const {
  const auto found = reader_.header().metadata.find(key);
  return found != reader_.header().metadata.end() ? found->second : std::string();
}

std::uint64_t TargetShard::targets(std::size_t row) const {
  return (row + 1 < rows_.size() ? rows_[row + 1].first : count_) - rows_[row].first;
}

void TargetShard::read(std::size_t row, std::int64_t vocab, TargetValues& out) const {
  const std::uint64_t first = rows_[row].first, k = static_cast<std::uint64_t>(k_);
  const std::size_t n = targets(row), values = n * k;
  out.ids.resize(values);
  out.log_probs.resize(values);
  out.tail.resize(n);
  reader_.read(reader_.at("ids"), std::as_writable_bytes(std::span(out.ids)), first * k * sizeof(std::int32_t));
  reader_.read(reader_.at("tail"), std::as_writable_bytes(std::span(out.tail)), first * sizeof(float));
  const SafetensorsEntry& log_probs = reader_.at("log_probs");
  std::uint64_t sum = 0;
  if (dtype_ == DType::f32) {
    reader_.read(log_probs, std::as_writable_bytes(std::span(out.log_probs)), first * k * sizeof(float));
    sum = checksum(bytes_of(out.ids, 0, values), bytes_of(out.log_probs, 0, values), bytes_of(out.tail, 0, n));
  } else {
    std::vector<float16> halves(values);
    reader_.read(log_probs, std::as_writable_bytes(std::span(halves)), first * k * sizeof(float16));
    sum = checksum(bytes_of(out.ids, 0, values), bytes_of(halves, 0, values), bytes_of(out.tail, 0, n));
    std::ranges::copy(halves, out.log_probs.begin());
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, checksums_[row] == sum,
                  "{}: the targets of row {} of source {} differ from their checksum; remove the file, `quench "
                  "distill-targets` computes it again",
                  path().string(), rows_[row].row, rows_[row].source);
  const auto damaged = [&](std::size_t target, std::string_view reason) {
    QUENCH_FAIL(ErrorCode::corrupt,
                "{}: target {} of row {} of source {} {}; remove the file, `quench distill-targets` computes it again",
                path().string(), target, rows_[row].row, rows_[row].source, reason);
  };
  for (std::size_t target = 0; target < n; ++target) {
    std::int64_t before = -1;
    for (std::size_t i = target * k; i < (target + 1) * k; ++i) {
      if (out.ids[i] <= before || out.ids[i] >= vocab) damaged(target, "has ids that do not ascend in the vocabulary");
      if (!(out.log_probs[i] <= kRoundedOne)) damaged(target, "has a value that is no log-probability");
      before = out.ids[i];
    }
    if (!(out.tail[target] <= kRoundedOne)) damaged(target, "has a tail that is no log-probability");
  }
}

}  // namespace quench
