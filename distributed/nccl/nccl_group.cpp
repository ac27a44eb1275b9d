// GPU process groups over NCCL. Operations run on the group's stream after the current stream; wait() orders the
// current stream after them. A group thread detects timeouts and asynchronous errors, and aborts.

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "core/cuda/common/cuda_error.h"
#include "core/system/log.h"
#include "distributed/communication_error.h"
#include "distributed/engine.h"
#include "distributed/nccl/communicator.h"
#include "distributed/nccl/nccl_library.h"
#include "distributed/watchdog.h"

namespace quench::distributed {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr auto kLook = Milliseconds(200);

struct NcclType {
  ncclDataType_t type;
  std::size_t scale;  // NCCL elements per element; 0: two elements form one
};

// Others are moved as bytes.
NcclType nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return {ncclFloat32, 1};
    case DType::f64: return {ncclFloat64, 1};
    case DType::bf16: return {ncclBfloat16, 1};
    case DType::i32: return {ncclInt32, 1};
    case DType::i64: return {ncclInt64, 1};
    default: return {ncclUint8, bit_width(dtype) < 8 ? 0 : static_cast<std::size_t>(byte_size(dtype))};
  }
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return ncclSum;
    case ReduceOp::max: return ncclMax;
    case ReduceOp::min: return ncclMin;
  }
  return ncclSum;
}

// Events return with their last reference.
class EventPool {
 public:
  explicit EventPool(Device device) : device_(device) {}
  ~EventPool() {
    for (const Event& event : free_) backend(device_.type).destroy_event(event);
  }
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  static std::shared_ptr<Event> take(const std::shared_ptr<EventPool>& pool) {
    Event event;
    {
      const std::scoped_lock lock(pool->mutex_);
      if (!pool->free_.empty()) {
        event = pool->free_.back();
        pool->free_.pop_back();
      }
    }
    if (event.handle == nullptr) event = backend(pool->device_.type).create_event(pool->device_);
    return {new Event(event), [pool](Event* held) {
              const std::scoped_lock lock(pool->mutex_);
              pool->free_.push_back(*held);
              delete held;
            }};
  }

 private:
  Device device_;
  std::mutex mutex_;
  std::vector<Event> free_;
};

// Communication CTAs are scheduled before compute CTAs.
Stream make_urgent_stream(Device device) {
  const cuda::DeviceGuard guard(device);
  int least = 0, greatest = 0;
  cuda::check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange", device);
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority",
              device);
  return {device, stream};
}

// Holds the tensors until the current stream is ordered after the operation, even without a wait.
class Queued final : public PendingCollective {
 public:
  Queued(Collective collective, std::shared_ptr<Event> done)
      : collective_(std::move(collective)), done_(std::move(done)) {}
  ~Queued() override { order(); }
  void wait() override { order(); }

 private:
  void order() {
    if (!done_) return;
    backend(done_->device.type).wait(current_stream(done_->device), *done_);
    done_.reset();
  }
  Collective collective_;
  std::shared_ptr<Event> done_;
};

class NcclGroup final : public ProcessGroup {
 public:
  NcclGroup(const GroupPlace& place, Device device, const ncclUniqueId& id, const GroupOptions& options)
      : ProcessGroup(place.name, place.rank, place.size, device),
        timeout_(options.timeout),
        communicator_(id, place.rank, place.size, device, options.join_timeout,
                      [watchdog = options.watchdog] {
                        if (watchdog) watchdog->check();
                      }),
        stream_(make_urgent_stream(device)),
        events_(std::make_shared<EventPool>(device)),
        token_(Tensor::zeros({1}, DType::f32, device)),
        watcher_([this] { watch(); }) {}
  ~NcclGroup() override {
    unwatch();
    // The watcher runs until queued work has completed, or aborts it.
    try {
      backend(device().type).synchronize(stream_);
    } catch (const Error& error) {
      QUENCH_LOG_WARN("group '{}': {}", name(), error.what());
    }
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    watcher_.join();
    in_flight_.clear();
    backend(device().type).destroy_stream(stream_);
  }

  void abort(AbortCause cause, const std::string& reason) override { communicator_.abort(cause, reason); }
  void set_timeout(Milliseconds timeout) override { timeout_ = timeout; }
  [[nodiscard]] Milliseconds timeout() const override { return timeout_; }

  void begin_batch() override {
    QUENCH_CHECK(!batch_, "group '{}': a batch within a batch", name());
    batch_.emplace(Batch{{}, EventPool::take(events_)});
  }
  void end_batch() override {
    const Batch batch = *std::exchange(batch_, std::nullopt);
    if (!batch.collectives.empty()) launch(batch.collectives, batch.done);
  }

  void poll() override {
    const std::scoped_lock lock(mutex_);
    while (!in_flight_.empty() && backend(device().type).is_done(*in_flight_.front().done)) {
      log().finished(in_flight_.front().sequence);
      in_flight_.pop_front();
    }
  }

 protected:
  std::shared_ptr<PendingCollective> start(const Collective& collective) override {
    if (batch_ && collective.kind != CollectiveKind::barrier) {
      batch_->collectives.push_back(collective);
      return std::make_shared<Queued>(collective, batch_->done);
    }
    const std::shared_ptr<Event> done = EventPool::take(events_);
    launch({&collective, 1}, done);
    if (collective.kind == CollectiveKind::barrier) {
      backend(device().type).synchronize(*done);
      return nullptr;
    }
    return std::make_shared<Queued>(collective, done);
  }

 private:
  struct InFlight {
    std::uint64_t sequence;
    std::shared_ptr<Event> done;
    std::chrono::steady_clock::time_point since;
  };

  // Deferred to the end of the batch.
  struct Batch {
    std::vector<Collective> collectives;
    std::shared_ptr<Event> done;  // shared by all of them
  };

  // One NCCL kernel.
  void launch(std::span<const Collective> collectives, const std::shared_ptr<Event>& done) {
    poll();
    Backend& gpu = backend(device().type);
    const std::shared_ptr<Event> before = EventPool::take(events_);
    gpu.record(*before, current_stream(device()));
    gpu.wait(stream_, *before);
    for (const Collective& collective : collectives) {
      log().started(collective.sequence);
      copy_own_part(collective);
    }
    const Collective& first = collectives.front();
    try {
      communicator_.run(
          [&](ncclComm_t comm) {
            ncclResult_t worst = ncclSuccess;
            for (const Collective& collective : collectives)
              worst = worse(worst, queue(collective, comm, cuda::native(stream_)));
            return worst;
          },
          timeout());
    } catch (const CommunicationError& error) {
      const bool late = dynamic_cast<const CollectiveTimeout*>(&error) != nullptr;
      const AbortCause cause = late ? AbortCause::late : AbortCause::lost;
      std::string text = fmt::format("{}{} in group '{}' on rank {} of {} failed: {}", first.describe(),
                                     collectives.size() > 1 ? " and those that start with it" : "", name(), rank(),
                                     size(), error.what());
      if (late) {  // not in flight: the watcher does not see it
        write_collective_log(log(), name(), rank());
        text = with_diagnosis(text, first.sequence);
        communicator_.abort(cause, text);
      }
      throw_communication_error(cause, text);
    }
    gpu.record(*done, stream_);
    const std::scoped_lock lock(mutex_);
    for (const Collective& collective : collectives)
      in_flight_.push_back({collective.sequence, done, std::chrono::steady_clock::now()});
  }

  // First error, else ncclInProgress, else ncclSuccess.
  static ncclResult_t worse(ncclResult_t worst, ncclResult_t result) {
    return result != ncclSuccess && (worst == ncclSuccess || worst == ncclInProgress) ? result : worst;
  }

  ncclResult_t queue(const Collective& c, ncclComm_t comm, cudaStream_t stream) const {
    const NcclLibrary& f = nccl();
    const NcclType type = nccl_type(c.payload().defined() ? c.payload().dtype() : DType::f32);
    const auto count = [&](const Tensor& tensor) {
      return type.scale == 0 ? tensor.nbytes() : static_cast<std::size_t>(tensor.numel()) * type.scale;
    };
    const void* input = c.input.defined() ? c.input.raw_data() : nullptr;
    void* output = c.output.defined() ? c.output.raw_data() : nullptr;
    switch (c.kind) {
      case CollectiveKind::all_reduce:
        return f.all_reduce(input, output, count(c.input), type.type, nccl_op(c.op), comm, stream);
      case CollectiveKind::all_gather: return f.all_gather(input, output, count(c.input), type.type, comm, stream);
      case CollectiveKind::reduce_scatter:
        return f.reduce_scatter(input, output, count(c.output), type.type, nccl_op(c.op), comm, stream);
      case CollectiveKind::broadcast:
        return f.broadcast(input, output, count(c.input), type.type, c.peer, comm, stream);
      case CollectiveKind::send: return f.send(input, count(c.input), type.type, c.peer, comm, stream);
      case CollectiveKind::receive: return f.recv(output, count(c.output), type.type, c.peer, comm, stream);
      case CollectiveKind::barrier:
        return f.all_reduce(token_.raw_data(), token_.raw_data(), 1, ncclFloat32, ncclMax, comm, stream);
      case CollectiveKind::all_to_all: return exchange(c, type, comm, stream);
    }
    return ncclInvalidArgument;
  }

  // all_to_all: the part that this rank keeps, at memory bandwidth. Not inside an NCCL group: a copy may throw.
  void copy_own_part(const Collective& c) {
    if (c.kind != CollectiveKind::all_to_all) return;
    const auto width = static_cast<std::size_t>(byte_size(c.input.dtype()));
    const auto* from = static_cast<const std::byte*>(c.input.raw_data());
    auto* to = static_cast<std::byte*>(c.output.raw_data());
    const auto own = static_cast<std::size_t>(rank());
    for (std::size_t i = 0; i < own; ++i) {
      from += static_cast<std::size_t>(c.send_counts[i]) * width;
      to += static_cast<std::size_t>(c.receive_counts[i]) * width;
    }
    const std::size_t bytes = static_cast<std::size_t>(c.send_counts[own]) * width;
    if (bytes > 0) backend(device().type).copy(to, device(), from, device(), bytes, stream_);
  }

  ncclResult_t exchange(const Collective& c, const NcclType& type, ncclComm_t comm, cudaStream_t stream) const {
    const NcclLibrary& f = nccl();
    const auto width = static_cast<std::size_t>(byte_size(c.input.dtype()));
    const auto* from = static_cast<const std::byte*>(c.input.raw_data());
    auto* to = static_cast<std::byte*>(c.output.raw_data());
    ncclResult_t worst = ncclSuccess;
    const auto note = [&](ncclResult_t result) { worst = worse(worst, result); };
    for (int peer = 0; peer < size(); ++peer) {
      const auto i = static_cast<std::size_t>(peer);
      const auto sent = static_cast<std::size_t>(c.send_counts[i]), got = static_cast<std::size_t>(c.receive_counts[i]);
      const bool own = peer == rank();  // copy_own_part()
      if (sent > 0 && !own) note(f.send(from, sent * type.scale, type.type, peer, comm, stream));
      if (got > 0 && !own) note(f.recv(to, got * type.scale, type.type, peer, comm, stream));
      from += sent * width;
      to += got * width;
    }
    return worst;
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kLook, [this] { return stopping_; })) {
      lock.unlock();
      poll();
      std::string reason = communicator_.background_error();
      lock.lock();
      if (in_flight_.empty()) continue;
      const bool late = std::chrono::steady_clock::now() - in_flight_.front().since > timeout();
      if (!late && reason.empty()) continue;
      const std::uint64_t sequence = in_flight_.front().sequence;
      lock.unlock();
      const auto entry = log().oldest_unfinished();
      const AbortCause cause = reason.empty() ? AbortCause::late : AbortCause::lost;
      if (reason.empty()) reason = fmt::format("not done within {} s", static_cast<double>(timeout().count()) / 1000);
      std::string text =
          fmt::format("{} in group '{}' on rank {} of {}: {}",
                      entry && entry->sequence == sequence ? entry->describe() : fmt::format("operation #{}", sequence),
                      name(), rank(), size(), reason);
      write_collective_log(log(), name(), rank());
      if (cause == AbortCause::late) text = with_diagnosis(text, sequence);
      QUENCH_LOG_ERROR("{}", text);
      communicator_.abort(cause, text);
      return;
    }
  }

  std::atomic<Milliseconds> timeout_;
  Communicator communicator_;
  Stream stream_;
  std::shared_ptr<EventPool> events_;
  Tensor token_;
  std::optional<Batch> batch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<InFlight> in_flight_;
  bool stopping_ = false;
  std::thread watcher_;
};

class NcclEngine final : public GroupEngine {
 public:
  NcclEngine(Device device, const GroupOptions& options) : device_(device), options_(options) {}

  std::unique_ptr<ProcessGroup> make_group(const GroupPlace& place, Store& store, const std::string& prefix) override {
    ncclUniqueId id{};
    const std::string key = prefix + "nccl";
    try {
      if (place.rank == 0) {
        if (nccl().get_unique_id(&id) != ncclSuccess)
          throw CommunicationError(fmt::format("NCCL: {}", nccl().get_last_error(nullptr)));
        store.set(key, {id.internal, sizeof id.internal});
      } else {
        const std::optional<std::string> bytes =
            wait_watched(store, key, options_.join_timeout, options_.watchdog.get());
        if (!bytes) throw CommunicationError("rank 0 has not come");
        QUENCH_CHECK_AS(ErrorCode::failed, bytes->size() == sizeof id.internal, "an id of {} bytes", bytes->size());
        std::memcpy(id.internal, bytes->data(), bytes->size());
      }
      return std::make_unique<NcclGroup>(place, device_, id, options_);
    } catch (const CommunicationError& error) {
      throw CommunicationError(fmt::format("group '{}': rank {} of {} on {} cannot connect to the others: {}",
                                           place.name, place.rank, place.size, device_.to_string(), error.what()));
    }
  }

 private:
  Device device_;
  GroupOptions options_;
};

[[maybe_unused]] const bool registered =
    register_engine(DeviceType::cuda, [](Device device, const Store&, const GroupOptions& options) {
      return std::make_unique<NcclEngine>(device, options);
    });

}  // namespace
}  // namespace quench::distributed
