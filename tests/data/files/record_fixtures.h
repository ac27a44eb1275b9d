#pragma once
// Records of a file, one text each.

#include <memory>
#include <string>
#include <vector>

#include "data/files/record_source.h"

namespace quench::testing {

// The record in JSON, or "! " and the reason why it cannot be read.
inline std::vector<std::string> records_of(RecordSource& source) {
  std::vector<std::string> records;
  for (Record record; source.next(record);)
    records.push_back(record.fault.empty() ? record.value.dump() : "! " + record.fault);
  return records;
}

}  // namespace quench::testing
