#pragma once
// Command-line options of verbs that read documents from files of text and records.

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
};

// `token_files`: the verb reads those too, and --format may name theirs. `record_option` names what a JSON line holds.
void add_reader_options(const Command& verb, ReaderArguments& arguments, bool token_files = false,
                        const std::string& record_option = "--record");
// The object of --chat-template-kwargs, null for an empty text. Throws bad_config for anything else.
[[nodiscard]] Json chat_template_kwargs(const std::string& text);
// Throws bad_config naming the option's values. The name of a token format leaves the reader's automatic.
[[nodiscard]] ReaderOptions reader_options(const ReaderArguments& arguments, bool token_files = false);

}  // namespace quench
