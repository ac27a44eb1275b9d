#pragma once
// The records of one file, as JSON values in the order of the file.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/json/json.h"

namespace quench {

struct Record {
  Json value{};          // of any type; null with a fault
  std::string origin{};  // "file:line" of its start; of tables "file, row N", counted from 1
  std::string fault{};   // the reason why it cannot be read; empty: it can
};

struct RecordSourceOptions {
  // A record whose text is longer has a fault and is not held in memory.
  std::uint64_t max_record_bytes = std::uint64_t{64} << 20;
};

class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // The next record; false at the end. Throws corrupt where what follows cannot be told apart into records, and what
  // reading the file throws.
  virtual bool next(Record& record) = 0;
  // Bytes of the stored file up to the end of the record; where it is packed, in proportion.
  [[nodiscard]] virtual std::uint64_t consumed() const = 0;
  // The columns that every record has; empty where the file does not say.
  [[nodiscard]] virtual const std::vector<std::string>& columns() const {
    static const std::vector<std::string> none;
    return none;
  }
};

}  // namespace quench
