#pragma once
// As in tokenizer.json files.

#include <array>
#include <string_view>

namespace quench {

struct PublishedPattern {
  std::string_view name;
  std::string_view expression;
  bool matches_everything;  // gapless on any text
};

inline constexpr std::array kPublishedPatterns{
    // Radford et al. 2019; also the ByteLevel pre-tokenizer's.
    PublishedPattern{"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", true},
    // Llama 3, GLM-4 and others: cl100k in Hugging Face spelling.
    PublishedPattern{"llama3",
                     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
                     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
                     true},
    // tiktoken's spelling of cl100k.
    PublishedPattern{"cl100k",
                     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
                     R"(\s*[\r\n]|\s+(?!\S)|\s+)",
                     true},
    // Qwen2, Qwen2.5, Qwen3: single digits.
    PublishedPattern{"qwen2",
                     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
                     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
                     true},
    // Qwen3.5: words include marks.
    PublishedPattern{"qwen3.5",
                     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                     R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                     true},
    // GPT-4o and Llama 4: words end at a change from lower to upper case.
    PublishedPattern{"o200k",
                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)"
                     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
                     true},
    // Mistral's Tekken.
    PublishedPattern{"tekken",
                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                     true},
    // DeepSeek-V3: three in sequence.
    PublishedPattern{"digit_groups", R"(\p{N}{1,3})", false},
    PublishedPattern{"han_kana", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", false},
    PublishedPattern{"deepseek_v3",
                     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
                     R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                     false},
    PublishedPattern{"numbers", R"(\p{N}+)", false},
    PublishedPattern{"single_numbers", R"(\p{N})", false},
    // Digits pre-tokenizer, grouped or individual; Unicode 17, as in the Rust library.
    PublishedPattern{"digits", R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}]+)", false},
    PublishedPattern{"individual_digits", R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])", false},
};

}  // namespace quench
