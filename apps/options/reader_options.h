#pragma once
// Options of verbs that read documents from text and record files.

#include <memory>
#include <string>

#include "apps/command.h"
#include "data/text/document_reader.h"

namespace quench {

struct ReaderArguments {
  std::string format = "auto";
  std::string split = "file";
  std::string record = "auto";
  std::string field = "text";
  std::vector<std::string> columns;
  std::string on_bad_record = "error";
  std::string chat_template = "auto";
  std::string chat_date;
  std::string chat_template_kwargs;
  std::string train_on = "assistant";
  std::string special_text = "auto";
  std::string answers = "none";
};

// `token_files`: token files are accepted, and --format includes theirs. `record_option` names the content of a JSON
// line.
void add_reader_options(const Command& verb, ReaderArguments& arguments, bool token_files = false,
                        const std::string& record_option = "--record");
// --preference, for verbs that read records of answers.
void add_answers_option(const Command& verb, ReaderArguments& arguments);
// JSON object of --chat-template-kwargs, null for an empty text. Throws bad_config otherwise.
[[nodiscard]] Json chat_template_kwargs(const std::string& text);
// Throws bad_config naming the option's values. For a token format the reader stays automatic.
[[nodiscard]] ReaderOptions reader_options(const ReaderArguments& arguments, bool token_files = false);

}  // namespace quench
