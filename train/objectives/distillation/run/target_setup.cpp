#include "train/objectives/distillation/run/target_setup.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "autograd/tape.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/ops/loss/top_k_log_probs.h"
#include "core/system/key_error.h"
#include "core/system/log.h"
#include "core/system/temporary.h"
#include "train/checkpoint/run_lock.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/distillation/run/distill_setup.h"
#include "train/objectives/distillation/run/target_record.h"
#include "train/objectives/distillation/run/teacher.h"
#include "train/session/run_session.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

struct RowPlace {
  std::size_t source = 0;
  std::uint64_t row = 0;
};

// The teacher of section distill.
struct TargetTeacher {
  std::unique_ptr<RunSession> student;  // for teacher base; else null
  std::unique_ptr<Teacher> teacher;

  [[nodiscard]] nn::ForwardContext context(const Batch& batch, Device device) const {
    if (student) return batch_context(student->model(), batch);
    return {.positions = batch.positions.view({batch.positions.numel()}).to(device), .sequences = batch.sequences};
  }
};

void build_teacher(TargetTeacher& built, const RunConfig& config, const nn::ModelConfig& model, Device device,
                   const std::shared_ptr<const distributed::Ranks>& ranks) {
  if (distill_section(config)->teacher != kBaseTeacher) {
    built.teacher = frozen_teacher(make_frozen_teacher(config, model, device, *ranks));
    return;
  }
  built.student =
      std::make_unique<RunSession>(ResolvedConfig(config), RunSessionOptions{.device = device, .ranks = ranks});
  built.student->load_base();
  built.student->share();
  built.teacher = base_teacher(built.student->model());
}

// Rows from `begin`; missing ones are padding without targets.
Batch batch_of(const Dataset& data, std::span<const RowPlace> places, std::int64_t rows) {
  const std::int64_t length = data.seq_len();
  Batch batch{Tensor::zeros({rows, length}, DType::i32),
              Tensor::empty({rows, length}, DType::i32),
              Tensor::zeros({rows, length}, DType::i32),
              {},
              0,
              0};
  std::fill_n(batch.labels.data<std::int32_t>(), rows * length, kIgnoreLabel);
  for (std::int64_t r = 0; r < std::ssize(places); ++r) {
    const auto row_of = [&](const Tensor& tensor) {
      return std::span(tensor.data<std::int32_t>() + r * length, static_cast<std::size_t>(length));
    };
    const auto& [source, row] = places[static_cast<std::size_t>(r)];
    batch.valid_tokens += data.sources()[source].rows->read(
        row, {row_of(batch.input_ids), row_of(batch.labels), row_of(batch.positions)}, r * length, batch.sequences);
  }
  return batch;
}

class TargetMaker {
 public:
  TargetMaker(TargetTeacher& teacher, const TargetsFormat& format, float temperature, const LmHeadLossOptions& options,
              Device device)
      : teacher_(teacher), format_(format), temperature_(temperature), options_(options), device_(device) {}

  // Adds the rows of `places`, the first of the batch. Collective for sharded teachers.
  void add(const Batch& batch, std::span<const RowPlace> places, TargetShardWriter& out) {
    const MemoryScope scope(MemoryCategory::activations);
    const std::int64_t tokens = batch.input_ids.numel(), k = format_.k;
    const ObjectiveInput in{.batch = batch,
                            .ids = batch.input_ids.view({tokens}).to(device_),
                            .labels = batch.labels.view({tokens}).to(device_),
                            .context = teacher_.context(batch, device_)};
    const Tensor hidden = teacher_.teacher->hidden(in, nullptr);
    const std::unique_ptr<Teacher::Head> head = teacher_.teacher->head();
    const Tensor ids = Tensor::empty({tokens, k}, DType::i32), log_probs = Tensor::empty({tokens, k}, DType::f32),
                 tail = Tensor::empty({tokens}, DType::f32);
    for (std::int64_t first = 0; first < tokens; first += options_.chunk_rows) {
      const std::int64_t rows = std::min(options_.chunk_rows, tokens - first);
      const Tensor logits =
          Tensor::empty({rows, format_.vocab}, options_.f32_logits ? DType::f32 : hidden.dtype(), device_);
      head->logits(hidden.narrow(0, first, rows), logits);
      const TopKLogProbsArgs args{.logits = logits,
                                  .ids = Tensor::empty({rows, k}, DType::i32, device_),
                                  .log_probs = Tensor::empty({rows, k}, DType::f32, device_),
                                  .tail = Tensor::empty({rows}, DType::f32, device_),
                                  .temperature = temperature_};
      top_k_log_probs(args);
      ids.narrow(0, first, rows).copy_from(args.ids);
      log_probs.narrow(0, first, rows).copy_from(args.log_probs);
      tail.narrow(0, first, rows).copy_from(args.tail);
    }
    const std::int64_t length = batch.labels.size(1);
    for (std::int64_t r = 0; r < std::ssize(places); ++r) {
      const auto row_of = [&](const Tensor& tensor) {
        return std::span<const std::int32_t>(tensor.data<std::int32_t>() + r * length,
                                             static_cast<std::size_t>(length));
      };
      const auto& [source, row] = places[static_cast<std::size_t>(r)];
      const std::span<const std::int32_t> labels = row_of(batch.labels);
      out.begin_row(source, row, hash_row(row_of(batch.input_ids), labels));
      for (std::int64_t i = 0; i < length; ++i) {
        if (labels[static_cast<std::size_t>(i)] == kIgnoreLabel) continue;
        const std::int64_t at = r * length + i;
        const float* values = log_probs.data<float>() + at * k;
        QUENCH_CHECK_AS(ErrorCode::nonfinite, !std::isnan(values[0]) && !std::isnan(tail.data<float>()[at]),
                        "the teacher's logits of token {} of row {} of source {} are not finite", i, row, source);
        const auto count = static_cast<std::size_t>(k);
        out.add({ids.data<std::int32_t>() + at * k, count}, {values, count}, {tail.data<float>() + at, 1});
      }
    }
  }

 private:
  TargetTeacher& teacher_;
  TargetsFormat format_;
  float temperature_;
  LmHeadLossOptions options_;
  Device device_;
};

std::vector<RowPlace> missing_rows(const RowSet& needed, const StoredTargets& stored, std::uint64_t& total) {
  std::vector<RowPlace> missing;
  for (std::size_t source = 0; source < needed.size(); ++source)
    for (std::uint64_t row = 0; row < needed[source].size(); ++row) {
      if (!needed[source][row]) continue;
      ++total;
      if (!stored.holds(source, row)) missing.push_back({source, row});
    }
  return missing;
}

// Rank 0's work, which decides the collectives of all: a rank on a network folder may not see each shard yet.
struct TargetWork {
  std::vector<RowPlace> missing;
  std::uint64_t rows = 0;  // with those that are stored
  int shard = 0;           // this rank's next
};

TargetWork share_work(const RowSet& needed, const StoredTargets& stored, const distributed::Ranks& ranks) {
  TargetWork work;
  if (ranks.is_single()) {
    work.missing = missing_rows(needed, stored, work.rows);
    work.shard = stored.next_shard(0);
    return work;
  }
  const auto size = static_cast<std::size_t>(ranks.size);
  if (ranks.is_first()) work.missing = missing_rows(needed, stored, work.rows);
  std::vector<std::int64_t> numbers(2 + size);  // missing, rows, next shards
  if (ranks.is_first()) {
    numbers[0] = std::ssize(work.missing);
    numbers[1] = static_cast<std::int64_t>(work.rows);
    for (int rank = 0; rank < ranks.size; ++rank) numbers[2 + static_cast<std::size_t>(rank)] = stored.next_shard(rank);
  }
  distributed::all_reduce_numbers(*ranks.host, numbers, distributed::ReduceOp::sum, "targets");
  work.rows = static_cast<std::uint64_t>(numbers[1]);
  work.shard = static_cast<int>(numbers[2 + static_cast<std::size_t>(ranks.rank)]);
  work.missing.resize(static_cast<std::size_t>(numbers[0]));
  if (work.missing.empty()) return work;
  const MemoryScope scope(MemoryCategory::other);
  const Tensor places = Tensor::empty({numbers[0], 2}, DType::i64);
  auto* place = places.data<std::int64_t>();
  if (ranks.is_first())
    for (const auto& [source, row] : work.missing) {
      *place++ = static_cast<std::int64_t>(source);
      *place++ = static_cast<std::int64_t>(row);
    }
  ranks.host->broadcast(places, 0, "targets").wait();
  place = places.data<std::int64_t>();
  for (auto& [source, row] : work.missing) {
    source = static_cast<std::size_t>(*place++);
    row = static_cast<std::uint64_t>(*place++);
  }
  return work;
}

std::uint64_t shard_bytes(const fs::path& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
  return bytes;
}

}  // namespace

std::int64_t kept_tokens(const DistillSection& distill, std::int64_t vocab) {
  return std::min(distill.top_k, vocab);
}

std::shared_ptr<const StoredTargets> open_targets(const RunConfig& config, const RunIdentity& identity,
                                                  const Dataset& data, std::int64_t vocab, std::uint64_t samples,
                                                  ValidationCache* checks) {
  const std::string& folder = distill_section(config)->targets;
  require_targets_folder(folder);
  const TargetRecord stored = read_target_record(folder);
  require_same_targets(stored, target_record(config, identity, data, vocab), folder);
  if (checks != nullptr) require_same_teacher(stored, config, folder, *checks);
  auto targets = std::make_shared<const StoredTargets>(folder, stored.format);
  const RowSet needed = rows_of_samples(data, samples);
  std::uint64_t rows = 0, missing = 0;
  for (std::size_t source = 0; source < needed.size(); ++source)
    for (std::size_t row = 0; row < needed[source].size(); ++row) {
      if (!needed[source][row]) continue;
      ++rows;
      missing += targets->holds(source, row) ? 0 : 1;
    }
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "distill.targets", missing == 0,
                   "{} has targets of {} of the {} sequences that the run reads (unfinished, or for fewer steps); run "
                   "`{}` again with this config, which adds the others",
                   folder, rows - missing, rows, kTargetsRemedy);
  return targets;
}

MakeTargetsReport make_targets(const RunConfig& config, Device device,
                               const std::shared_ptr<const distributed::Ranks>& all,
                               const MakeTargetsOptions& options) {
  const distributed::Ranks& ranks = *all;
  const DistillSection& distill = *distill_section(config);
  const bool first = ranks.is_first();
  const nn::ModelConfig model = resolve_model_config(config.model);
  DataSetup data;
  std::unique_ptr<RunLock> lock;
  TargetRecord record;
  std::unique_ptr<StoredTargets> stored;
  distributed::first_rank_first(*ranks.host, "targets", [&] {
    ValidationCache checks(fs::path(config.data.cache) / "file_checks.json");
    data = open_data(config, model, &checks);
    require_teacher_tokenizer(config, data.tokenizer.get());
    record = target_record(config, run_identity(config, data.tokenizer.get(), checks), *data.train, model.vocab_size);
    record.teacher = teacher_record(config, checks);
    if (first) {
      checks.save();
      lock = std::make_unique<RunLock>(distill.targets);
      remove_stale_temporaries(distill.targets);
      if (fs::exists(fs::path(distill.targets) / kTargetsFile)) {
        const TargetRecord before = read_target_record(distill.targets);
        require_same_targets(before, record, distill.targets);
        require_same_teacher(before, config, distill.targets, checks);
      } else {
        write_target_record(record, distill.targets);
      }
    }
    record = read_target_record(distill.targets);
    stored = std::make_unique<StoredTargets>(distill.targets, record.format);
  });
  const std::int64_t steps = total_steps(config, *data.train);
  const RowSet needed = rows_of_samples(
      *data.train, static_cast<std::uint64_t>(steps) * static_cast<std::uint64_t>(global_batch_size(config)));
  const TargetWork work = share_work(needed, *stored, ranks);
  const std::vector<RowPlace>& missing = work.missing;
  MakeTargetsReport report{.folder = distill.targets, .rows = work.rows, .kept = work.rows - missing.size()};
  const std::size_t count = static_cast<std::size_t>(ranks.size), rank = static_cast<std::size_t>(ranks.rank),
                    micro = static_cast<std::size_t>(config.training.micro_batch_size);
  std::array<std::int64_t, 1> computed{};
  if (!missing.empty()) {
    TargetTeacher teacher;
    build_teacher(teacher, config, model, device, all);
    TargetMaker maker(teacher, record.format, static_cast<float>(distill.temperature),
                      loss_options(config, model.vocab_size, device), device);
    TargetShardWriter writer(record.format.k, record.format.dtype, shard_names(record));
    int number = work.shard;
    std::size_t done = 0;
    const std::function<int()> stop_signal = options.watch_stop ? options.watch_stop() : std::function<int()>();
    const auto write = [&] {
      if (writer.empty()) return;
      // A removed shard leaves a gap before others.
      number = stored->next_shard(static_cast<int>(rank), number);
      const std::string name = target_shard_name(static_cast<int>(rank), number++);
      writer.write(fs::path(distill.targets) / name);
      if (first) QUENCH_LOG_INFO("{}: {} of {} sequences", name, report.kept + done, report.rows);
    };
    for (std::size_t begin = 0; begin < missing.size() && report.stop_signal == 0; begin += micro * count) {
      const std::size_t own = std::min(begin + rank * micro, missing.size()),
                        end = std::min(own + micro, missing.size());
      const std::span<const RowPlace> places(missing.data() + own, end - own);
      const std::uint64_t before = writer.targets();
      maker.add(batch_of(*data.train, places, static_cast<std::int64_t>(micro)), places, writer);
      computed[0] += static_cast<std::int64_t>(writer.targets() - before);
      done = std::min(begin + micro * count, missing.size());
      if (writer.targets() >= options.max_shard_targets || writer.bytes() >= options.max_shard_bytes) write();
      std::array<std::int64_t, 1> stop = {stop_signal ? stop_signal() : 0};
      distributed::all_reduce_numbers(*ranks.host, stop, distributed::ReduceOp::max, "signals");
      report.stop_signal = static_cast<int>(stop[0]);
    }
    write();
    if (teacher.student && teacher.student->sharded()) teacher.student->sharded()->end_gathers();
  }
  distributed::all_reduce_numbers(*ranks.host, computed, distributed::ReduceOp::sum, "targets");
  report.targets = static_cast<std::uint64_t>(computed[0]);
  report.bytes = shard_bytes(distill.targets);
  return report;
}

}  // namespace quench
