// Types of tensors under each mix, against those of llama.cpp's own code (tests/reference/make_gguf_mixes.py).

#include "export/mixes/tensor_types.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "core/json/json.h"
#include "export/schemes/scheme.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::ElementsAre;

// "Q6_K*3 Q4_K!*2": one type a layer; "!": it needs an importance matrix.
std::vector<std::string> expanded(const std::string& runs) {
  std::vector<std::string> types;
  std::istringstream text(runs);
  for (std::string run; text >> run;) {
    const std::size_t star = run.find('*');
    types.insert(types.end(), std::stoul(run.substr(star + 1)), run.substr(0, star));
  }
  return types;
}

std::int64_t elements_of(std::string_view type) {
  const bool large = type.ends_with("_K") || type.starts_with("TQ") || (type.starts_with("IQ") && type != "IQ4_NL");
  return large ? 256 : 32;
}

std::string written_type(std::string_view type, std::int64_t columns) {
  if (columns % elements_of(type) == 0) return std::string(type);
  const std::string_view other = fallback_type(type);
  return other.empty() || columns % elements_of(other) != 0 ? "F16" : std::string(other);
}

class MixTypes : public ::testing::Test {
 protected:
  // Types by name, "!" after those that need a matrix, or the reference's.
  static std::map<std::string, std::string> types_of(const GgufMix& mix, const Json& model, bool has_matrix) {
    std::vector<MixTensor> tensors;
    const std::int64_t layers = model.at("layers").as_int();
    for (const auto& [name, columns] : model.at("tensors").as_object())
      for (std::int64_t layer = 0; layer < (is_whole(name) ? 1 : layers); ++layer)
        tensors.push_back({place(name, layer), columns.as_int()});
    const std::int64_t heads = model.at("heads").as_int(), key_heads = model.at("key_heads").as_int();
    const MixModel sizes{.layers = layers,
                         .heads_per_key_head = heads / key_heads,
                         .experts = model.at("experts").as_int(),
                         .wide_values = layers == 80 && heads != key_heads};
    const auto types = mix_types(mix, tensors, sizes, has_matrix);
    std::map<std::string, std::string> result;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      std::string type = written_type(types[i], tensors[i].columns);
      if (needs_matrix(mix, tensors[i].name, type)) type += "!";
      result[tensors[i].name] = type;
    }
    return result;
  }

  static std::map<std::string, std::string> expected_types(const Json& row) {
    std::map<std::string, std::string> result;
    for (const auto& [name, runs] : row.as_object()) {
      const std::vector<std::string> types = expanded(runs.as_string());
      for (std::size_t layer = 0; layer < types.size(); ++layer)
        result[place(name, static_cast<std::int64_t>(layer))] = types[layer];
    }
    return result;
  }

  // "NAME: TYPE, expected TYPE"
  static std::vector<std::string> differences(const std::map<std::string, std::string>& types, const Json& row) {
    const auto expected = expected_types(row);
    EXPECT_EQ(types.size(), expected.size());
    std::vector<std::string> lines;
    for (const auto& [name, type] : types)
      if (const auto found = expected.find(name); found == expected.end() || found->second != type)
        lines.push_back(
            fmt::format("{}: {}, expected {}", name, type, found == expected.end() ? "none" : found->second));
    return lines;
  }

  static bool is_whole(const std::string& name) { return name == "token_embd.weight" || name == "output.weight"; }
  static std::string place(const std::string& name, std::int64_t layer) {
    return is_whole(name) ? name : fmt::format("blk.{}.{}", layer, name);
  }

  Json reference_ = Json::parse_file(testing::source_dir() / "tests/reference/gguf_mixes.json");
};

TEST_F(MixTypes, AreThoseOfLlamaCppForEveryModelAndMix) {
  std::size_t compared = 0;
  for (const auto& [name, model] : reference_.at("models").as_object())
    for (const auto& [key, row] : model.at("mixes").as_object()) {
      SCOPED_TRACE(name + " " + key);
      const std::size_t plus = key.find('+');
      const GgufMix* mix = find_gguf_mix(key.substr(0, plus));
      ASSERT_NE(mix, nullptr);
      EXPECT_THAT(differences(types_of(*mix, model, plus != key.npos), row), ElementsAre());
      ++compared;
    }
  EXPECT_GE(compared, 8u * 25u);
}

// The reference has no row where a matrix changes nothing.
TEST_F(MixTypes, DoNotDependOnAMatrixElsewhere) {
  for (const auto& [name, model] : reference_.at("models").as_object())
    for (const auto& [key, row] : model.at("mixes").as_object()) {
      if (key.find('+') != key.npos || model.at("mixes").find(key + "+matrix") != nullptr) continue;
      SCOPED_TRACE(name + " " + key);
      EXPECT_THAT(differences(types_of(*find_gguf_mix(key), model, true), row), ElementsAre());
    }
}

TEST(GgufMixes, UniformOnesHaveOneTypeAndTheHeadOfTheOthers) {
  const std::vector<MixTensor> tensors = {
      {"token_embd.weight", 256}, {"output.weight", 256}, {"blk.0.attn_v.weight", 256}, {"blk.0.ffn_down.weight", 256}};
  const MixModel eight{.layers = 1, .heads_per_key_head = 8, .experts = 8};
  EXPECT_THAT(mix_types(*find_gguf_mix("q4_k"), tensors, eight, true), ElementsAre("Q4_K", "Q6_K", "Q4_K", "Q4_K"));
}

TEST(GgufMixes, EveryNameIsASchemeWhoseTypesAreWritten) {
  for (const GgufMix& mix : gguf_mixes()) {
    SCOPED_TRACE(mix.name);
    const Scheme* scheme = find_scheme(mix.name);
    ASSERT_NE(scheme, nullptr);
    EXPECT_EQ(scheme->mix, &mix);
    std::vector<std::string_view> types = {mix.main, mix.head};
    for (const MixRule& rule : mix.rules) types.push_back(rule.type);
    for (const std::string_view type : types) {
      EXPECT_NE(find_type_scheme(type), nullptr) << type;
      if (const std::string_view other = fallback_type(type); !other.empty()) {
        EXPECT_NE(find_type_scheme(other), nullptr) << other;
      }
    }
  }
}

TEST(GgufMixes, FallBackWhereBlocksDoNotDivideTheWidth) {
  const auto name = [](std::string_view scheme, std::int64_t columns) {
    const Scheme* fits = fitting_scheme(*find_scheme(scheme), columns);
    return fits == nullptr ? "none" : fits->name;
  };
  EXPECT_EQ(name("q4_k", 512), "q4_k");
  EXPECT_EQ(name("q4_k", 576), "q5_0");
  EXPECT_EQ(name("q6_k", 576), "q8_0");
  EXPECT_EQ(name("q4_k", 40), "none");
  EXPECT_EQ(name("q8_0", 40), "none");
  EXPECT_EQ(name("int4_weight_only_g128", 100), "int4_weight_only_g128") << "other schemes have no fallback";
}

TEST(GgufMixes, AMixOfAWholeFileIsNoTypeOfALayer) {
  EXPECT_EQ(require_layer_scheme("q4_0", "rule").name, "q4_0");
  EXPECT_THAT([] { (void)require_layer_scheme("q4_k_m", "--rule"); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr(
                  "--rule 'q4_k_m' is a mix of types for a whole file; for layers, name one type, for example q4_k")));
}

}  // namespace
}  // namespace quench
