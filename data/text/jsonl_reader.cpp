#include "data/text/jsonl_reader.h"

#include "core/json/json.h"
#include "data/text/conversation.h"
#include "data/text/line_reader.h"
#include "data/text/record_kind.h"
#include "data/text/text_input.h"

namespace quench {
namespace {

class JsonlReader final : public DocumentReader {
 public:
  JsonlReader(const std::filesystem::path& path, const ReaderOptions& options)
      : input_(path), lines_(input_, options.max_document_bytes), options_(options) {
    if (options_.record != nullptr) return;
    has_first_ = next(first_);
    QUENCH_CHECK_AS(ErrorCode::corrupt, options_.record != nullptr, "{}: no record that can be used{}", path.string(),
                    report_.first_bad.empty() ? "" : "; " + report_.first_bad.front());
  }

  bool next(Document& document) override {
    if (has_first_) {
      document = std::move(first_);
      has_first_ = false;
      return true;
    }
    while (lines_.next()) {
      const std::string origin = fmt::format("{}:{}", input_.name(), lines_.number());
      if (lines_.too_long()) {
        bad_record(options_.on_bad_record, origin,
                   fmt::format("a line of more than {} bytes", options_.max_document_bytes));
        continue;
      }
      if (lines_.text().find_first_not_of(" \t\r") == std::string::npos) continue;
      document = Document{};
      document.origin = origin;
      try {
        read_record(origin, document);
      } catch (const Error& error) {
        // Not the record's fault.
        if (error.code() == ErrorCode::bad_config || error.code() == ErrorCode::unsupported)
          throw Error(error.code(), fmt::format("{}: {}", origin, error.what()), error.where());
        bad_record(options_.on_bad_record, origin, reason_of(error, origin));
        continue;
      }
      if (document.pieces.empty()) {
        ++report_.empty;
        continue;
      }
      ++report_.documents;
      return true;
    }
    return false;
  }

  [[nodiscard]] std::uint64_t consumed() const override { return lines_.consumed(); }
  [[nodiscard]] bool has_targets() const override { return options_.record->has_targets; }

 private:
  void read_record(const std::string& origin, Document& document) {
    if (lines_.number() == 1 && lines_.text() == "[")
      reject_record("the file is one JSON array; write a record a line instead (jq -c '.[]' FILE)");
    const Json record = Json::parse(lines_.text(), {.max_bytes = lines_.text().size(), .source = origin});
    if (!record.is_object()) reject_record(fmt::format("the record is {}, expected object", record.type_name()));
    const RecordKind& kind = options_.record != nullptr ? *options_.record : record_kind_of(record, options_.field);
    document.complete = kind.complete;
    document.pieces = kind.read(record, options_);
    options_.record = &kind;
  }

  // The JSON parser says "<origin>:1:<column>: what", as if the record were a file of its own.
  static std::string reason_of(const Error& error, const std::string& origin) {
    std::string text = error.what();
    const std::string prefix = origin + ":1:";
    return text.starts_with(prefix) ? "column " + text.substr(prefix.size()) : text;
  }

  TextInput input_;
  LineReader lines_;
  ReaderOptions options_;
  Document first_;
  bool has_first_ = false;
};

}  // namespace

std::unique_ptr<DocumentReader> open_jsonl_reader(const std::filesystem::path& path, const ReaderOptions& options) {
  return std::make_unique<JsonlReader>(path, options);
}

}  // namespace quench
