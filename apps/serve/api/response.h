#pragma once
// Answers in the forms of /v1/chat/completions and /v1/completions, whole and as chunks of a stream.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/serve/api/choice.h"
#include "core/json/json.h"

namespace quench::serve {

struct Usage {
  std::int64_t prompt_tokens = 0, completion_tokens = 0;
  std::int64_t cached_tokens = 0;  // prompt tokens found in the cache
};

// Form of one request's answers. Chunks are the text after "data: ".
class ResponseForm {
 public:
  // Request and tokenizer must outlive it. `model`: as served.
  ResponseForm(const ApiRequest& request, const Tokenizer& tokenizer, std::string model);

  [[nodiscard]] Json whole(const std::vector<Choice>& choices, const Usage& usage) const;
  // Chat: the first chunk of a choice, which names the role.
  [[nodiscard]] Json opening(std::size_t choice) const;
  // Pieces of a choice are numbered in order: calls and text offsets continue those before.
  [[nodiscard]] Json chunk(std::size_t choice, const Piece& piece);
  [[nodiscard]] Json usage_chunk(const Usage& usage) const;

 private:
  // Totals of the pieces before.
  struct Place {
    std::size_t calls = 0;
    std::int64_t characters = 0;
  };

  [[nodiscard]] Json head(std::string_view object) const;
  [[nodiscard]] Json chunk_of(Json choice) const;
  [[nodiscard]] Json logprobs(const Piece& piece, std::int64_t& characters) const;
  [[nodiscard]] Json chat_logprobs(const Piece& piece) const;
  [[nodiscard]] Json completion_logprobs(const Piece& piece, std::int64_t& characters) const;
  [[nodiscard]] Json whole_choice(std::size_t index, const Choice& choice) const;
  [[nodiscard]] std::string text_of(std::int32_t token) const;

  const ApiRequest& request_;
  const Tokenizer& tokenizer_;
  std::string model_, id_;
  std::int64_t created_;
  std::vector<Place> places_;
};

}  // namespace quench::serve
