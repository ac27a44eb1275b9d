// quench generate --interactive: a conversation on stdin and stdout.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <optional>

#include "apps/options/generate_options.h"
#include "apps/options/reader_options.h"
#include "apps/standard_output.h"
#include "train/generation/answer_text.h"
#include "train/generation/generator.h"

namespace quench {
namespace {

constexpr std::string_view kHelp =
    "A line is a message; one that ends in \\ continues in the next. Ctrl-C ends an answer, a second one the "
    "program.\n  /reset    forget the conversation\n  /exit     leave, as the end of the input does\n  /help     this "
    "text\n";

// Scope in which SIGINT ends the current answer, and a second SIGINT the program.
class AnswerInterrupt {
 public:
  AnswerInterrupt() {
    requested_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { requested_ = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &action, &previous_);
  }
  ~AnswerInterrupt() { ::sigaction(SIGINT, &previous_, nullptr); }
  AnswerInterrupt(const AnswerInterrupt&) = delete;
  AnswerInterrupt& operator=(const AnswerInterrupt&) = delete;

  [[nodiscard]] static bool requested() noexcept { return requested_ != 0; }

 private:
  static inline volatile sig_atomic_t requested_ = 0;
  struct sigaction previous_ {};
};

constexpr std::size_t kMaxMessageBytes = std::size_t{4} << 20;

// Like std::getline, of at most `limit` bytes; a longer line is skipped.
bool read_line(std::string& line, std::size_t limit, bool& too_long) {
  constexpr int kEnd = std::char_traits<char>::eof();
  std::streambuf& input = *std::cin.rdbuf();
  line.clear();
  int c = input.sbumpc();
  if (c == kEnd) return false;
  for (; c != kEnd && c != '\n'; c = input.sbumpc()) {
    if (line.size() < limit)
      line += static_cast<char>(c);
    else
      too_long = true;
  }
  return true;
}

// One message; absent at the end of input.
std::optional<std::string> read_message(bool ask) {
  std::string message, line;
  bool more = true, too_long = false;
  for (bool first = true; more; first = false) {
    if (ask) std::printf("%s", first ? "> " : ". ");
    std::fflush(stdout);
    if (!read_line(line, kMaxMessageBytes - message.size(), too_long)) {
      if (ask) std::printf("\n");
      return first ? std::nullopt : std::optional(message);
    }
    more = line.ends_with('\\');
    if (more) line.back() = '\n';
    message += line;
  }
  if (!too_long) return message;
  constexpr const char* kReason = "a message of more than 4 MiB";
  QUENCH_CHECK_AS(ErrorCode::bad_config, ask, "{}", kReason);
  std::fprintf(stderr, "%s\n", kReason);
  return "";
}

// Conversation as the token prefix of the next answer.
class History {
 public:
  History(const GenerateOptions& o, const Tokenizer& tokenizer, const ChatPrompt& chat)
      : options_(o), tokenizer_(tokenizer), chat_(chat) {
    reset();
  }

  void reset() {
    conversation_ = begin_conversation(options_);
    text_.clear();
  }
  // Token prefix with one more message.
  [[nodiscard]] std::vector<std::int32_t> with(const std::string& message) const {
    if (!chat_.has_template()) return tokenizer_.encode(text_ + message, {});
    Conversation conversation = conversation_;
    add_message(conversation, "user", message);
    return chat_.encode(conversation);
  }
  void add(const std::string& message, const std::string& answer) {
    text_ += message + answer;
    add_message(conversation_, "user", message);
    // Empty answers (interrupted at once) are dropped: templates reject them.
    if (answer.empty())
      conversation_.messages.pop_back();
    else
      add_message(conversation_, "assistant", answer);
  }

 private:
  const GenerateOptions& options_;
  const Tokenizer& tokenizer_;
  const ChatPrompt& chat_;
  Conversation conversation_;
  std::string text_;  // without a chat template
};

}  // namespace

void generate_interactively(GenerateOptions& o) {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatPrompt> chat;
  const Model loaded = open_generating_model(o, [&](const Model& model) {
    tokenizer = model.require_tokenizer(o.tokenizer);
    chat.emplace(*tokenizer, o.chat_template, o.chat_date, chat_template_kwargs(o.chat_template_kwargs));
    QUENCH_CHECK_AS(ErrorCode::bad_config, chat->has_template() || o.system.empty(),
                    "--system needs a chat template, and the tokenizer has none: name one with --chat-template");
    return std::function<void()>();
  });
  set_stop_tokens(o, loaded, *tokenizer, &*chat);
  print_unchanged();
  const bool ask = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  if (!chat->has_template())
    std::fprintf(stderr, "the model has no chat template: it continues the text (--chat-template names one)\n");
  if (ask) std::fputs(kHelp.data(), stderr);

  History history(o, *tokenizer, *chat);
  GenerationSession session(loaded.model());
  while (const auto message = read_message(ask)) {
    if (message->empty()) continue;
    if (*message == "/exit") break;
    if (*message == "/help") {
      std::fputs(kHelp.data(), stderr);
      continue;
    }
    if (*message == "/reset") {
      history.reset();
      continue;
    }
    const std::vector<std::int32_t> ids = history.with(*message);
    const std::int64_t room = room_behind(loaded.config(), ids.size());
    if (room == 0) {
      std::fprintf(stderr, "the conversation of %zu tokens fills the model's context of %lld: /reset clears it\n",
                   ids.size(), static_cast<long long>(loaded.config().context_length()));
      if (!ask)
        QUENCH_FAIL(ErrorCode::bad_config, "the conversation does not fit into the model's context of {} tokens",
                    loaded.config().context_length());
      continue;
    }
    // Default answer length with a chat template: the rest of the context.
    o.generation.max_new_tokens = std::min(o.max_new_tokens.value_or(chat->has_template() ? room : kUsualTokens), room);
    AnswerText answer(*tokenizer, {.skip_special = true}, ids, o.stop);
    const auto show = [](const std::string& piece) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      return std::fflush(stdout) == 0;  // a closed pipe ends generation
    };
    bool open = true;
    {
      const AnswerInterrupt interrupt;
      (void)session.generate(ids, o.generation, [&](std::int32_t token) {
        open = show(answer.push(token));
        return open && !answer.found() && !AnswerInterrupt::requested();
      });
    }
    open = show(answer.finish() + "\n") && open;
    if (!open) break;
    history.add(*message, answer.text());
  }
}

}  // namespace quench
