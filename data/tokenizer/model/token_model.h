#pragma once
// Pieces to ids, after pre-tokenization, without special tokens.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace quench {

class TokenModel {
 public:
  // Scratch memory of one thread, for the model that created it.
  class Workspace {
   public:
    virtual ~Workspace() = default;

   protected:
    Workspace() = default;
  };

  TokenModel() = default;
  virtual ~TokenModel() = default;
  TokenModel(const TokenModel&) = delete;
  TokenModel& operator=(const TokenModel&) = delete;

  [[nodiscard]] virtual std::unique_ptr<Workspace> make_workspace() const = 0;
  // Well-formed UTF-8. Thread-safe with one workspace per thread.
  virtual void encode(std::string_view piece, Workspace& workspace, std::vector<std::int32_t>& ids) const = 0;
  // Other bytes.
  virtual void encode_other(std::string_view bytes, Workspace& workspace, std::vector<std::int32_t>& ids) const = 0;
  // Bytes without an exact encoding, in order.
  [[nodiscard]] virtual std::vector<std::uint8_t> missing_bytes() const = 0;
};

}  // namespace quench
