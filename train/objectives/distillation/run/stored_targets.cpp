#include "train/objectives/distillation/run/stored_targets.h"

#include <algorithm>

#include "core/ops/loss/cross_entropy.h"

namespace quench {
namespace {

constexpr std::string_view kShardPrefix = "targets-", kShardSuffix = ".safetensors";

std::unique_ptr<TargetShard> open_shard(const std::filesystem::path& file, const TargetsFormat& format) {
  try {
    auto shard = std::make_unique<TargetShard>(file, format.k, format.dtype);
    QUENCH_CHECK_AS(ErrorCode::bad_config, format.identity.empty() || shard->name(kShardIdentity) == format.identity,
                    "{}: its targets are not those that {} describes: they are of teacher {} and tokenizer {}, or of "
                    "other data or keys; remove the file, `{}` computes its targets again",
                    file.string(), kTargetsFile, shard->name(kShardTeacher), shard->name(kShardTokenizer),
                    kTargetsRemedy);
    return shard;
  } catch (const SafetensorsError& error) {
    throw Error(error.code(),
                fmt::format("{}; or remove the file: `{}` computes its targets again", error.what(), kTargetsRemedy));
  }
}

}  // namespace

RowSet rows_of_samples(const Dataset& data, std::uint64_t samples) {
  RowSet rows;
  bool whole = true;
  for (std::size_t source = 0; source < data.sources().size(); ++source) {
    const std::uint64_t size = data.sources()[source].rows->size();
    rows.emplace_back(size);
    whole = whole && data.sampler().mixture().drawn(source, samples) >= size;
  }
  if (whole) {
    for (std::vector<bool>& source : rows) source.assign(source.size(), true);
    return rows;
  }
  for (std::uint64_t sample = 0; sample < samples; ++sample) {
    const Sampler::Sample at = data.sampler().at(sample);
    rows[at.source][at.row] = true;
  }
  return rows;
}

std::string target_shard_name(int rank, int number) {
  return fmt::format("{}{:03}-{:05}{}", kShardPrefix, rank, number, kShardSuffix);
}

StoredTargets::StoredTargets(std::filesystem::path folder, const TargetsFormat& format)
    : folder_(std::move(folder)), format_(format) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    if (const std::string name = entry.path().filename().string();
        name.starts_with(kShardPrefix) && name.ends_with(kShardSuffix))
      files.push_back(entry.path());
  std::ranges::sort(files);
  for (const std::filesystem::path& file : files) {
    const auto& shard = shards_.emplace_back(open_shard(file, format_));
    const auto number = static_cast<std::uint32_t>(shards_.size() - 1);
    for (std::uint32_t i = 0; i < shard->rows().size(); ++i) {
      const TargetRow& row = shard->rows()[i];
      QUENCH_CHECK_AS(ErrorCode::corrupt, row.source < 1 << 20, "{}: a row of source {}", file.string(), row.source);
      if (places_.size() <= row.source) places_.resize(row.source + 1);
      places_[row.source].push_back({row.row, number, i});
    }
  }
  for (std::vector<Place>& source : places_) std::ranges::stable_sort(source, {}, &Place::row);
}

std::uint64_t StoredTargets::row_count() const noexcept {
  std::uint64_t count = 0;
  for (const std::vector<Place>& source : places_) count += source.size();
  return count;
}

const StoredTargets::Place* StoredTargets::find(std::size_t source, std::uint64_t row) const {
  if (source >= places_.size()) return nullptr;
  const auto at = std::ranges::lower_bound(places_[source], row, {}, &Place::row);
  return at != places_[source].end() && at->row == row ? &*at : nullptr;
}

bool StoredTargets::holds(std::size_t source, std::uint64_t row) const {
  return find(source, row) != nullptr;
}

int StoredTargets::next_shard(int rank, int from) const {
  for (int number = from;; ++number)
    if (!std::filesystem::exists(folder_ / target_shard_name(rank, number))) return number;
}

void StoredTargets::fill(const Dataset& data, const Batch& batch, const Tensor& ids, const Tensor& log_probs,
                         const Tensor& tail) const {
  const std::int64_t rows = batch.labels.size(0), length = batch.labels.size(1), k = format_.k;
  TargetValues values;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row_of = [&](const Tensor& tensor) {
      return std::span<const std::int32_t>(tensor.data<std::int32_t>() + r * length, static_cast<std::size_t>(length));
    };
    const std::span<const std::int32_t> labels = row_of(batch.labels);
    const auto count = static_cast<std::uint64_t>(length - std::ranges::count(labels, kIgnoreLabel));
    if (count == 0) continue;
    const Sampler::Sample at = data.sampler().at(batch.first_sample + static_cast<std::uint64_t>(r));
    const Place* place = find(at.source, at.row);
    QUENCH_CHECK_AS(ErrorCode::bad_config, place != nullptr,
                    "distill.targets: {} has no targets of row {} of source {}; run `{}` again with this config, which "
                    "adds them",
                    folder_.string(), at.row, at.source, kTargetsRemedy);
    const TargetShard& shard = *shards_[place->shard];
    QUENCH_CHECK_AS(ErrorCode::bad_config,
                    shard.rows()[place->index].hash == hash_row(row_of(batch.input_ids), labels) &&
                        shard.targets(place->index) == count,
                    "distill.targets: {} has targets of other tokens for row {} of source {} than the run's: data, "
                    "chat template, loss mask or packing differ; run `{}` with this config into a new folder",
                    shard.path().string(), at.row, at.source, kTargetsRemedy);
    shard.read(place->index, format_.vocab, values);
    std::size_t target = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      if (labels[static_cast<std::size_t>(i)] == kIgnoreLabel) continue;
      const std::int64_t to = r * length + i;
      const auto from = static_cast<std::ptrdiff_t>(target * static_cast<std::size_t>(k));
      std::copy_n(values.ids.begin() + from, k, ids.data<std::int32_t>() + to * k);
      std::copy_n(values.log_probs.begin() + from, k, log_probs.data<float>() + to * k);
      tail.data<float>()[to] = values.tail[target++];
    }
  }
}

}  // namespace quench
