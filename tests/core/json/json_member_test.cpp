#include "core/json/json_member.h"

#include <gtest/gtest.h>

namespace quench {
namespace {

TEST(JsonMember, IsFoundAtTheEndOfAPath) {
  const Json json = Json::parse(R"({"a": {"b": {"c": 7}, "text": "x"}, "list": [1], "none": null})");
  ASSERT_NE(find_member(json, {"a", "b", "c"}), nullptr);
  EXPECT_EQ(find_member(json, {"a", "b", "c"})->as_int(), 7);
  EXPECT_EQ(find_member(json, {}), &json);
  EXPECT_EQ(find_text(json, {"a", "text"}), "x");
}

TEST(JsonMember, IsNoneWhereThePathEndsEarlyOrAtNull) {
  const Json json = Json::parse(R"({"a": {"text": "x"}, "list": [1], "none": null})");
  EXPECT_EQ(find_member(json, {"absent"}), nullptr);
  EXPECT_EQ(find_member(json, {"a", "text", "deeper"}), nullptr);
  EXPECT_EQ(find_member(json, {"list", "a"}), nullptr);
  EXPECT_EQ(find_member(json, {"none"}), nullptr);
  EXPECT_EQ(find_member(Json(), {"a"}), nullptr);
  EXPECT_EQ(find_text(json, {"list"}), "");
  EXPECT_EQ(find_text(json, {"absent"}), "");
}

}  // namespace
}  // namespace quench
