// Token file readers on arbitrary bytes: the first byte picks the format, and for Megatron-LM the next two bytes say
// how long the index is (the rest is the .bin file). The hash of a Quench shard's trailer is set right so that the
// checks after it are reached. Anything but a quench::Error or a successful read is a bug.

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/system/check.h"
#include "data/formats/shard_format.h"
#include "data/formats/token_source.h"

namespace {

constexpr std::int32_t kVocabSize = 1 << 20;

// A folder in memory where there is one: the readers take paths.
std::filesystem::path scratch_folder() {
  const char* parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  std::string pattern = std::string(parent) + "/quench-fuzz-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  return pattern;
}

const std::filesystem::path& scratch() {
  static const struct Folder {
    std::filesystem::path path = scratch_folder();
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } folder;
  return folder.path;
}

void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void read_everything(const quench::TokenSource& source) {
  std::array<std::int32_t, 512> tokens{};
  std::array<std::uint8_t, 512> mask{};
  std::vector<std::uint64_t> starts;
  for (std::uint64_t begin = 0; begin < source.size(); begin += tokens.size()) {
    const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(tokens.size(), source.size() - begin));
    source.read(begin, std::span(tokens).first(count));
    for (std::size_t i = 0; i < count; ++i)
      if (tokens[i] < 0 || tokens[i] >= kVocabSize) std::abort();
    source.read_target_mask(begin, std::span(mask).first(count));
    const std::size_t known = starts.size();
    source.find_document_starts(begin, std::span(tokens).first(count), starts);
    for (std::size_t i = known; i < starts.size(); ++i)
      if (starts[i] <= begin || starts[i] >= begin + count || (i > known && starts[i] <= starts[i - 1])) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  constexpr std::array<std::string_view, 7> kFormats = {"auto",     "quench",  "llm.c", "llmq",
                                                        "megatron", "nanogpt", "npy"};
  const std::string_view name = kFormats[data[0] % kFormats.size()];
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto path = scratch() / "input.bin";
  if (name == "megatron") {
    std::uint16_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes.remove_prefix(sizeof length);
    write(scratch() / "input.idx", bytes.substr(0, length));
    bytes.remove_prefix(std::min<std::size_t>(length, bytes.size()));
  }
  std::string content(bytes);
  if (name == "quench" && content.size() >= sizeof(quench::ShardTrailer)) {
    char* trailer = content.data() + content.size() - sizeof(quench::ShardTrailer);
    const std::uint64_t hash = XXH3_64bits(trailer, offsetof(quench::ShardTrailer, trailer_hash));
    std::memcpy(trailer + offsetof(quench::ShardTrailer, trailer_hash), &hash, sizeof hash);
    std::memcpy(trailer + offsetof(quench::ShardTrailer, magic), quench::kShardEndMagic.data(), 8);
  }
  write(path, content);
  const std::uint64_t vocab_size = name == "nanogpt" ? 65536 : kVocabSize;
  try {
    const auto source = quench::open_token_file(
        path, {.format = quench::token_formats().find(name), .vocab_size = vocab_size, .eos_id = 0});
    read_everything(*source);
    if (name == "quench") quench::verify_shard(quench::BinaryFile(path));
  } catch (const quench::Error&) {
  }
  if (name == "megatron") std::filesystem::remove(scratch() / "input.idx");
  return 0;
}
