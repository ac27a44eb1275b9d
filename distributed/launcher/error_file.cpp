#include "distributed/launcher/error_file.h"

#include <atomic>
#include <cstdlib>

#include "core/json/json.h"
#include "core/system/file.h"
#include "distributed/launcher/failure.h"

namespace quench::distributed {
namespace {

constexpr std::uint64_t kMaxBytes = 1 << 20;
constexpr const char* kErrorFileVariable = "TORCHELASTIC_ERROR_FILE";
std::atomic<std::int64_t> error_step{0};

}  // namespace

void set_error_step(std::int64_t step) noexcept {
  error_step = step;
}

bool prints_shared_errors() noexcept {
  const char *const file = std::getenv(kErrorFileVariable), *const rank = std::getenv("LOCAL_RANK");
  return file == nullptr || *file == '\0' || rank == nullptr || std::string_view(rank) == "0";
}

void write_error_file(std::string_view message, bool is_echo) noexcept {
  const char* path = std::getenv(kErrorFileVariable);
  if (path == nullptr || *path == '\0') return;
  try {
    Json extra = Json::object();
    extra.set("timestamp", fmt::format("{:.6f}", unix_time()));
    if (is_echo) extra.set("echo", true);
    extra.set("step", error_step.load());
    Json inner = Json::object();
    inner.set("message", message);
    inner.set("extraInfo", std::move(extra));
    Json outer = Json::object();
    outer.set("message", std::move(inner));
    write_file_atomically(path, outer.dump());
  } catch (const std::exception&) {
    // The message is also on stderr.
  }
}

std::optional<WorkerError> read_error_file(const std::filesystem::path& path) noexcept {
  try {
    if (!std::filesystem::exists(path)) return std::nullopt;
    const Json json = Json::parse(read_file(path, kMaxBytes));
    const Json* outer = json.find("message");
    if (outer == nullptr || !outer->is_object()) return std::nullopt;
    WorkerError error;
    if (const Json* text = outer->find("message"); text != nullptr) error.message = text->as_string();
    if (const Json* extra = outer->find("extraInfo"); extra != nullptr) {
      if (const Json* time = extra->find("timestamp"); time != nullptr)
        error.time = time->is_string() ? std::atof(time->as_string().c_str()) : time->as_double();
      error.is_echo = extra->find("echo") != nullptr;
      if (const Json* step = extra->find("step"); step != nullptr) error.step = step->as_int();
    }
    return error;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace quench::distributed
