// Readers of text, JSON (lines, arrays) and CSV on arbitrary bytes: the first byte picks text or records, split and
// policy, the second the size limit of a document and the format of records. Anything but a quench::Error or
// well-formed documents is a bug; a whole text file comes back byte for byte.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/system/check.h"
#include "core/system/utf8.h"
#include "data/text/record_kind.h"
#include "data/text/text_format.h"
#include "tests/fuzz/scratch_file.h"

namespace {

using namespace quench;

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const bool text = (data[0] & 1) != 0;
  ReaderOptions options;
  const char* const record_formats[] = {"jsonl", "json", "csv", "tsv"};
  options.format = text_formats().find(text ? "text" : record_formats[data[1] >> 6]);
  options.split = static_cast<TextSplit>((data[0] >> 1) % 3);
  options.on_bad_record = (data[0] & 8) != 0 ? BadRecord::skip : BadRecord::error;
  const std::size_t kind = (data[0] >> 4) % (record_kinds().size() + 1);  // 0: by the first record
  options.record = text || kind == 0 ? nullptr : &record_kinds()[kind - 1];
  options.chat_template = &chat_templates()[data[1] % chat_templates().size()];
  options.marker = "##";
  options.max_document_bytes = std::uint64_t{4} + data[1];
  options.vocab_size = 1000;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  static const testing::ScratchFile scratch("documents");
  const std::filesystem::path& file = scratch.write({data + 2, size - 2});
  try {
    const auto reader = open_document_reader(file, options);
    std::string joined;
    bool open = false;
    Document document;
    while (reader->next(document)) {
      require(document.begins == !open);
      open = !document.ends;
      for (const DocumentPiece& piece : document.pieces) {
        require(find_invalid_utf8(piece.text) == std::string_view::npos);
        require(piece.targets.empty() || piece.targets.size() == piece.ids.size());
        require(std::all_of(piece.ids.begin(), piece.ids.end(), [](std::int32_t id) { return id >= 0 && id < 1000; }));
        if (text) require(piece.text.size() <= options.max_document_bytes);
        joined += piece.text;
      }
    }
    require(!open && reader->consumed() == bytes.size());
    const ReadReport& report = reader->report();
    if (text && options.split == TextSplit::file && report.bad_records == 0 && report.empty == 0)
      require(joined == (bytes.starts_with("\xEF\xBB\xBF") ? bytes.substr(3) : bytes));
  } catch (const Error&) {
  }
  return 0;
}
