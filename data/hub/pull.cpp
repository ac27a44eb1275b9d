#include "data/hub/pull.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "data/hub/destination.h"
#include "data/hub/hub_api.h"
#include "data/hub/partial_file.h"

namespace quench::hub {
namespace {

namespace fs = std::filesystem;

// First byte of "bytes 100-199/200"; nullopt: malformed.
std::optional<std::uint64_t> range_begin(std::string_view content_range) {
  constexpr std::string_view kUnit = "bytes ";
  if (!content_range.starts_with(kUnit)) return std::nullopt;
  content_range.remove_prefix(kUnit.size());
  std::uint64_t begin = 0;
  const auto [end, error] = std::from_chars(content_range.data(), content_range.data() + content_range.size(), begin);
  if (error != std::errc() || end == content_range.data() + content_range.size() || *end != '-') return std::nullopt;
  return begin;
}

// Work of several threads on the files of a plan.
class Downloads {
 public:
  Downloads(const HubSettings& settings, const PullPlan& plan, const PullOptions& options, Destination& destination,
            std::vector<HubFile> files)
      : settings_(settings), plan_(plan), options_(options), destination_(destination), files_(std::move(files)) {
    for (const HubFile& file : files_) total_ += file.size;
  }

  void run() {
    std::vector<std::thread> threads;
    const std::size_t count = std::min<std::size_t>(std::max(options_.workers, 1), files_.size());
    running_ = count;
    try {
      for (std::size_t i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
      watch();
    } catch (...) {
      fail(std::current_exception());
      running_ -= count - threads.size();
    }
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  [[nodiscard]] std::size_t fetched_files() const { return fetched_files_; }
  [[nodiscard]] std::uint64_t fetched_bytes() const { return fetched_bytes_; }

 private:
  static constexpr int kFailed = -1;  // reason of the other threads' stop

  void watch() {
    constexpr auto kPause = std::chrono::milliseconds(20);
    while (running_ > 0) {
      if (const int reason = options_.stop && stop_ == 0 ? options_.stop() : 0; reason != 0) stop_ = reason;
      if (options_.progress) options_.progress(done_, total_);
      std::this_thread::sleep_for(kPause);
    }
  }

  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    if (stop_ == 0) stop_ = kFailed;
  }

  void work() {
    try {
      HttpClient client(settings_, [this] { return stop_.load(); });
      for (std::size_t i = next_++; i < files_.size() && stop_ == 0; i = next_++) fetch(client, files_[i]);
      if (const int reason = stop_; reason > 0) throw Stopped(reason);
    } catch (const Stopped& stopped) {
      if (stopped.reason() != kFailed) fail(std::current_exception());
    } catch (...) {
      fail(std::current_exception());
    }
    --running_;
  }

  void fetch(HttpClient& client, const HubFile& file) {
    const FileLock lock(destination_.lock(file), client.stop(), file.path);
    if (destination_.has(file)) {  // another process was faster
      done_ += file.size;
      return;
    }
    PartialFile partial(destination_.incomplete(file), file);
    if (partial.size() > 0) QUENCH_LOG_INFO("continuing {} at byte {} of {}", file.path, partial.size(), file.size);
    done_ += partial.size();
    fill(client, file, partial);
    partial.sync();
    destination_.place(file);
    ++fetched_files_;
    QUENCH_LOG_DEBUG("hub: {} is complete, {} bytes", file.path, file.size);
  }

  // Until the digest is right.
  void fill(HttpClient& client, const HubFile& file, PartialFile& partial) {
    bool may_be_stale = partial.size() > 0;
    std::uint64_t furthest = partial.size();
    for (Retries retries(settings_, client.stop());;) {
      try {
        if (partial.size() < file.size) request(client, file, partial);
      } catch (const TransientError& failure) {
        if (partial.size() > furthest) retries.reset();
        furthest = std::max(furthest, partial.size());
        retries.wait(failure);
        continue;
      }
      const std::string digest = partial.digest();
      if (digest == file.etag()) return;
      start_over(partial);
      QUENCH_CHECK_AS(ErrorCode::corrupt, may_be_stale,
                      "{}: {} has the digest {}, the hub lists {}; the content was changed in transit (by a proxy or a "
                      "mirror in HF_ENDPOINT), nothing was kept of it",
                      plan_.name.text(), file.path, digest, file.etag());
      QUENCH_LOG_WARN("{}: the part of an earlier download has another content; starting it again", file.path);
      may_be_stale = false;
    }
  }

  void start_over(PartialFile& partial) {
    done_ -= partial.size();
    partial.restart();
  }

  void request(HttpClient& client, const HubFile& file, PartialFile& partial) {
    const std::uint64_t from = partial.size();
    HttpRequest request{.url = RepoUrls(settings_, plan_.name).file(plan_.commit, file.path)};
    if (from > 0) request.headers.push_back(fmt::format("Range: bytes={}-", from));
    request.begin = [&](const HttpResponse& response) {
      if (from == 0) return;
      if (response.status != 206) return start_over(partial);  // the server sends all of it
      if (range_begin(response.header("content-range")) == from) return;
      start_over(partial);
      throw TransientError(fmt::format("{}: the server sends another range than asked for", file.path), 0.0, false);
    };
    request.sink = [&](std::span<const std::byte> bytes) {
      partial.append(bytes);
      done_ += bytes.size();
      fetched_bytes_ += bytes.size();
    };
    const HttpResponse response = client.send_once(request);
    if (response.status == 416 && from > 0) {
      start_over(partial);
      throw TransientError(fmt::format("{}: the server refuses to continue at byte {}", file.path, from), 0.0, false);
    }
    require_success(client, plan_.name, response, file.path);
    if (partial.size() < file.size)
      throw TransientError(
          fmt::format("{}: the connection ended after {} of {} bytes", file.path, partial.size(), file.size),
          std::nullopt, false);
  }

  const HubSettings& settings_;
  const PullPlan& plan_;
  const PullOptions& options_;
  Destination& destination_;
  std::vector<HubFile> files_;
  std::uint64_t total_ = 0;
  std::atomic<std::size_t> next_ = 0, running_ = 0, fetched_files_ = 0;
  std::atomic<std::uint64_t> done_ = 0, fetched_bytes_ = 0;
  std::atomic<int> stop_ = 0;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

// Bytes of a part that exists.
std::uint64_t partial_bytes(const fs::path& path, const HubFile& file) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  return error || size > file.size ? 0 : size;
}

}  // namespace

std::uint64_t PullPlan::bytes() const {
  std::uint64_t sum = 0;
  for (const HubFile& file : choice.files) sum += file.size;
  return sum;
}

PullPlan plan_pull(const HubSettings& settings, const HubName& name, const PullOptions& options) {
  HttpClient client(settings, options.stop);
  PullPlan plan{.name = name, .commit = resolve_revision(client, name), .choice = {}};
  plan.choice = choose_files(list_files(client, name, plan.commit), name, options.patterns);
  return plan;
}

PullResult pull(const HubSettings& settings, const PullPlan& plan, const PullOptions& options) {
  const std::unique_ptr<Destination> destination = options.folder.empty()
                                                       ? cache_destination(settings.cache, plan.name, plan.commit)
                                                       : folder_destination(options.folder, options.overwrite);
  destination->check(plan.choice.files);
  std::vector<HubFile> missing;
  std::uint64_t needed = 0;
  for (const HubFile& file : plan.choice.files) {
    if (destination->has(file)) continue;
    missing.push_back(file);
    needed += file.size - partial_bytes(destination->incomplete(file), file);
  }
  const std::uint64_t available = free_disk_bytes(destination->folder());
  QUENCH_CHECK_AS(
      ErrorCode::no_space, needed <= available,
      "{}: {:.2f} GB are to be downloaded, {:.2f} GB are free there; name another cache in HF_HUB_CACHE, or a "
      "folder with --local-dir",
      destination->folder().string(), static_cast<double>(needed) * 1e-9, static_cast<double>(available) * 1e-9);
  Downloads downloads(settings, plan, options, *destination, std::move(missing));
  downloads.run();
  destination->finish();
  return {.folder = destination->folder(),
          .fetched_files = downloads.fetched_files(),
          .fetched_bytes = downloads.fetched_bytes()};
}

}  // namespace quench::hub
