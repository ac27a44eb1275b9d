#include "core/system/file_type.h"

#include <algorithm>

#include "core/system/check.h"

namespace quench {
namespace {

constexpr std::string_view kLfsVersion = "version https://git-lfs.github.com/spec/";
constexpr std::string_view kLfsHash = "\noid sha256:";
constexpr std::size_t kLfsBytes = 128;  // in which both are sought
constexpr std::string_view kLfsAdvice =
    "a Git LFS pointer, not the file itself; run 'git lfs pull' in the repository it came from";

bool starts_with_nocase(std::string_view text, std::string_view lower) noexcept {
  return text.size() >= lower.size() && std::equal(lower.begin(), lower.end(), text.begin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b);
         });
}

bool is_lfs_pointer(std::string_view front) noexcept {
  return front.starts_with(kLfsVersion) && front.substr(0, kLfsBytes).find(kLfsHash) != std::string_view::npos;
}

bool is_pickle(std::string_view front) noexcept {
  // Protocol number, opcode; 0 instead: a safetensors header of 640 bytes.
  return front.size() > 2 && front[0] == '\x80' && front[1] >= 2 && front[1] <= 5 && front[2] != '\0';
}

}  // namespace

std::string_view recognise_file(std::string_view front) noexcept {
  std::string_view text = front;
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (front.starts_with(kLfsVersion)) return kLfsAdvice;
  if (front.starts_with("PK\x03\x04"))
    return "a zip archive, such as torch.save writes (.pt, .bin); convert it to safetensors first";
  if (is_pickle(front))
    return "a Python pickle, such as old versions of torch.save write; convert it to safetensors first";
  if (front.starts_with("GGUF")) return "a GGUF file; convert it to safetensors first";
  if (front.starts_with("\x89HDF\r\n")) return "an HDF5 file; convert it to safetensors first";
  if (front.starts_with("\x93NUMPY")) return "a NumPy array; convert it to safetensors first";
  if (front.starts_with("\x1F\x8B")) return "gzip-compressed; decompress it first";
  for (const std::string_view start : {"<!doctype", "<html", "<head", "<?xml"})
    if (starts_with_nocase(text, start))
      return "an HTML or XML page, as a failed download leaves; download the file again";
  if (text.starts_with("{\"") || text.starts_with("{\n") || text.starts_with("{\r\n"))
    return "JSON text; to open an index (*.safetensors.index.json), name the folder that holds it";
  return {};
}

void refuse_lfs_pointer(std::string_view name, std::string_view front) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, !is_lfs_pointer(front), "{}: this is {}", name, kLfsAdvice);
}

}  // namespace quench
