#include "data/files/text_input.h"

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <vector>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/file_type.h"
#include "data/formats/binary_file.h"

namespace quench {
namespace {

constexpr std::size_t kStoredBlockBytes = std::size_t{1} << 18;

constexpr std::size_t kMagicBytes = 128;
constexpr std::size_t kPeekedBytes = 65536;

std::string_view characters(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool begins_gzip(std::span<const std::byte> bytes) {
  return characters(bytes).starts_with("\x1F\x8B");
}

bool begins_zstd(std::span<const std::byte> bytes) {
  const std::string_view start = characters(bytes);
  if (start.size() < 4) return false;
  const bool skippable = (static_cast<unsigned char>(start[0]) & 0xF0) == 0x50 && start.substr(1, 3) == "\x2A\x4D\x18";
  return skippable || start.starts_with("\x28\xB5\x2F\xFD");
}

}  // namespace

// Stored bytes, in blocks.
class TextInput::Source {
 public:
  explicit Source(const std::filesystem::path& path) {
    if (path != kStandardInput) file_.emplace(path);
    block_.resize(kStoredBlockBytes);
  }

  // Reads a block if there are none; empty at the end.
  std::span<const std::byte> peek() {
    if (begin_ == end_) refill();
    return std::span(block_).subspan(begin_, end_ - begin_);
  }
  // At least so many, fewer only at the end.
  std::span<const std::byte> peek(std::size_t least) {
    if (end_ - begin_ < least && begin_ > 0) {
      std::copy(block_.begin() + static_cast<std::ptrdiff_t>(begin_),
                block_.begin() + static_cast<std::ptrdiff_t>(end_), block_.begin());
      end_ -= begin_;
      begin_ = 0;
    }
    while (end_ - begin_ < least) {
      const std::size_t count = fetch(std::span(block_).subspan(end_));
      if (count == 0) break;
      end_ += count;
    }
    return peek();
  }
  void take(std::size_t bytes) {
    begin_ += bytes;
    position_ += bytes;
  }
  [[nodiscard]] std::uint64_t position() const { return position_; }

 private:
  void refill() {
    begin_ = 0;
    end_ = fetch(block_);
  }

  std::size_t fetch(std::span<std::byte> out) {
    if (file_) {
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), file_->size() - fetched_));
      if (count > 0) file_->read(fetched_, out.first(count));
      fetched_ += count;
      return count;
    }
    while (true) {
      const ssize_t count = ::read(STDIN_FILENO, out.data(), out.size());
      if (count < 0 && errno == EINTR) continue;
      QUENCH_CHECK_AS(ErrorCode::io, count >= 0, "cannot read standard input: {}", errno_text(errno));
      return static_cast<std::size_t>(count);
    }
  }

  std::optional<BinaryFile> file_;  // or standard input
  std::vector<std::byte> block_;
  std::size_t begin_ = 0, end_ = 0;  // unconsumed
  std::uint64_t fetched_ = 0;
  std::uint64_t position_ = 0;
};

class TextInput::Unpacker {
 public:
  virtual ~Unpacker() = default;
  virtual std::size_t read(std::span<std::byte> out) = 0;

 protected:
  Unpacker(Source& source, const std::string& name, std::string_view format)
      : source_(source), name_(name), format_(format) {}

  // Throws corrupt at the end.
  std::span<const std::byte> packed() {
    const std::span<const std::byte> bytes = source_.peek();
    QUENCH_CHECK_AS(ErrorCode::corrupt, !bytes.empty(),
                    "{}: the {} data ends at byte {}, before the end of its text: the file is truncated", name_,
                    format_, source_.position());
    return bytes;
  }
  void require_sound(bool sound, std::string_view reason) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, sound, "{}: damaged {} data at byte {}: {}", name_, format_, source_.position(),
                    reason);
  }
  // Zero padding only.
  void require_end() {
    for (auto rest = source_.peek(); !rest.empty(); rest = source_.peek()) {
      const auto other = std::ranges::find_if(rest, [](std::byte byte) { return byte != std::byte{0}; });
      source_.take(static_cast<std::size_t>(other - rest.begin()));
      QUENCH_CHECK_AS(ErrorCode::corrupt, other == rest.end(), "{}: something other than {} data at byte {}", name_,
                      format_, source_.position());
    }
  }

  Source& source_;
  const std::string& name_;
  std::string_view format_;
  bool ended_ = false;
};

class TextInput::GzipUnpacker final : public Unpacker {
 public:
  GzipUnpacker(Source& source, const std::string& name) : Unpacker(source, name, "gzip") {
    constexpr int kGzipOnly = 16;  // with the window bits
    QUENCH_CHECK_AS(ErrorCode::out_of_memory, inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK,
                    "{}: no memory to unpack gzip data", name);
  }
  ~GzipUnpacker() override { inflateEnd(&stream_); }
  GzipUnpacker(const GzipUnpacker&) = delete;
  GzipUnpacker& operator=(const GzipUnpacker&) = delete;

  std::size_t read(std::span<std::byte> out) override {
    std::size_t done = 0;
    while (done < out.size() && !ended_) {
      const std::span<const std::byte> packed = this->packed();
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
      stream_.avail_in = static_cast<uInt>(packed.size());
      const auto room = static_cast<uInt>(std::min<std::size_t>(out.size() - done, std::size_t{1} << 30));
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = room;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      source_.take(packed.size() - stream_.avail_in);
      done += room - stream_.avail_out;
      require_sound(status == Z_OK || status == Z_STREAM_END, stream_.msg != nullptr ? stream_.msg : "no reason given");
      if (status == Z_STREAM_END) next_member();
    }
    return done;
  }

 private:
  // Another member, or the end, possibly zero-padded.
  void next_member() {
    if (begins_gzip(source_.peek(2))) {
      inflateReset(&stream_);
      return;
    }
    ended_ = true;
    require_end();
  }

  z_stream stream_{};
};

class TextInput::ZstdUnpacker final : public Unpacker {
 public:
  ZstdUnpacker(Source& source, const std::string& name) : Unpacker(source, name, "zstd"), stream_(ZSTD_createDCtx()) {
    QUENCH_CHECK_AS(ErrorCode::out_of_memory, stream_ != nullptr, "{}: no memory to unpack zstd data", name);
  }
  ~ZstdUnpacker() override { ZSTD_freeDCtx(stream_); }
  ZstdUnpacker(const ZstdUnpacker&) = delete;
  ZstdUnpacker& operator=(const ZstdUnpacker&) = delete;

  std::size_t read(std::span<std::byte> out) override {
    std::size_t done = 0;
    while (done < out.size() && !ended_) {
      // Output may be pending.
      const std::span<const std::byte> rest = source_.peek();
      ZSTD_inBuffer input{rest.data(), rest.size(), 0};
      ZSTD_outBuffer output{out.data(), out.size(), done};
      const std::size_t status = ZSTD_decompressStream(stream_, &output, &input);
      source_.take(input.pos);
      if (status != 0 && output.pos == done) (void)packed();
      done = output.pos;
      QUENCH_CHECK_AS(ErrorCode::unsupported, ZSTD_getErrorCode(status) != ZSTD_error_frameParameter_windowTooLarge,
                      "{}: compressed with a window above 128 MiB (zstd --long=28 or more); decompress it, or compress "
                      "it with a smaller window",
                      name_);
      require_sound(ZSTD_isError(status) == 0, ZSTD_getErrorName(status));
      if (status == 0) next_frame();
    }
    return done;
  }

 private:
  // Another frame, or the end.
  void next_frame() {
    if (begins_zstd(source_.peek(4))) return;
    ended_ = true;
    require_end();
  }

  ZSTD_DCtx* stream_;
};

TextInput::TextInput(const std::filesystem::path& path, std::function<void()> on_block)
    : name_(path == kStandardInput ? "standard input" : path.string()),
      source_(std::make_unique<Source>(path)),
      on_block_(std::move(on_block)) {
  const std::span<const std::byte> start = source_->peek(kMagicBytes);
  if (begins_gzip(start)) unpacker_ = std::make_unique<GzipUnpacker>(*source_, name_);
  if (begins_zstd(start)) unpacker_ = std::make_unique<ZstdUnpacker>(*source_, name_);
  const std::string_view packer = foreign_packer(characters(start));
  QUENCH_CHECK_AS(ErrorCode::unsupported, packer.empty(),
                  "{}: compressed by {}, which is not supported; decompress it, or use gzip or zstd", name_, packer);
  refuse_lfs_pointer(name_, characters(start));
}

TextInput::~TextInput() = default;

std::string_view TextInput::peek() {
  if (!unpacker_) return characters(source_->peek(kPeekedBytes));
  if (peeked_.empty()) {
    peeked_.resize(kPeekedBytes);
    peeked_.resize(unpacker_->read(std::as_writable_bytes(std::span(peeked_))));
  }
  return peeked_;
}

std::size_t TextInput::read(std::span<std::byte> out) {
  if (on_block_) on_block_();
  std::size_t done = 0;
  if (peeked_at_ < peeked_.size()) {
    done = std::min(out.size(), peeked_.size() - peeked_at_);
    std::ranges::copy(std::as_bytes(std::span(peeked_).subspan(peeked_at_, done)), out.begin());
    peeked_at_ += done;
  }
  if (unpacker_) return done + unpacker_->read(out.subspan(done));
  while (done < out.size()) {
    const std::span<const std::byte> ready = source_->peek();
    if (ready.empty()) break;
    const std::size_t count = std::min(ready.size(), out.size() - done);
    std::ranges::copy(ready.first(count), out.begin() + static_cast<std::ptrdiff_t>(done));
    source_->take(count);
    done += count;
  }
  return done;
}

std::uint64_t TextInput::position() const noexcept {
  return peeked_at_ < peeked_.size() ? 0 : source_->position();
}

char line_end_of(std::string_view start) {
  return start.find('\n') == start.npos && start.find('\r') != start.npos ? '\r' : '\n';
}

std::uint64_t stored_size(const std::filesystem::path& path) {
  return path == kStandardInput ? 0 : BinaryFile(path).size();
}

std::string_view foreign_packer(std::string_view start) {
  if (start.starts_with("BZh") && start.size() >= 8 && start.substr(4, 4) == "1AY&") return "bzip2";
  if (start.starts_with(std::string_view("\xFD"
                                         "7zXZ\0",
                                         6)))
    return "xz";
  if (start.starts_with("PK\x03\x04")) return "zip";
  if (start.starts_with("7z\xBC\xAF\x27\x1C")) return "7-Zip";
  if (start.starts_with("\x04\x22\x4D\x18")) return "lz4";
  return {};
}

std::string text_extension(const std::filesystem::path& path) {
  const std::filesystem::path extension = path.extension();
  const bool packed = extension == ".gz" || extension == ".zst" || extension == ".GZ" || extension == ".ZST";
  std::string text = packed ? path.stem().extension().string() : extension.string();
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace quench
