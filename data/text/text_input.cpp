#include "data/text/text_input.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <vector>

#include "core/system/check.h"
#include "core/system/file.h"
#include "data/formats/binary_file.h"

namespace quench {
namespace {

constexpr std::size_t kStoredBlockBytes = std::size_t{1} << 18;

bool begins_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

}  // namespace

// The stored bytes, a block at a time.
class TextInput::Source {
 public:
  explicit Source(const std::filesystem::path& path) {
    if (path != kStandardInput) file_.emplace(path);
    block_.resize(kStoredBlockBytes);
  }

  // What has been read and not been taken; reads on if that is nothing. Empty at the end.
  std::span<const std::byte> peek() {
    if (begin_ == end_) refill();
    return std::span(block_).subspan(begin_, end_ - begin_);
  }
  // The same with at least two bytes, unless there are no more.
  std::span<const std::byte> peek_two() {
    if (end_ - begin_ == 1) {
      block_[0] = block_[begin_];
      begin_ = 0;
      end_ = 1 + fetch(std::span(block_).subspan(1));
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

  std::optional<BinaryFile> file_;  // none: standard input
  std::vector<std::byte> block_;
  std::size_t begin_ = 0, end_ = 0;  // of what is left in the block
  std::uint64_t fetched_ = 0;        // of the file
  std::uint64_t position_ = 0;
};

class TextInput::Unpacker {
 public:
  Unpacker(Source& source, const std::string& name) : source_(source), name_(name) {
    constexpr int kGzipOnly = 16;  // added to the window's bits
    QUENCH_CHECK_AS(ErrorCode::out_of_memory, inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK,
                    "{}: no memory to unpack gzip data", name);
  }
  ~Unpacker() { inflateEnd(&stream_); }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  std::size_t read(std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size() && !ended_) {
      const std::span<const std::byte> packed = source_.peek();
      QUENCH_CHECK_AS(ErrorCode::corrupt, !packed.empty(),
                      "{}: the gzip data ends at byte {}, before the end of its text: the file is cut off", name_,
                      source_.position());
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
      stream_.avail_in = static_cast<uInt>(packed.size());
      const auto room = static_cast<uInt>(std::min<std::size_t>(out.size() - done, std::size_t{1} << 30));
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = room;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      source_.take(packed.size() - stream_.avail_in);
      done += room - stream_.avail_out;
      QUENCH_CHECK_AS(ErrorCode::corrupt, status == Z_OK || status == Z_STREAM_END,
                      "{}: damaged gzip data at byte {}: {}", name_, source_.position(),
                      stream_.msg != nullptr ? stream_.msg : "no reason given");
      if (status == Z_STREAM_END) next_member();
    }
    return done;
  }

 private:
  // Behind a member lies another one, or the end, which may be padded with zeros.
  void next_member() {
    std::span<const std::byte> rest = source_.peek_two();
    if (begins_gzip(rest)) {
      inflateReset(&stream_);
      return;
    }
    ended_ = true;
    for (; !rest.empty(); rest = source_.peek()) {
      const auto other = std::ranges::find_if(rest, [](std::byte byte) { return byte != std::byte{0}; });
      source_.take(static_cast<std::size_t>(other - rest.begin()));
      QUENCH_CHECK_AS(ErrorCode::corrupt, other == rest.end(), "{}: something other than gzip data at byte {}", name_,
                      source_.position());
    }
  }

  Source& source_;
  const std::string& name_;
  z_stream stream_{};
  bool ended_ = false;
};

TextInput::TextInput(const std::filesystem::path& path)
    : name_(path == kStandardInput ? "standard input" : path.string()), source_(std::make_unique<Source>(path)) {
  (void)source_->peek();
  if (begins_gzip(source_->peek_two())) unpacker_ = std::make_unique<Unpacker>(*source_, name_);
}

TextInput::~TextInput() = default;

std::size_t TextInput::read(std::span<std::byte> out) {
  if (unpacker_) return unpacker_->read(out);
  std::size_t done = 0;
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
  return source_->position();
}

std::uint64_t stored_size(const std::filesystem::path& path) {
  return path == kStandardInput ? 0 : BinaryFile(path).size();
}

std::string text_extension(const std::filesystem::path& path) {
  const std::filesystem::path extension = path.extension();
  return extension == ".gz" ? path.stem().extension().string() : extension.string();
}

}  // namespace quench
