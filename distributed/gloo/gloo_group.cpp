// CPU process groups over TCP (Gloo's connections), reductions in rank order.

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
#include "distributed/gloo/mesh.h"
#include "distributed/watchdog.h"

namespace quench::distributed {
namespace {

constexpr std::uint64_t kPassFlag = std::uint64_t{1} << 63;  // slots of send and recv

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
      // Messages of a failed operation may still arrive: later operations fail too.
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
  // Group thread only.
  std::uint64_t collectives_ = 0;
  std::map<int, std::uint64_t> sent_, received_;
  std::string failure_;
  std::vector<Collective> kept_;  // memory of failed operations
  std::thread thread_;
};

class GlooEngine final : public GroupEngine {
 public:
  explicit GlooEngine(const GroupOptions& options) : options_(options) {
    // A write to a closed connection must be an error.
    struct sigaction found {};
    if (::sigaction(SIGPIPE, nullptr, &found) == 0 && found.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
    gloo::transport::tcp::attr attributes;
    attributes.hostname = kPairAddress;
    device_ = std::make_shared<gloo::transport::tcp::Device>(gloo::transport::tcp::CreateDeviceAttr(attributes));
    calls_ = std::make_shared<LoopCalls>(device_);
  }

  std::unique_ptr<ProcessGroup> make_group(const GroupPlace& place, Store& store, const std::string& prefix) override {
    try {
      auto mesh = std::make_shared<Mesh>(place.rank, place.size);
      mesh->connect(device_, store, prefix, options_);
      mesh->setTimeout(options_.timeout);
      return std::make_unique<GlooGroup>(place, std::move(mesh), calls_, options_);
    } catch (const std::exception& error) {
      throw CommunicationError(fmt::format("group '{}': rank {} of {} cannot connect to the others: {}", place.name,
                                           place.rank, place.size, error.what()));
    }
  }

 private:
  GroupOptions options_;
  std::shared_ptr<gloo::transport::tcp::Device> device_;
  std::shared_ptr<LoopCalls> calls_;
};

[[maybe_unused]] const bool registered = register_engine(
    DeviceType::cpu,
    [](Device, const Store&, const GroupOptions& options) { return std::make_unique<GlooEngine>(options); });

}  // namespace
}  // namespace quench::distributed
