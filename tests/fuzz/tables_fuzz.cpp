// Readers of Parquet and Arrow files on arbitrary bytes: the first byte picks the format, the second the size limit of
// a row. Anything but a quench::Error or records within the limit is a bug. The plug-in of QUENCH_ARROW_LIBRARY reads.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/system/check.h"
#include "core/system/utf8.h"
#include "data/files/table_source.h"
#include "tests/fuzz/scratch_file.h"

namespace {

using namespace quench;

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const RecordSourceOptions options{.max_record_bytes = std::uint64_t{64} << (data[1] % 16)};
  static const testing::ScratchFile scratch("tables");
  const std::filesystem::path& table = scratch.write({data + 2, size - 2});
  const auto open = data[0] % 2 == 0 ? open_parquet_source : open_arrow_source;
  try {
    const auto source = open(table, options);
    for (Record record; source->next(record);) {
      require(record.fault.empty() != record.value.is_null());
      require(find_invalid_utf8(record.value.dump()) == std::string::npos);
    }
    require(source->consumed() == size - 2);
  } catch (const Error&) {
  }
  return 0;
}
