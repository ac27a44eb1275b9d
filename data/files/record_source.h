#pragma once
// Records of one file as JSON values, in file order.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/json/json.h"

namespace quench {

struct Record {
  Json value{};          // any type; null with a fault
  std::string origin{};  // "file:line" of its start; for tables "file, row N", 1-based
  std::string fault{};   // error message; empty: valid
};

struct RecordSourceOptions {
  // Limit of a record's text; longer ones have a fault and are not held in memory.
  std::uint64_t max_record_bytes = std::uint64_t{64} << 20;
};

class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // Next record; false at the end. Throws corrupt if record boundaries cannot be found, and the errors of reading.
  virtual bool next(Record& record) = 0;
  // Bytes of the stored file up to the end of the record; interpolated for compressed files.
  [[nodiscard]] virtual std::uint64_t consumed() const = 0;
  // Columns of every record; empty: unknown.
  [[nodiscard]] virtual const std::vector<std::string>& columns() const {
    static const std::vector<std::string> none;
    return none;
  }
};

}  // namespace quench
