#include "apps/hub/s3_verbs.h"

#include <cstdio>

#include "apps/common.h"
#include "apps/hub/hub_common.h"
#include "core/system/check.h"
#include "core/system/log.h"
#include "core/system/signals.h"
#include "data/s3/s3_folder.h"

namespace quench {
namespace {

Json list_of(const std::vector<std::string>& names) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

void show(const s3::FolderTransfer& done, const char* verb, const std::string& where, const S3VerbOptions& options) {
  if (options.json)
    return print_json(Json::Object{
        {"where", where}, {verb, list_of(done.sent)}, {"unchanged", list_of(done.unchanged)}, {"bytes", done.bytes}});
  if (options.quiet) return;
  std::printf("%s: %s %zu files, %s; %zu were there\n", where.c_str(), verb, done.sent.size(),
              bytes_text(done.bytes).c_str(), done.unchanged.size());
}

}  // namespace

bool is_s3_address(const std::string& name) {
  return name.starts_with(s3::kScheme);
}

void pull_from_s3(const std::string& address, const std::filesystem::path& folder, const S3VerbOptions& options) {
  const s3::S3Url url = s3::parse_s3_url(address);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !folder.empty() || options.dry_run,
                  "{} has no place in the hub's cache; name a folder with --local-dir", address);
  if (options.quiet) quieten_log();
  const auto stop = poll_stop_signals();
  s3::S3Client client(s3::S3Settings::from_environment(), url, stop);
  if (!options.dry_run)
    return show(s3::fetch_folder(client, folder, options.overwrite, stop), "fetched", folder.string(), options);
  s3::FolderTransfer listed;
  for (const s3::S3Object& object : client.list("")) {
    if (!options.json) std::printf("%12s  %s\n", bytes_text(object.bytes).c_str(), object.name.c_str());
    listed.sent.push_back(object.name);
    listed.bytes += object.bytes;
  }
  if (options.json) return print_json(Json::Object{{"files", list_of(listed.sent)}, {"bytes", listed.bytes}});
  std::printf("%12s  %zu files of %s\n", bytes_text(listed.bytes).c_str(), listed.sent.size(), address.c_str());
}

void push_to_s3(const std::filesystem::path& folder, const std::vector<std::string>& files, const std::string& address,
                const S3VerbOptions& options) {
  const s3::S3Url url = s3::parse_s3_url(address);
  if (options.quiet) quieten_log();
  const auto stop = poll_stop_signals();
  const s3::S3Settings settings = s3::S3Settings::from_environment();
  s3::S3Client client(settings, url, stop);
  show(s3::send_folder(client, folder, files, settings.part_bytes, stop), "sent", url.text(), options);
}

}  // namespace quench
