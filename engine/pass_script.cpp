#include "engine/pass_script.h"

#include <cstring>
#include <optional>
#include <type_traits>

#include "autograd/tensor_parallel.h"
#include "core/system/check.h"

namespace quench {
namespace {

enum class Command : char { cache, chunks, decode, pages, token, seen, allowed };

template <class T>
void put(std::string& text, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  text.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <class T>
void put_all(std::string& text, std::span<const T> values) {
  put(text, static_cast<std::int64_t>(values.size()));
  text.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}

  [[nodiscard]] bool ended() const noexcept { return left_.empty(); }
  template <class T>
  [[nodiscard]] T take() {
    T value;
    std::memcpy(&value, bytes(sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  [[nodiscard]] std::vector<T> take_all() {
    std::vector<T> values(static_cast<std::size_t>(take<std::int64_t>()));
    const std::size_t size = values.size() * sizeof(T);
    if (size > 0) std::memcpy(values.data(), bytes(size), size);
    return values;
  }

 private:
  const char* bytes(std::size_t count) {
    QUENCH_CHECK(left_.size() >= count, "a text of passes ends early");
    const char* at = left_.data();
    left_.remove_prefix(count);
    return at;
  }

  std::string_view left_;
};

void run_chunks(EnginePasses& passes, Reader& text) {
  struct Owned {
    std::vector<std::int32_t> tokens, pages;
    std::optional<SamplingRow> sampling;
  };
  std::vector<Owned> owned(static_cast<std::size_t>(text.take<std::int64_t>()));
  std::vector<TokenChunk> chunks;
  for (Owned& one : owned) {
    TokenChunk& chunk = chunks.emplace_back(
        TokenChunk{.slot = text.take<std::int64_t>(), .length = text.take<std::int64_t>(), .tokens = {}, .pages = {}});
    one.tokens = text.take_all<std::int32_t>();
    one.pages = text.take_all<std::int32_t>();
    if (text.take<bool>()) one.sampling = text.take<SamplingRow>();
    chunk.tokens = one.tokens;
    chunk.pages = one.pages;
    chunk.sampling = one.sampling ? &*one.sampling : nullptr;
  }
  (void)passes.run_chunks(chunks, false);
}

}  // namespace

PassScript::PassScript(const autograd::TensorExchange& exchange, std::int64_t slots, std::int64_t pages,
                       std::int64_t slot_pages)
    : exchange_(exchange) {
  put(text_, Command::cache);
  for (const std::int64_t size : {slots, pages, slot_pages}) put(text_, size);
}

void PassScript::send() {
  (void)exchange_.share(std::move(text_));
  text_.clear();
}

void PassScript::run_chunks(std::span<const TokenChunk> chunks) {
  put(text_, Command::chunks);
  put(text_, static_cast<std::int64_t>(chunks.size()));
  for (const TokenChunk& chunk : chunks) {
    put(text_, chunk.slot);
    put(text_, chunk.length);
    put_all(text_, chunk.tokens);
    put_all(text_, chunk.pages);
    put(text_, chunk.sampling != nullptr);
    if (chunk.sampling != nullptr) put(text_, *chunk.sampling);
  }
  send();
}

void PassScript::decode(std::span<const DecodeRow> rows) {
  put(text_, Command::decode);
  put_all(text_, rows);
  send();
}

void PassScript::set_pages(std::int64_t slot, std::int64_t first, std::span<const std::int32_t> pages) {
  put(text_, Command::pages);
  put(text_, slot);
  put(text_, first);
  put_all(text_, pages);
}

void PassScript::set_token(std::int64_t slot, std::int32_t token) {
  put(text_, Command::token);
  put(text_, slot);
  put(text_, token);
}

void PassScript::set_seen(std::int64_t slot, std::span<const std::int32_t> tokens) {
  put(text_, Command::seen);
  put(text_, slot);
  put_all(text_, tokens);
}

void PassScript::set_allowed(std::int64_t slot, std::span<const std::int32_t> words) {
  put(text_, Command::allowed);
  put(text_, slot);
  put_all(text_, words);
}

void PassScript::abandon() const noexcept {
  exchange_.abandon();
}

void follow_passes(const nn::CausalLm& model) {
  QUENCH_CHECK(model.tensor_exchange() != nullptr && model.tensor_exchange()->rank() > 0,
               "follow_passes: rank 0, or a whole model");
  std::optional<EnginePasses> passes;
  for (;;) {
    const std::string received = model.tensor_exchange()->share({});
    if (received.empty()) return;
    Reader text(received);
    while (!text.ended()) {
      const auto command = text.take<Command>();
      if (command == Command::cache) {
        const auto slots = text.take<std::int64_t>(), pages = text.take<std::int64_t>();
        passes.reset();  // its memory is free for the next
        passes.emplace(model, slots, pages, text.take<std::int64_t>(), false);
        continue;
      }
      QUENCH_CHECK(passes.has_value(), "a pass without a cache");
      if (command == Command::chunks) {
        run_chunks(*passes, text);
        continue;
      }
      if (command == Command::decode) {
        (void)passes->decode(text.take_all<DecodeRow>(), false);
        continue;
      }
      const auto slot = text.take<std::int64_t>();
      if (command == Command::pages) {
        const auto first = text.take<std::int64_t>();
        passes->set_pages(slot, first, text.take_all<std::int32_t>());
      } else if (command == Command::token) {
        passes->set_token(slot, text.take<std::int32_t>());
      } else if (command == Command::seen) {
        passes->set_seen(slot, text.take_all<std::int32_t>());
      } else {
        QUENCH_CHECK(command == Command::allowed, "command {} of a pass", static_cast<int>(command));
        passes->set_allowed(slot, text.take_all<std::int32_t>());
      }
    }
  }
}

void end_passes(const autograd::TensorExchange& exchange) {
  (void)exchange.share({});
}

}  // namespace quench
