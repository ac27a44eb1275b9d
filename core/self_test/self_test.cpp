#include "core/self_test/self_test.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "core/memory/allocator.h"
#include "core/ops/elementwise.h"
#include "core/self_test/cases.h"
#include "core/self_test/runs.h"

namespace quench {
namespace {

using self_test::Case;
using self_test::Digest;
using self_test::Outputs;

Outputs moved_to_cpu(const Outputs& outputs, Device device) {
  Outputs result;
  for (const Tensor& output : outputs) result.push_back(output.to({}));
  backend(device.type).synchronize(current_stream(device));
  for (Tensor& output : result) {
    if (output.dtype() == DType::f32) continue;
    const Tensor f32 = Tensor::empty(output.shape(), DType::f32);
    cast({output, f32});
    output = f32;
  }
  return result;
}

// Relative L2 error; NaN with a NaN.
double relative_error(const Tensor& output, const Tensor& expected) {
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < expected.numel(); ++i) {
    const double a = static_cast<double>(output.data<float>()[i]), b = static_cast<double>(expected.data<float>()[i]);
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  return std::sqrt(difference / norm);
}

// Errors of a digest are at most those of the output.
double relative_error(const Digest& digest, const Digest& stored) {
  return std::max(std::abs(digest.norm - stored.norm), std::abs(digest.dot - stored.dot)) / stored.norm;
}

class SelfTest {
 public:
  explicit SelfTest(Device device) : device_(device) {}

  FamilyResult run(const Case& test) {
    FamilyResult result{.name = std::string(test.name)};
    if (device_.is_cpu() && !test.without.empty()) {
      result.status = FamilyStatus::not_used;  // the CPU has one kernel for both
      return result;
    }
    try {
      const double error = error_of(test, result);
      if (result.status == FamilyStatus::not_used || error <= test.tolerance) return result;
      result.detail = fmt::format("relative error {:.2g}, at most {:.2g} expected", error, test.tolerance);
    } catch (const Error& error) {
      result.detail = error.what();
    }
    result.status = FamilyStatus::failed;
    return result;
  }

 private:
  // Largest of the outputs; NaN for one.
  double error_of(const Case& test, FamilyResult& result) {
    const Outputs& expected = oracle(test);
    double worst = 0;
    const auto take = [&](double error) { worst = std::isnan(worst) || error <= worst ? worst : error; };
    if (device_.is_cpu()) {
      const std::span<const Digest> stored = self_test::stored_digests(test.name);
      QUENCH_CHECK(stored.size() == expected.size(), "{} stored vectors for {} outputs", stored.size(),
                   expected.size());
      for (std::size_t i = 0; i < stored.size(); ++i) take(relative_error(self_test::digest(expected[i]), stored[i]));
      return worst;
    }
    const KernelFamilyScope scope(
        {.on = test.family ? *test.family : KernelFamilySet(), .off = test.without, .broken = {}});
    const std::uint64_t before = test.family ? kernel_family_launches(*test.family) : 0;
    const Outputs outputs = moved_to_cpu(test.run(device_), device_);
    if (test.family && kernel_family_launches(*test.family) == before) result.status = FamilyStatus::not_used;
    for (std::size_t i = 0; i < outputs.size(); ++i) take(relative_error(outputs[i], expected[i]));
    return worst;
  }

  const Outputs& oracle(const Case& test) {
    const auto [entry, added] = oracles_.try_emplace(test.run);
    if (added) entry->second = moved_to_cpu(test.run({}), {});
    return entry->second;
  }

  Device device_;
  std::map<Outputs (*)(Device), Outputs> oracles_;
};

}  // namespace

std::string_view to_string(FamilyStatus status) noexcept {
  switch (status) {
    case FamilyStatus::passed: return "passed";
    case FamilyStatus::failed: return "failed";
    case FamilyStatus::not_used: return "not used";
  }
  return "unknown";
}

SelfTestReport run_self_test(Device device) {
  const auto begin = std::chrono::steady_clock::now();
  Allocator& allocator = Allocator::of(device);
  const bool unused = allocator.stats().current == 0;
  SelfTestReport report;
  {
    SelfTest test(device);
    for (const Case& row : self_test::cases()) report.families.push_back(test.run(row));
  }
  if (unused) {
    allocator.trim();
    allocator.reset_peak();
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

std::size_t count(const SelfTestReport& report, FamilyStatus status) noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(report.families, [&](const FamilyResult& family) { return family.status == status; }));
}

KernelFamilySet replaceable_failures(const SelfTestReport& report) {
  KernelFamilySet failed;
  for (const FamilyResult& result : report.families)
    for (const KernelFamilyInfo& family : kernel_families())
      if (result.status == FamilyStatus::failed && result.name == family.name) failed = failed | family.family;
  return failed;
}

std::string fatal_failures(const SelfTestReport& report) {
  std::string text;
  for (const FamilyResult& result : report.families) {
    const bool replaceable = std::ranges::any_of(
        kernel_families(), [&](const KernelFamilyInfo& family) { return family.name == result.name; });
    if (result.status == FamilyStatus::failed && !replaceable)
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", result.name, result.detail);
  }
  return text;
}

}  // namespace quench
