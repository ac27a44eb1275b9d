#pragma once
// Target mask of a rendered conversation (bytes by the assistant), for templates without {% generation %}.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/special_tokens.h"
#include "data/chat/text_marks.h"
#include "data/jinja/jinja_template.h"

namespace quench {

struct RenderedChat {
  std::string_view text;
  const MarkedPlaces& places;
  // Output of loops over messages, in order; may be empty.
  const std::vector<jinja::Rendered::MessageRange>& loops;
  const SpecialTokens& special;
  // First `count` messages, rendered; nullopt if rejected.
  std::function<std::optional<std::string>(std::size_t count, bool generation_prompt)> beginning;
  // Without one in the template: text before an answer's content.
  std::string generation_prompt{};
  bool has_generation_prompt = true;
  bool starts_at_once = false;  // nothing but white space before the first answer's content in its loop output
  // Text before the content of a plain text in place of the answer, in the message's loop output; nullopt: unknown.
  std::function<std::optional<std::string>(std::size_t message)> header{};
};

class AssistantTurns {
 public:
  explicit AssistantTurns(RenderedChat chat) : chat_(std::move(chat)) {}

  struct Turn {
    std::vector<jinja::Range> ranges;  // in order, non-empty; none: not rendered
    bool ended = true;                 // by a special token, or text of the next turn
  };
  // From the end of the generation prompt to the closing special token, even if rendered with another message. Texts of
  // other messages in between (tool results) are excluded with the template text around them. A turn with an empty text
  // is its closing token.
  [[nodiscard]] Turn turn(int message) const;

 private:
  struct Own {
    std::size_t first = 0, last = 0;
    std::size_t before = 0, after = std::string::npos;  // nearest marks of other messages; npos: none
    std::optional<jinja::Range> loop_begin, loop_end;   // loop output of its first and last mark
    std::size_t loop_stop = 0;                          // end of its last loop output range
  };

  [[nodiscard]] std::optional<Own> own_marks(int message) const;
  [[nodiscard]] std::optional<std::size_t> prompted(int message) const;
  [[nodiscard]] std::size_t begin_of(int message, const Own& own) const;
  [[nodiscard]] std::size_t end_of(int message, const Own& own, std::size_t begin) const;
  [[nodiscard]] std::optional<std::size_t> found_prompt(const Own& own) const;
  [[nodiscard]] std::size_t unprompted(int message, const Own& own) const;
  [[nodiscard]] std::size_t header_end(std::size_t begin, std::size_t end) const;
  [[nodiscard]] std::size_t without_space(std::size_t begin, std::size_t end) const;
  [[nodiscard]] std::vector<jinja::Range> without_others(int message, jinja::Range turn) const;
  [[nodiscard]] std::optional<jinja::Range> inserted(int message, jinja::Range turn) const;
  void add_end(Turn& turn, std::size_t last_mark) const;

  RenderedChat chat_;
};

}  // namespace quench
