#pragma once
// Records of a file as JSON, in order.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/json/json.h"

namespace quench {

struct Record {
  Json value{};          // null with a fault
  std::string origin{};  // "file:line" of its start; tables: "file, row N"; 1-based
  std::string fault{};   // error; empty: valid
};

struct RecordSourceOptions {
  // Bytes of text, and 8 for each value of a table; longer records have a fault and are not held in memory.
  std::uint64_t max_record_bytes = std::uint64_t{64} << 20;
  std::function<void()> on_block{};  // before each block is read; nullable; may throw to end the reading
};

class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // False at the end. Throws corrupt if record boundaries cannot be found, and errors of reading.
  virtual bool next(Record& record) = 0;
  // Stored bytes up to the record's end; interpolated for compressed files.
  [[nodiscard]] virtual std::uint64_t consumed() const = 0;
  // Empty: unknown.
  [[nodiscard]] virtual const std::vector<std::string>& columns() const {
    static const std::vector<std::string> none;
    return none;
  }
};

}  // namespace quench
