#include "data/text/record_reader.h"

#include <deque>
#include <iterator>

#include "core/json/json.h"
#include "data/text/conversation.h"
#include "data/text/record_columns.h"
#include "data/text/record_kind.h"

namespace quench {
namespace {

class RecordReader final : public DocumentReader {
 public:
  RecordReader(std::unique_ptr<RecordSource> source, const std::string& name, const ReaderOptions& options)
      : source_(std::move(source)),
        name_(name),
        options_(options),
        columns_(options.columns, options.field, source_->columns(), name) {
    if (reads_answers()) options_.record = nullptr;
    if (!reads_answers() && options_.record == nullptr && !columns_.kind().empty() && columns_.kind() != "completion")
      options_.record = record_kinds().find(columns_.kind());
    if (options_.record != nullptr) return;
    has_first_ = next(first_);
    is_empty_ = options_.record == nullptr && report_.bad_records == 0;
    if (!is_empty_) require_kind();
  }

  bool next(Document& document) override {
    if (is_empty_) require_kind();
    if (has_first_) {
      document = std::move(first_);
      has_first_ = false;
      return true;
    }
    if (!answers_.empty()) return take_answer(document);
    Record record;
    while (source_->next(record)) {
      const std::string& origin = record.origin;
      if (!record.fault.empty()) {
        bad_record(options_.on_bad_record, origin, record.fault);
        continue;
      }
      document = Document{};
      try {
        read_record(record.value, document);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::bad_config || error.code() == ErrorCode::unsupported)
          throw Error(error.code(), fmt::format("{}: {}", origin, error.what()), error.where());
        bad_record(options_.on_bad_record, origin, error.what());
        continue;
      }
      for (Document& answer : answers_) answer.origin = origin;
      if (!answers_.empty()) return take_answer(document);
      if (document.pieces.empty()) {
        ++report_.empty;
        continue;
      }
      document.origin = origin;
      ++report_.documents;
      return true;
    }
    columns_.require_seen();
    return false;
  }

  [[nodiscard]] std::uint64_t consumed() const override { return source_->consumed(); }
  [[nodiscard]] bool has_targets() const override { return !is_empty_ && options_.record->has_targets; }
  [[nodiscard]] bool is_empty() const override { return is_empty_; }

 private:
  void require_kind() const {
    QUENCH_CHECK_AS(ErrorCode::corrupt, options_.record != nullptr, "{}: no record that can be used{}", name_,
                    report_.first_bad.empty() ? "" : "; " + report_.first_bad.front());
  }
  [[nodiscard]] bool reads_answers() const { return options_.answers != AnswerRecords::none; }

  bool take_answer(Document& document) {
    document = std::move(answers_.front());
    answers_.pop_front();
    ++report_.documents;
    return true;
  }

  void read_record(Json& record, Document& document) {
    if (!record.is_object()) reject_record(fmt::format("the record is {}, expected object", record.type_name()));
    columns_.apply(record);
    if (reads_answers()) {
      std::vector<Document> answers = answer_documents(record, options_);
      options_.record = record_kinds().find("completion");
      answers_.assign(std::make_move_iterator(answers.begin()), std::make_move_iterator(answers.end()));
      return;
    }
    const RecordKind& kind = options_.record != nullptr ? *options_.record : kind_of(record);
    document.complete = kind.complete;
    document.pieces = kind.read(record, options_);
    options_.record = &kind;
  }

  [[nodiscard]] const RecordKind& kind_of(const Json& record) const {
    if (columns_.kind().empty()) return record_kind_of(record, options_.field);
    // Others are ignored.
    Json pair = Json::object();
    for (const char* key : {"prompt", "completion"})
      if (const Json* value = record.find(key)) pair.set(key, *value);
    return record_kind_of(pair, options_.field);
  }

  std::unique_ptr<RecordSource> source_;
  std::string name_;
  ReaderOptions options_;
  RecordColumns columns_;
  Document first_;
  bool has_first_ = false, is_empty_ = false;
  std::deque<Document> answers_;  // documents of the current record of answers
};

}  // namespace

std::unique_ptr<DocumentReader> open_record_reader(std::unique_ptr<RecordSource> source, const std::string& name,
                                                   const ReaderOptions& options) {
  return std::make_unique<RecordReader>(std::move(source), name, options);
}

}  // namespace quench
