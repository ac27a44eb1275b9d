#include <algorithm>
#include <array>

#include "export/mixes/mix.h"

namespace quench {
namespace {

using enum TensorRole;

// Attention's output in models of eight experts.
constexpr MixRule kOutputOfEight = {attention_output, kEightExperts, "Q5_K"};

constexpr std::array kQ2K = {MixRule{value, kGrouped4, "Q4_K"}, MixRule{value, kAlways, "Q3_K"},
                             MixRule{down, kAlways, "Q3_K"}, kOutputOfEight,
                             MixRule{attention_output, kAlways, "Q3_K"}};
constexpr std::array kQ2KS = {MixRule{value, kGrouped4, "Q4_K"}, MixRule{down, kFirst8th, "Q4_K"}};
constexpr std::array kQ3KS = {kOutputOfEight};
constexpr std::array kQ3KM = {MixRule{value, kFirstTwo, "Q5_K"},
                              MixRule{value, kAlways, "Q4_K"},
                              MixRule{down, kFirst16th, "Q5_K"},
                              MixRule{down, kAlways, "Q4_K"},
                              kOutputOfEight,
                              MixRule{attention_output, kAlways, "Q4_K"}};
constexpr std::array kQ3KL = {MixRule{value, kAlways, "Q5_K"}, MixRule{down, kAlways, "Q5_K"},
                              MixRule{attention_output, kEightExperts, "Q3_K"},
                              MixRule{attention_output, kAlways, "Q5_K"}};
constexpr std::array kQ4KS = {MixRule{value, kFirstFour, "Q5_K"}, MixRule{down, kFirst8th, "Q5_K"}, kOutputOfEight};
constexpr std::array kQ4KM = {MixRule{value, kMoreBits, "Q6_K"}, MixRule{down, kMoreBits, "Q6_K"}, kOutputOfEight};
constexpr std::array kQ5KM = {MixRule{value, kMoreBits, "Q6_K"}, MixRule{down, kMoreBits, "Q6_K"}};
constexpr std::array kQ40 = {MixRule{down, kMatrix | kFirst8th, "Q4_1"}};
constexpr std::array kQ50 = {MixRule{down, kMatrix | kFirst8th, "Q5_1"}};
constexpr std::array kIq4 = {MixRule{value, kGrouped4, "Q5_K"}, MixRule{down, kNoMatrix | kFirst8th, "Q5_K"},
                             kOutputOfEight};
constexpr std::array kIq3Xxs = {MixRule{value, kGrouped4, "Q4_K"},
                                MixRule{value, kNoMatrix, "IQ3_S"},
                                MixRule{key, kAlways, "IQ2_S"},
                                MixRule{query, kAlways, "IQ2_S"},
                                MixRule{down, kNoMatrix | kFirst8th, "Q4_K"},
                                MixRule{down, kNoMatrix, "Q3_K"},
                                kOutputOfEight,
                                MixRule{attention_output, kAlways, "IQ3_S"}};
constexpr std::array kIq3Xs = {MixRule{value, kGrouped4, "Q4_K"},  MixRule{key, kAlways, "IQ3_XXS"},
                               MixRule{query, kAlways, "IQ3_XXS"}, MixRule{gate, kMiddle, "IQ3_XXS"},
                               MixRule{up, kMiddle, "IQ3_XXS"},    kOutputOfEight};
constexpr std::array kIq3S = {MixRule{value, kGrouped4, "Q4_K"}, kOutputOfEight};
constexpr std::array kIq3M = {MixRule{value, kAlways, "Q4_K"}, MixRule{down, kFirst8th, "Q4_K"},
                              MixRule{down, kEightExperts | kMoreBits, "Q4_K"}, kOutputOfEight,
                              MixRule{attention_output, kAlways, "Q4_K"}};
// IQ2_XXS and IQ2_XS.
constexpr std::array kIq2Small = {MixRule{value, kGrouped4, "Q4_K"}, MixRule{value, kFourExperts, "Q4_K"},
                                  MixRule{value, kAlways, "Q2_K"},   MixRule{key, kEightExperts, "Q4_K"},
                                  MixRule{down, kFirst8th, "Q2_K"},  kOutputOfEight};
// IQ2_S and IQ2_M.
constexpr std::array kIq2Large = {MixRule{value, kGrouped4, "Q4_K"},          MixRule{value, kFourExperts, "Q4_K"},
                                  MixRule{value, kAlways, "IQ3_S"},           MixRule{key, kEightExperts, "Q4_K"},
                                  MixRule{down, kFirst8th, "IQ3_S"},          kOutputOfEight,
                                  MixRule{attention_output, kAlways, "IQ3_S"}};

constexpr GgufMix plain(std::string_view name, std::string_view title, std::uint32_t file_type, std::string_view main,
                        std::span<const MixRule> rules = {}) {
  return {
      .name = name, .title = title, .file_type = file_type, .main = main, .head = "Q6_K", .table = {}, .rules = rules};
}

// Every layer of one type.
constexpr GgufMix uniform(std::string_view name, std::string_view title, std::uint32_t file_type,
                          std::string_view main) {
  GgufMix mix = plain(name, title, file_type, main);
  mix.exceptions = false;
  return mix;
}

constexpr GgufMix iq3_xxs() {
  GgufMix mix = plain("iq3_xxs", "IQ3_XXS", 23, "IQ3_XXS", kIq3Xxs);
  mix.head = "Q5_K";
  mix.table = "IQ3_S";
  return mix;
}

constexpr GgufMix iq2(std::string_view name, std::string_view title, std::uint32_t file_type, std::string_view main,
                      std::string_view table, std::span<const MixRule> rules) {
  return {.name = name,
          .title = title,
          .file_type = file_type,
          .main = main,
          .head = "Q5_K",
          .table = table,
          .rules = rules,
          .exceptions = false,
          .counts_down = true};
}

constexpr GgufMix q8_0() {
  GgufMix mix = plain("q8_0", "Q8_0", 7, "Q8_0");
  mix.head = "Q8_0";
  return mix;
}

constexpr GgufMix ternary(std::string_view name, std::string_view type, std::uint32_t file_type) {
  GgufMix mix = plain(name, type, file_type, type);
  mix.table = "Q4_K";
  return mix;
}

constexpr GgufMix q2_k_s() {
  GgufMix mix = plain("q2_k_s", "Q2_K_S", 21, "Q2_K", kQ2KS);
  mix.needs_matrix = true;
  return mix;
}

constexpr std::array kMixes = {
    q8_0(),
    plain("q6_k", "Q6_K", 18, "Q6_K"),
    plain("q5_k_m", "Q5_K_M", 17, "Q5_K", kQ5KM),
    plain("q5_k_s", "Q5_K_S", 16, "Q5_K"),
    uniform("q5_k", "Q5_K", 16, "Q5_K"),
    plain("q5_1", "Q5_1", 9, "Q5_1"),
    plain("q5_0", "Q5_0", 8, "Q5_0", kQ50),
    plain("q4_k_m", "Q4_K_M", 15, "Q4_K", kQ4KM),
    plain("q4_k_s", "Q4_K_S", 14, "Q4_K", kQ4KS),
    uniform("q4_k", "Q4_K", 14, "Q4_K"),
    plain("q4_1", "Q4_1", 3, "Q4_1"),
    plain("q4_0", "Q4_0", 2, "Q4_0", kQ40),
    plain("iq4_nl", "IQ4_NL", 25, "IQ4_NL", kIq4),
    plain("iq4_xs", "IQ4_XS", 30, "IQ4_XS", kIq4),
    plain("q3_k_l", "Q3_K_L", 13, "Q3_K", kQ3KL),
    plain("q3_k_m", "Q3_K_M", 12, "Q3_K", kQ3KM),
    plain("q3_k_s", "Q3_K_S", 11, "Q3_K", kQ3KS),
    uniform("q3_k", "Q3_K", 11, "Q3_K"),
    plain("iq3_m", "IQ3_M", 27, "IQ3_S", kIq3M),
    plain("iq3_s", "IQ3_S", 26, "IQ3_S", kIq3S),
    plain("iq3_xs", "IQ3_XS", 22, "IQ3_S", kIq3Xs),
    iq3_xxs(),
    plain("q2_k", "Q2_K", 10, "Q2_K", kQ2K),
    q2_k_s(),
    iq2("iq2_m", "IQ2_M", 29, "IQ2_S", "IQ3_S", kIq2Large),
    iq2("iq2_s", "IQ2_S", 28, "IQ2_XS", "IQ3_S", kIq2Large),
    iq2("iq2_xs", "IQ2_XS", 20, "IQ2_XS", "Q2_K", kIq2Small),
    iq2("iq2_xxs", "IQ2_XXS", 19, "IQ2_XXS", "Q2_K", kIq2Small),
    ternary("tq2_0", "TQ2_0", 37),
    ternary("tq1_0", "TQ1_0", 36),
};

}  // namespace

std::span<const GgufMix> gguf_mixes() {
  return kMixes;
}

const GgufMix* find_gguf_mix(std::string_view name) {
  const auto* found = std::ranges::find(kMixes, name, &GgufMix::name);
  return found == kMixes.end() ? nullptr : found;
}

}  // namespace quench
