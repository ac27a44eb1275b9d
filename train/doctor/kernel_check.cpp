#include "train/doctor/kernel_check.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>

#include "core/self_test/verdict_cache.h"
#include "core/system/log.h"
#include "train/doctor/build_info.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// Size and time of change of the program's file: builds of a modified source tree share version and commit.
Json program_file() {
  std::error_code error;
  const fs::path file = fs::read_symlink("/proc/self/exe", error);
  const auto size = static_cast<std::int64_t>(fs::file_size(file, error));
  const auto changed = fs::last_write_time(file, error).time_since_epoch();
  return Json(Json::Object{
      {"bytes", size},
      {"changed", static_cast<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(changed).count())}});
}

std::string environment(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

}  // namespace

Json verdict_key(Device device, const std::vector<LibraryVersion>& libraries) {
  const Backend& owner = backend(device.type);
  const ComputeCapability capability = owner.compute_capability(device);
  Json versions = Json::object();
  for (const LibraryVersion& library : libraries) versions.set(library.name, library.version);
  return Json(Json::Object{{"version", kBuildInfo.version},
                           {"commit", kBuildInfo.commit},
                           {"program", program_file()},
                           {"device", owner.device_name(device)},
                           {"capability", capability.device},
                           {"code", capability.code},
                           {"QUENCH_CUDA_CAPABILITY", environment("QUENCH_CUDA_CAPABILITY")},
                           {"libraries", std::move(versions)}});
}

KernelVerdict kernel_verdict(Device device, const fs::path& folder, SelfTestReport (*run)(Device)) {
  if (!broken_kernel_families().empty()) return {run(device), false};
  const Json key = verdict_key(device, library_versions(device.type));
  if (std::optional<SelfTestReport> known = read_verdict(folder, key)) return {std::move(*known), true};
  KernelVerdict verdict{run(device), false};
  if (!write_verdict(folder, key, verdict.report))
    QUENCH_LOG_DEBUG("the self-test's report cannot be stored; it runs at every start");
  return verdict;
}

std::vector<std::string> replacement_lines(const SelfTestReport& report, const std::string& device_name) {
  std::vector<std::string> lines;
  const KernelFamilySet failed = replaceable_failures(report);
  for (const KernelFamilyInfo& family : kernel_families()) {
    if (!failed.contains(family.family)) continue;
    const auto result = std::ranges::find(report.families, family.name, &FamilyResult::name);
    lines.push_back(fmt::format("kernel family {} gives wrong results on {} ({}); its fallback is used: {}",
                                family.name, device_name, result->detail, family.fallback));
  }
  return lines;
}

void apply_verdict(const SelfTestReport& report, const std::string& device_name) {
  for (const std::string& line : replacement_lines(report, device_name)) QUENCH_LOG_WARN("{}", line);
  disable_kernel_families(replaceable_failures(report));
  const std::string fatal = fatal_failures(report);
  QUENCH_CHECK_AS(ErrorCode::failed, fatal.empty(),
                  "kernels without a fallback fail the self-test on {}: {}; see `quench doctor`, use --device cpu, or "
                  "set QUENCH_SELF_TEST=0 to start in spite of it",
                  device_name, fatal);
}

void check_kernels(Device device) {
  if (device.type != DeviceType::cuda) return;
  static std::mutex mutex;
  static std::set<int> checked;
  const std::lock_guard lock(mutex);
  if (checked.contains(device.index)) return;
  for (const KernelFamilyInfo& family : kernel_families())
    if (disabled_kernel_families().contains(family.family))
      QUENCH_LOG_INFO("kernel family {} is switched off; its fallback is used: {}", family.name, family.fallback);
  if (environment("QUENCH_SELF_TEST") != "0") {
    const std::string name = backend(device.type).device_name(device);
    const KernelVerdict verdict = kernel_verdict(device, verdict_folder());
    if (!verdict.cached)
      QUENCH_LOG_INFO("self-test of the kernels on {}: {} families passed, {} failed, {:.1f} s", name,
                      count(verdict.report, FamilyStatus::passed), count(verdict.report, FamilyStatus::failed),
                      verdict.report.seconds);
    apply_verdict(verdict.report, name);
  }
  checked.insert(device.index);
}

}  // namespace quench
