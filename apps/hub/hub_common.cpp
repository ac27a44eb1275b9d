#include "apps/hub/hub_common.h"

#include "apps/command.h"
#include "core/system/check.h"
#include "core/system/log.h"
#include "core/system/signals.h"
#include "data/hub/http_client.h"

namespace quench {

hub::HubName hub_name_of(const std::string& text, const std::string& repo_type, const std::string& revision) {
  hub::HubName name = hub::parse_hub_name(text);
  if (!repo_type.empty()) {
    const hub::RepoType type = hub::require_repo_type(repo_type, "--repo-type");
    QUENCH_CHECK_AS(ErrorCode::bad_config, name.type == hub::RepoType::model || name.type == type,
                    "{} names a data set, --repo-type a {}; omit one of the two", text, repo_type);
    name.type = type;
  }
  if (!revision.empty()) {
    hub::require_revision(revision);
    QUENCH_CHECK_AS(ErrorCode::bad_config, name.revision == hub::kDefaultRevision || name.revision == revision,
                    "{} names the revision {}, --revision {}; omit one of the two", text, name.revision, revision);
    name.revision = revision;
  }
  return name;
}

void run_stoppable(const std::function<void()>& work, const std::string& consequence) {
  try {
    work();
  } catch (const hub::Stopped& stopped) {
    QUENCH_LOG_WARN("stopped by {}; {}", signal_text(stopped.reason()), consequence);
    throw ExitRequest{exit_status_of_signal(stopped.reason())};
  }
}

std::string bytes_text(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", value * 1e-9);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", value * 1e-6);
  if (bytes >= 1'000) return fmt::format("{:.1f} kB", value * 1e-3);
  return fmt::format("{} bytes", bytes);
}

}  // namespace quench
