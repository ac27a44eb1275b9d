#include "data/s3/file_digest.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "core/system/check.h"
#include "core/system/file.h"
#include "data/hub/digest.h"

namespace quench::s3 {

std::uint64_t part_bytes_for(std::uint64_t bytes, std::uint64_t usual) {
  constexpr std::uint64_t kStep = std::uint64_t{1} << 20;
  const std::uint64_t least = (bytes + kMostParts - 1) / kMostParts;
  return least <= usual ? usual : (least + kStep - 1) / kStep * kStep;
}

std::string sha256_of(std::string_view text) {
  hub::Digest digest(hub::DigestKind::sha256, text.size());
  digest.add(std::as_bytes(std::span(text.data(), text.size())));
  return digest.finish();
}

std::uint64_t FileDigest::size(std::size_t part) const {
  return std::min(part_bytes, bytes - offset(part));
}

StoredDigest FileDigest::stored() const {
  if (parts.size() == 1) return {parts.front(), part_bytes};
  std::string all;
  for (const std::string& part : parts) all += part;
  return {sha256_of(all), part_bytes};
}

FileDigest digest_file(const std::filesystem::path& path, std::uint64_t usual_part_bytes, const hub::StopPoll& stop) {
  std::error_code error;
  FileDigest result{.bytes = std::filesystem::file_size(path, error), .part_bytes = 0, .parts = {}};
  QUENCH_CHECK_AS(error == std::errc::no_such_file_or_directory ? ErrorCode::not_found : ErrorCode::io, !error,
                  "{}: {}", path.string(), error.message());
  result.part_bytes = part_bytes_for(result.bytes, usual_part_bytes);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  QUENCH_CHECK_AS(ErrorCode::io, file != nullptr, "{}: {}", path.string(), errno_text(errno));
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  hub::Digest digest(hub::DigestKind::sha256, result.bytes);
  std::uint64_t done = 0;
  do {
    digest.restart();
    const std::uint64_t end = done + std::min(result.part_bytes, result.bytes - done);
    while (done < end) {
      if (const int reason = stop ? stop() : 0; reason != 0) throw hub::Stopped(reason);
      const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), end - done));
      const std::size_t got = std::fread(buffer.data(), 1, wanted, file.get());
      QUENCH_CHECK_AS(ErrorCode::io, got == wanted, "{}: {}", path.string(),
                      std::ferror(file.get()) != 0 ? errno_text(errno) : "the file became shorter while it was read");
      digest.add(std::span(buffer).first(got));
      done += got;
    }
    result.parts.push_back(digest.finish());
  } while (done < result.bytes);
  return result;
}

}  // namespace quench::s3
