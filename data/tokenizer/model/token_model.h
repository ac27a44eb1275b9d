#pragma once
// What turns a piece of text into ids: the algorithm of a vocabulary, without what comes before (normalization,
// splitting) and after it (special tokens).

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace quench {

class TokenModel {
 public:
  // Reusable memory of one thread, for any number of pieces of the model that made it.
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
  // Appends the ids of a piece of well-formed UTF-8. Thread-safe with one workspace a thread.
  virtual void encode(std::string_view piece, Workspace& workspace, std::vector<std::int32_t>& ids) const = 0;
  // The same for bytes that are not well-formed UTF-8.
  virtual void encode_other(std::string_view bytes, Workspace& workspace, std::vector<std::int32_t>& ids) const = 0;
  // The byte values that cannot be encoded as themselves, in order.
  [[nodiscard]] virtual std::vector<std::uint8_t> missing_bytes() const = 0;
};

}  // namespace quench
