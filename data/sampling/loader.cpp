#include "data/sampling/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "core/ops/loss/cross_entropy.h"

namespace quench {
namespace {

Batch make_batch(const Dataset& dataset, const BatchSplit& geometry, Device device, std::uint64_t first,
                 std::uint64_t end) {
  const MemoryScope scope(MemoryCategory::data);
  const std::int64_t rows = geometry.micro_batch_size, seq_len = dataset.seq_len();
  const Shape shape{rows, seq_len};
  Batch batch{Tensor::empty_pinned(shape, DType::i32, device),
              Tensor::empty_pinned(shape, DType::i32, device),
              Tensor::empty_pinned(shape, DType::i32, device),
              {},
              0,
              first};
  const auto row_of = [&](const Tensor& tensor, std::int64_t row) {
    return std::span(tensor.data<std::int32_t>() + row * seq_len, static_cast<std::size_t>(seq_len));
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    const RowView view{row_of(batch.input_ids, row), row_of(batch.labels, row), row_of(batch.positions, row)};
    const std::uint64_t sample = first + static_cast<std::uint64_t>(row);
    if (sample < end) {
      batch.valid_tokens += dataset.read(sample, view, row * seq_len, batch.sequences, {&batch.pairs, &batch.prefixes});
    } else {
      std::fill(view.input_ids.begin(), view.input_ids.end(), 0);
      std::fill(view.labels.begin(), view.labels.end(), kIgnoreLabel);
      std::fill(view.positions.begin(), view.positions.end(), 0);
    }
  }
  return batch;
}

}  // namespace

class BatchLoader::Worker {
 public:
  Worker(std::shared_ptr<const Dataset> dataset, const BatchSplit& geometry, const LoaderOptions& options)
      : dataset_(std::move(dataset)), geometry_(geometry), options_(options) {
    if (options.end_sample)
      geometry.check();
    else
      dataset_->check_batch(geometry);
    step_ = options.first_sample;
    if (options.prefetch > 0) thread_ = std::thread([this] { run(); });
  }

  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  std::optional<Batch> next() {
    const auto start = std::chrono::steady_clock::now();
    if (!thread_.joinable()) {
      std::optional<Batch> batch = make_next();
      const std::lock_guard lock(mutex_);
      wait_ += std::chrono::steady_clock::now() - start;
      if (batch) ++handed_out_;
      return batch;
    }
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return !queue_.empty() || finished_; });
    wait_ += std::chrono::steady_clock::now() - start;
    if (queue_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    Batch batch = std::move(queue_.front());
    queue_.pop_front();
    ++handed_out_;
    lock.unlock();
    room_.notify_one();
    return batch;
  }

  [[nodiscard]] std::uint64_t position() const {
    const std::lock_guard lock(mutex_);
    const std::uint64_t steps = handed_out_ / static_cast<std::uint64_t>(geometry_.accumulation_steps());
    const std::uint64_t position = options_.first_sample + steps * global_batch();
    return options_.end_sample ? std::min(position, std::max(*options_.end_sample, options_.first_sample)) : position;
  }

  [[nodiscard]] double wait_seconds() const {
    const std::lock_guard lock(mutex_);
    return std::chrono::duration<double>(wait_).count();
  }

 private:
  [[nodiscard]] std::uint64_t global_batch() const { return static_cast<std::uint64_t>(geometry_.global_batch_size); }

  // From the thread, or next() without one.
  std::optional<Batch> make_next() {
    const std::uint64_t end = options_.end_sample.value_or(~std::uint64_t{0});
    if (step_ >= end) return std::nullopt;
    Batch batch =
        part_of(make_batch(*dataset_, geometry_, options_.device, geometry_.first_sample(step_, micro_step_), end),
                options_.part, options_.device);
    if (++micro_step_ == geometry_.accumulation_steps()) {
      micro_step_ = 0;
      step_ += global_batch();
    }
    return batch;
  }

  void run() {
    std::exception_ptr error;
    try {
      while (std::optional<Batch> batch = make_next())
        if (!push(*std::move(batch))) return;
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      error_ = error;
      finished_ = true;
    }
    ready_.notify_all();
  }

  // False during destruction.
  bool push(Batch batch) {
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [&] { return queue_.size() < options_.prefetch || stopped_; });
      if (stopped_) return false;
      queue_.push_back(std::move(batch));
    }
    ready_.notify_one();
    return true;
  }

  std::shared_ptr<const Dataset> dataset_;
  BatchSplit geometry_;
  LoaderOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::condition_variable room_;
  std::deque<Batch> queue_;
  std::exception_ptr error_;
  bool finished_ = false;
  bool stopped_ = false;
  std::uint64_t handed_out_ = 0;
  std::chrono::steady_clock::duration wait_{};
  std::uint64_t step_ = 0;
  std::int64_t micro_step_ = 0;
  std::thread thread_;
};

BatchLoader::BatchLoader(std::shared_ptr<const Dataset> dataset, const BatchSplit& geometry,
                         const LoaderOptions& options)
    : worker_(std::make_unique<Worker>(std::move(dataset), geometry, options)) {}
BatchLoader::~BatchLoader() = default;

std::optional<Batch> BatchLoader::next() {
  return worker_->next();
}
std::uint64_t BatchLoader::position() const {
  return worker_->position();
}
double BatchLoader::wait_seconds() const {
  return worker_->wait_seconds();
}

}  // namespace quench
