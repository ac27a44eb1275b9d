#include "data/hub/digest.h"

#include <openssl/evp.h>

#include <array>
#include <cstdio>
#include <vector>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench::hub {

struct Digest::Context {
  EVP_MD_CTX* handle = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(handle); }
};

Digest::Digest(DigestKind kind, std::uint64_t size) : kind_(kind), size_(size), context_(std::make_unique<Context>()) {
  restart();
}

Digest::~Digest() = default;

void Digest::restart() {
  const EVP_MD* algorithm = kind_ == DigestKind::sha256 ? EVP_sha256() : EVP_sha1();
  QUENCH_CHECK_AS(ErrorCode::failed,
                  context_->handle != nullptr && EVP_DigestInit_ex(context_->handle, algorithm, nullptr) == 1,
                  "OpenSSL offers no {} here", kind_ == DigestKind::sha256 ? "SHA-256" : "SHA-1");
  if (kind_ == DigestKind::git_blob) {
    const std::string header = fmt::format("blob {}", size_);
    add(std::as_bytes(std::span(header.c_str(), header.size() + 1)));
  }
}

void Digest::add(std::span<const std::byte> bytes) {
  QUENCH_CHECK_AS(ErrorCode::failed, EVP_DigestUpdate(context_->handle, bytes.data(), bytes.size()) == 1,
                  "OpenSSL could not hash {} bytes", bytes.size());
}

std::string Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> value{};
  unsigned size = 0;
  QUENCH_CHECK_AS(ErrorCode::failed, EVP_DigestFinal_ex(context_->handle, value.data(), &size) == 1,
                  "OpenSSL could not finish a digest");
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", value[i]);
  return text;
}

std::string file_digest(const std::filesystem::path& path, DigestKind kind) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  QUENCH_CHECK_AS(error == std::errc::no_such_file_or_directory ? ErrorCode::not_found : ErrorCode::io, !error,
                  "{}: {}", path.string(), error.message());
  Digest digest(kind, size);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  QUENCH_CHECK_AS(ErrorCode::io, file != nullptr, "{}: {}", path.string(), errno_text(errno));
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get()))
    digest.add(std::span(buffer).first(count));
  QUENCH_CHECK_AS(ErrorCode::io, std::ferror(file.get()) == 0, "{}: {}", path.string(), errno_text(errno));
  return digest.finish();
}

}  // namespace quench::hub
