#include "export/formats/gguf/metadata.h"

#include <bit>
#include <set>
#include <type_traits>

#include "core/system/check.h"

namespace quench {
namespace {

// Type numbers.
constexpr std::uint32_t kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9;

class Bytes {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::endian::native == std::endian::little && std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    text_ += value;
  }
  void pad() { text_.resize(gguf_padded(text_.size())); }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void put(Bytes& out, const GgufValue& value) {
  const auto array = [&](std::uint32_t type, const auto& items, const auto& put_item) {
    out.number(kArray);
    out.number(type);
    out.number(static_cast<std::uint64_t>(items.size()));
    for (const auto& item : items) put_item(item);
  };
  const auto number = [&](auto item) { out.number(item); };
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) {
          out.number(kBool);
          out.number(static_cast<std::uint8_t>(v));
        } else if constexpr (std::is_same_v<T, std::string>) {
          out.number(kString);
          out.text(v);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          array(kString, v, [&](const std::string& item) { out.text(item); });
        } else if constexpr (std::is_same_v<T, std::vector<std::int32_t>>) {
          array(kI32, v, number);
        } else if constexpr (std::is_same_v<T, std::vector<float>>) {
          array(kF32, v, number);
        } else {
          out.number(std::is_same_v<T, std::uint32_t> ? kU32 : std::is_same_v<T, std::int32_t> ? kI32 : kF32);
          out.number(v);
        }
      },
      value);
}

}  // namespace

std::string gguf_head(const std::vector<std::pair<std::string, GgufValue>>& metadata,
                      std::span<const GgufTensor> tensors) {
  Bytes out;
  for (const char c : {'G', 'G', 'U', 'F'}) out.number(c);
  out.number(kGgufVersion);
  out.number(static_cast<std::uint64_t>(tensors.size()));
  out.number(static_cast<std::uint64_t>(metadata.size()));
  std::set<std::string_view> seen;
  for (const auto& [key, value] : metadata) {
    QUENCH_CHECK(seen.insert(key).second, "GGUF key {} twice", key);
    out.text(key);
    put(out, value);
  }
  std::uint64_t offset = 0;
  seen.clear();
  for (const GgufTensor& tensor : tensors) {
    QUENCH_CHECK_AS(ErrorCode::unsupported, tensor.name.size() <= kGgufMaxName && seen.insert(tensor.name).second,
                    "GGUF cannot hold a tensor named {}", tensor.name);
    out.text(tensor.name);
    out.number(static_cast<std::uint32_t>(tensor.dimensions.size()));
    for (const std::uint64_t dimension : tensor.dimensions) out.number(dimension);
    out.number(tensor.type);
    out.number(offset);
    offset += gguf_padded(tensor.bytes);
  }
  out.pad();
  return out.take();
}

}  // namespace quench
