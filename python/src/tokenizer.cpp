// quench.Tokenizer.

#include "core/system/check.h"
#include "core/system/utf8.h"
#include "data/text/chat_prompt.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "python/src/arrays.h"
#include "python/src/model_handle.h"

namespace quench::python {
namespace {

struct TokenizerHandle {
  std::shared_ptr<const Tokenizer> tokenizer;
};

std::string decode(const TokenizerHandle& self, nb::handle tokens, bool skip_special) {
  const std::vector<std::int32_t> ids = token_list(tokens, INT32_MAX, "tokens");
  return replace_invalid_utf8(self.tokenizer->decode(ids, {.skip_special = skip_special}));
}

std::vector<std::int32_t> encode_chat(const TokenizerHandle& self, nb::handle messages,
                                      const std::string& chat_template, const std::string& date, nb::handle kwargs) {
  Json record = messages.is_none() ? Json() : to_json(messages, "messages");
  if (record.is_array()) record = Json(Json::Object{{"messages", std::move(record)}});
  const ChatPrompt prompt(*self.tokenizer, chat_template, date, to_json(kwargs, "template_kwargs"));
  return prompt.encode(openai_conversation(record));
}

}  // namespace

nb::object tokenizer_object(std::shared_ptr<const Tokenizer> tokenizer) {
  if (!tokenizer) return nb::none();
  return nb::cast(TokenizerHandle{std::move(tokenizer)});
}

void bind_tokenizer(nb::module_& module) {
  nb::class_<TokenizerHandle>(module, "Tokenizer", "Text to token ids and back.")
      .def_static(
          "open",
          [](const std::filesystem::path& path) {
            return TokenizerHandle{without_gil([&] { return std::shared_ptr<const Tokenizer>(load_tokenizer(path)); })};
          },
          nb::arg("path"),
          "Tokenizer of a model folder, a ``tokenizer.json``, a SentencePiece ``tokenizer.model``, or \"bytes\".\n\n"
          "Raises Error for a kind that does not give the ids of its own library.")
      .def(
          "encode",
          [](const TokenizerHandle& self, const std::string& text, bool special) {
            return self.tokenizer->encode(text, {.add_special_tokens = special});
          },
          nb::arg("text"), nb::arg("add_special_tokens") = true,
          "Token ids of ``text``, with the tokenizer's BOS and EOS unless ``add_special_tokens`` is False.")
      .def("decode", decode, nb::arg("tokens"), nb::arg("skip_special") = false,
           "Text of token ids. Bytes that are no UTF-8 become U+FFFD.")
      .def(
          "encode_chat", encode_chat, nb::arg("messages"), nb::arg("chat_template") = "auto", nb::arg("date") = "",
          nb::arg("template_kwargs") = nb::none(),
          "Token ids of a conversation up to where its next answer begins.\n\n"
          "``messages``: ``[{\"role\": \"user\", \"content\": \"...\"}, ...]``, or a record with keys \"messages\" and "
          "\"tools\".")
      .def_prop_ro(
          "vocab_size", [](const TokenizerHandle& self) { return self.tokenizer->vocab_size(); }, "Highest id + 1.")
      .def_prop_ro("bos_id", [](const TokenizerHandle& self) { return self.tokenizer->bos_id(); })
      .def_prop_ro("eos_id", [](const TokenizerHandle& self) { return self.tokenizer->eos_id(); })
      .def_prop_ro("has_chat_template",
                   [](const TokenizerHandle& self) { return self.tokenizer->chat_template().has_value(); });
}

}  // namespace quench::python
