// Process groups of CPU tensors over TCP: Gloo's connections and messages, our order of sums.

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <thread>

#include "distributed/communication_error.h"
#include "distributed/engine.h"
#include "distributed/gloo/algorithms.h"
#include "distributed/watchdog.h"

namespace quench::distributed {
namespace {

constexpr std::uint64_t kPassFlag = std::uint64_t{1} << 63;  // slots of send and recv

// All ranks of a group, connected to each other; addresses travel through the store.
class Mesh final : public gloo::Context {
 public:
  using gloo::Context::Context;

  // Throws CommunicationError when a rank ends meanwhile or does not come in time.
  void connect(const std::shared_ptr<gloo::transport::Device>& device, Store& store, const std::string& prefix,
               const GroupOptions& options) {
    device_ = device;
    transportContext_ = device->createContext(rank, size);
    transportContext_->setTimeout(options.join_timeout);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const std::vector<char> address = transportContext_->createPair(peer)->address().bytes();
      store.set(key(prefix, rank, peer), {address.data(), address.size()});
    }
    Connecting connecting(*transportContext_, options.watchdog.get());
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const std::optional<std::string> address =
          wait_watched(store, key(prefix, peer, rank), options.join_timeout, options.watchdog.get());
      if (!address) throw CommunicationError(fmt::format("rank {} has not come", peer));
      transportContext_->getPair(peer)->connect({address->begin(), address->end()});
      if (options.watchdog) options.watchdog->check();
    }
  }

 private:
  // Closes the connections that are being made when a rank ends: Gloo would try for all of the join timeout.
  class Connecting {
   public:
    Connecting(gloo::transport::Context& context, const Watchdog* watchdog) {
      if (watchdog == nullptr) return;
      thread_ = std::thread([this, &context, watchdog] {
        std::unique_lock lock(mutex_);
        while (!changed_.wait_for(lock, kLook, [this] { return done_; })) {
          try {
            watchdog->check();
          } catch (const CommunicationError&) {
            for (int peer = 0; peer < context.size; ++peer)
              if (const auto& pair = context.getPair(peer)) pair->close();
            return;
          }
        }
      });
    }
    ~Connecting() {
      {
        const std::scoped_lock lock(mutex_);
        done_ = true;
      }
      changed_.notify_all();
      if (thread_.joinable()) thread_.join();
    }
    Connecting(const Connecting&) = delete;
    Connecting& operator=(const Connecting&) = delete;

   private:
    static constexpr auto kLook = std::chrono::milliseconds(200);
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    std::thread thread_;
  };

  static std::string key(const std::string& prefix, int from, int to) {
    return fmt::format("{}gloo/{}/{}", prefix, from, to);
  }
};

class Job final : public PendingCollective {
 public:
  explicit Job(Collective collective) : collective_(std::move(collective)) {}
  [[nodiscard]] const Collective& collective() const { return collective_; }
  void finish(std::exception_ptr error) {
    {
      const std::scoped_lock lock(mutex_);
      done_ = true;
      error_ = std::move(error);
    }
    changed_.notify_all();
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  Collective collective_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
};

class GlooGroup final : public ProcessGroup {
 public:
  GlooGroup(const GroupPlace& place, std::shared_ptr<gloo::Context> context, std::shared_ptr<LoopCalls> calls,
            const GroupOptions& options)
      : ProcessGroup(place.name, place.rank, place.size, Device{}),
        exchange_(std::move(context), std::move(calls), options.timeout),
        compare_(options.check_collectives),
        thread_([this] { run(); }) {}
  ~GlooGroup() override {
    unwatch();
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      if (!jobs_.empty() || busy_) exchange_.abort(AbortCause::lost, "the group ends");
    }
    changed_.notify_all();
    thread_.join();
  }
  void abort(AbortCause cause, const std::string& reason) override { exchange_.abort(cause, reason); }
  void set_timeout(std::chrono::milliseconds timeout) override { exchange_.set_timeout(timeout); }
  [[nodiscard]] std::chrono::milliseconds timeout() const override { return exchange_.timeout(); }

 protected:
  std::shared_ptr<PendingCollective> start(const Collective& collective) override {
    auto job = std::make_shared<Job>(collective);
    {
      const std::scoped_lock lock(mutex_);
      jobs_.push_back(job);
    }
    changed_.notify_all();
    return job;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::shared_ptr<Job> job = jobs_.front();
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      job->finish(run_job(*job));
      lock.lock();
      busy_ = false;
    }
  }

  std::exception_ptr run_job(const Job& job) {
    const Collective& collective = job.collective();
    log().started(collective.sequence);
    try {
      if (!failure_.empty()) throw CommunicationError(failure_);
      run_on_network(collective);
      log().finished(collective.sequence);
      return nullptr;
    } catch (const std::exception& error) {
      // Messages of an operation that has failed may still come: no further one can be trusted.
      if (failure_.empty()) {
        failure_ = fmt::format("{} in group '{}' on rank {} of {} failed: {}", collective.describe(), name(), rank(),
                               size(), error.what());
        kept_.push_back(collective);
        write_collective_log(log(), name(), rank());
        if (dynamic_cast<const CollectiveTimeout*>(&error) != nullptr) {
          failure_ = with_diagnosis(failure_, collective.sequence);
          return std::make_exception_ptr(CollectiveTimeout(failure_));
        }
      }
      if (dynamic_cast<const CommunicationError*>(&error) != nullptr)
        return std::make_exception_ptr(CommunicationError(failure_));
      return std::make_exception_ptr(Error(ErrorCode::failed, failure_));
    }
  }

  void run_on_network(const Collective& collective) {
    const bool passes = collective.kind == CollectiveKind::send || collective.kind == CollectiveKind::receive;
    if (passes) {
      const bool sends = collective.kind == CollectiveKind::send;
      const std::uint64_t count = (sends ? sent_ : received_)[collective.peer]++;
      return run_collective(exchange_, collective, kPassFlag | count);
    }
    const std::uint64_t base = (++collectives_) << kSlotBits;
    if (compare_ && collective.kind != CollectiveKind::barrier) compare_collectives(exchange_, collective, base);
    run_collective(exchange_, collective, base);
  }

  Exchange exchange_;
  bool compare_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool stopping_ = false;
  bool busy_ = false;
  // Of the thread alone.
  std::uint64_t collectives_ = 0;
  std::map<int, std::uint64_t> sent_, received_;
  std::string failure_;
  std::vector<Collective> kept_;  // the memory of failed operations
  std::thread thread_;
};

class GlooEngine final : public GroupEngine {
 public:
  // Listens on the interface that leads to the store: on loopback where all ranks are on one machine.
  GlooEngine(const Store& store, const GroupOptions& options) : options_(options) {
    // Gloo writes to connections whose other end may have gone: that is to be an error, not the end of the process.
    struct sigaction found {};
    if (::sigaction(SIGPIPE, nullptr, &found) == 0 && found.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
    gloo::transport::tcp::attr attributes;
    attributes.hostname = store.address();
    auto device = std::make_shared<gloo::transport::tcp::Device>(gloo::transport::tcp::CreateDeviceAttr(attributes));
    device_ = device;
    calls_ = std::make_shared<LoopCalls>(std::move(device));
  }

  std::unique_ptr<ProcessGroup> make_group(const GroupPlace& place, Store& store, const std::string& prefix) override {
    try {
      auto mesh = std::make_shared<Mesh>(place.rank, place.size);
      meshes_.push_back(mesh);
      mesh->connect(device_, store, prefix, options_);
      mesh->setTimeout(options_.timeout);
      meshes_.pop_back();
      return std::make_unique<GlooGroup>(place, std::move(mesh), calls_, options_);
    } catch (const std::exception& error) {
      throw CommunicationError(fmt::format("group '{}': rank {} of {} cannot connect to the others: {}", place.name,
                                           place.rank, place.size, error.what()));
    }
  }

 private:
  GroupOptions options_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<LoopCalls> calls_;
  std::vector<std::shared_ptr<Mesh>> meshes_;  // that failed: Gloo may still be trying to connect them
};

[[maybe_unused]] const bool registered =
    register_engine(DeviceType::cpu, [](Device, const Store& store, const GroupOptions& options) {
      return std::make_unique<GlooEngine>(store, options);
    });

}  // namespace
}  // namespace quench::distributed
