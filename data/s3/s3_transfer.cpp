// Files to and from the storage.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "data/hub/digest.h"
#include "data/s3/s3_client.h"
#include "data/s3/s3_errors.h"
#include "data/s3/s3_request.h"
#include "data/s3/s3_xml.h"

namespace quench::s3 {
namespace {

// New file that several threads write.
class PartsFile {
 public:
  PartsFile(const std::filesystem::path& path, std::uint64_t bytes) : path_(path) {
    file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes)) != 0) fail();
  }
  ~PartsFile() {
    if (file_ >= 0) ::close(file_);
  }
  PartsFile(const PartsFile&) = delete;
  PartsFile& operator=(const PartsFile&) = delete;

  void write(std::uint64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t put = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail();
      offset += static_cast<std::uint64_t>(put);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
  }
  void sync() const {
    if (::fsync(file_) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const {
    const int error = errno;
    QUENCH_FAIL(is_no_space(error) ? ErrorCode::no_space : ErrorCode::io, "{}: {}", path_.string(), errno_text(error));
  }

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace

void S3Client::fetch(std::string_view name, const S3ObjectInfo& info, const std::filesystem::path& path) {
  const auto stored = info.digest();
  FileDigest found{.bytes = info.bytes, .part_bytes = 0, .parts = {}};
  found.part_bytes = stored && stored->part_bytes > 0 && stored->part_bytes != UINT64_MAX
                         ? stored->part_bytes
                         : part_bytes_for(info.bytes, settings_.part_bytes);
  QUENCH_CHECK_AS(ErrorCode::corrupt, info.bytes / found.part_bytes <= kMostParts,
                  "{}: its metadata name parts of {} bytes, more than {} of them", place_.text(name), found.part_bytes,
                  kMostParts);
  found.parts.resize(std::max<std::uint64_t>(1, (info.bytes + found.part_bytes - 1) / found.part_bytes));
  const PartsFile file(path, info.bytes);
  in_parallel(info.bytes == 0 ? 0 : found.parts.size(), [&](S3Client& client, std::size_t part) {
    found.parts[part] = client.fetch_part(
        name, found, part, [&](std::uint64_t offset, std::span<const std::byte> bytes) { file.write(offset, bytes); });
  });
  file.sync();
  QUENCH_CHECK_AS(ErrorCode::corrupt, !stored || info.bytes == 0 || found.stored() == *stored,
                  "{}: the SHA-256 of what arrived is {}, the object was stored with {}", place_.text(name),
                  found.stored().sha256, stored->sha256);
}

std::string S3Client::fetch_part(std::string_view name, const FileDigest& layout, std::size_t part,
                                 const PartSink& write) {
  const std::uint64_t begin = layout.offset(part), size = layout.size(part);
  hub::Digest digest(hub::DigestKind::sha256, size);
  std::uint64_t done = 0, furthest = 0;
  for (hub::Retries retries(settings_.http, http_.stop()); done < size;) {
    Request request{.method = "GET", .name = std::string(name)};
    request.http.headers = {fmt::format("Range: bytes={}-{}", begin + done, begin + size - 1)};
    request.http.begin = [&](const hub::HttpResponse& response) {
      const std::string range = fmt::format("bytes {}-{}/", begin + done, begin + size - 1);
      const bool is_all = response.status == 200 && done == 0 && size == layout.bytes;
      QUENCH_CHECK_AS(ErrorCode::corrupt, is_all || response.header("content-range").starts_with(range),
                      "{}: the storage sends another range than asked for", place_.text(name));
    };
    request.http.sink = [&](std::span<const std::byte> bytes) {
      QUENCH_CHECK_AS(ErrorCode::corrupt, bytes.size() <= size - done, "{}: the storage sends more than asked for",
                      place_.text(name));
      write(begin + done, bytes);
      digest.add(bytes);
      done += bytes.size();
    };
    try {
      (void)attempt(request);
      if (done < size)
        throw hub::TransientError(
            fmt::format("{}: the connection ended after {} of {} bytes", place_.text(name), begin + done, layout.bytes),
            std::nullopt, false);
    } catch (const hub::TransientError& failure) {
      if (done > furthest) retries.reset();
      furthest = done;
      retries.wait(failure);
    }
  }
  return digest.finish();
}

void S3Client::send(std::string_view name, const std::filesystem::path& path, const FileDigest& digest,
                    const Metadata& metadata) {
  if (digest.parts.size() == 1) {
    Request request{.method = "PUT", .name = std::string(name), .hash = digest.parts.front()};
    request.http.headers = metadata_headers(metadata, digest.stored());
    request.http.file = hub::FilePart{path, 0, digest.bytes};
    (void)send_request(request);
  } else {
    send_parts(name, path, digest, metadata);
  }
  const auto info = find(name);
  QUENCH_CHECK_AS(ErrorCode::corrupt, info && info->bytes == digest.bytes && info->digest() == digest.stored(),
                  "{}: {} bytes were sent, the storage has {}", place_.text(name), digest.bytes,
                  !info ? "no such object" : fmt::format("{} bytes, or another digest", info->bytes));
}

void S3Client::send_parts(std::string_view name, const std::filesystem::path& path, const FileDigest& digest,
                          const Metadata& metadata) {
  remove_interrupted(name, [&](std::string_view other) { return other == name; });
  Request begin{.method = "POST", .name = std::string(name), .query = "uploads="};
  begin.http.headers = metadata_headers(metadata, digest.stored());
  const std::string upload = xml_text(send_request(begin).body, "UploadId");
  QUENCH_CHECK_AS(ErrorCode::corrupt, !upload.empty(), "{}: the storage begins an upload without an identifier",
                  place_.text(name));
  try {
    std::vector<std::string> tags(digest.parts.size());
    in_parallel(tags.size(), [&](S3Client& client, std::size_t part) {
      Request request{.method = "PUT",
                      .name = std::string(name),
                      .query = fmt::format("partNumber={}&uploadId={}", part + 1, hub::escape_segment(upload)),
                      .hash = digest.parts[part]};
      request.http.file = hub::FilePart{path, digest.offset(part), digest.size(part)};
      tags[part] = client.send_request(request).header("etag");
      QUENCH_CHECK_AS(ErrorCode::corrupt, !tags[part].empty(), "{}: part {} got no ETag from the storage",
                      place_.text(name), part + 1);
    });
    complete(name, upload, tags);
  } catch (const hub::Stopped&) {
    throw;  // removed by the next call
  } catch (const std::exception&) {
    abort(name, upload);
    throw;
  }
}

void S3Client::complete(std::string_view name, const std::string& upload, const std::vector<std::string>& tags) {
  std::string body = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (std::size_t part = 0; part < tags.size(); ++part)
    body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", part + 1, xml_escaped(tags[part]));
  body += "</CompleteMultipartUpload>";
  Request request{.method = "POST",
                  .name = std::string(name),
                  .query = "uploadId=" + hub::escape_segment(upload),
                  .hash = sha256_of(body),
                  .allowed = {404}};  // completed by an attempt whose answer was lost; send() looks
  request.http.headers = {"Content-Type: application/xml"};
  request.http.body = body;
  (void)send_request(request);
}

void S3Client::abort(std::string_view name, const std::string& upload) {
  try {
    (void)send_request({.method = "DELETE",
                        .name = std::string(name),
                        .query = "uploadId=" + hub::escape_segment(upload),
                        .allowed = {404}});
  } catch (const std::exception& error) {
    QUENCH_LOG_DEBUG("{}: parts of an interrupted upload stay: {}", place_.text(name), error.what());
  }
}

void S3Client::remove_interrupted(std::string_view start, const std::function<bool(std::string_view)>& is_old) {
  const std::string base = place_.key("");
  std::vector<std::pair<std::string, std::string>> uploads;  // name, identifier
  try {
    const hub::HttpResponse response =
        send_request({.method = "GET",
                      .name = std::string(start),
                      .query = fmt::format("prefix={}&uploads=", hub::escape_segment(place_.key(start))),
                      .is_of_bucket = true});
    xml_each(response.body, "Upload", [&](std::string_view entry) {
      const std::string key = xml_text(entry, "Key");
      if (key.starts_with(base) && is_old(std::string_view(key).substr(base.size())))
        uploads.emplace_back(key.substr(base.size()), xml_text(entry, "UploadId"));
    });
  } catch (const hub::Stopped&) {
    throw;
  } catch (const std::exception& error) {
    QUENCH_LOG_DEBUG("{}: interrupted uploads are not listed: {}", place_.text(start), error.what());
  }
  for (const auto& [name, upload] : uploads) abort(name, upload);
}

}  // namespace quench::s3
