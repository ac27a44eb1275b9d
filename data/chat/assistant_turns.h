#pragma once
// Bytes of a rendered conversation that the assistant produces, for templates without {% generation %} marks.

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
  // Ranges that loops over the messages wrote, in order. May be empty: templates need not loop.
  const std::vector<jinja::Rendered::MessageRange>& loops;
  const SpecialTokens& special;
  // The rendering of the first `count` messages; none where the template refuses them.
  std::function<std::optional<std::string>(std::size_t count, bool generation_prompt)> beginning;
  // Text that the generation prompt adds to the messages before an answer; where the template has none, that
  // before the text of an answer.
  std::string generation_prompt{};
  bool has_generation_prompt = true;
};

class AssistantTurns {
 public:
  // Keeps the chat.
  explicit AssistantTurns(RenderedChat chat) : chat_(std::move(chat)) {}

  struct Turn {
    std::vector<jinja::Range> ranges;  // in order, not empty; none: the template writes nothing of the message
    bool ended = true;                 // the last range ends with a special token, or with text of the next turn
  };
  // Message `message`, which is the assistant's. The turn begins where the generation prompt ends and ends with the
  // special token that ends it, whichever message the template writes that token for; texts of other messages in
  // between, such as a tool's result, are left out with what the template puts around them. A turn with an empty text
  // is the token that ends it.
  [[nodiscard]] Turn turn(int message) const;

 private:
  // Marks of one message that delimit its turn.
  struct Own {
    std::size_t first = 0, last = 0;                    // its first and last mark
    std::size_t before = 0, after = std::string::npos;  // the nearest marks of others around those; npos: none
    std::optional<jinja::Range> loop_begin, loop_end;   // the loop's ranges in which its first and last mark stand
    std::size_t loop_stop = 0;                          // end of the last range that the loop wrote for it
  };

  [[nodiscard]] std::optional<Own> own_marks(int message) const;
  [[nodiscard]] std::optional<std::size_t> prompted(int message) const;
  [[nodiscard]] std::size_t begin_of(int message, const Own& own) const;
  [[nodiscard]] std::size_t end_of(int message, const Own& own, std::size_t begin) const;
  [[nodiscard]] std::optional<std::size_t> found_prompt(const Own& own) const;
  [[nodiscard]] std::size_t header_end(std::size_t begin, std::size_t end) const;
  [[nodiscard]] std::size_t without_space(std::size_t begin, std::size_t end) const;
  [[nodiscard]] std::vector<jinja::Range> without_others(int message, jinja::Range turn) const;
  [[nodiscard]] std::optional<jinja::Range> inserted(int message, jinja::Range turn) const;
  void add_end(Turn& turn, std::size_t last_mark) const;

  RenderedChat chat_;
};

}  // namespace quench
