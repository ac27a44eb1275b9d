#include "core/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <clocale>
#include <limits>

#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Json parse_config(std::string_view text) {
  Json::ParseOptions options;
  options.allow_comments = true;
  options.source = "run.json";
  return Json::parse(text, options);
}

// The message of the error that parsing raises; empty if it raises none.
std::string parse_error(std::string_view text, const Json::ParseOptions& options = {}) {
  try {
    (void)Json::parse(text, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    return error.what();
  }
  return "";
}

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JsonParse, ReadsEveryType) {
  const Json json =
      Json::parse(R"({"n": null, "t": true, "f": false, "i": -7, "d": 1.5, "s": "x", "a": [1, 2], "o": {}})");
  EXPECT_TRUE(json.at("n").is_null());
  EXPECT_TRUE(json.at("t").as_bool());
  EXPECT_FALSE(json.at("f").as_bool());
  EXPECT_EQ(json.at("i").as_int(), -7);
  EXPECT_EQ(json.at("d").as_double(), 1.5);
  EXPECT_EQ(json.at("s").as_string(), "x");
  EXPECT_EQ(json.at("a").as_array().size(), 2u);
  EXPECT_TRUE(json.at("o").as_object().empty());
}

TEST(JsonParse, ScalarsMayStandAlone) {
  EXPECT_EQ(Json::parse(" 12 ").as_int(), 12);
  EXPECT_EQ(Json::parse("\"a\"").as_string(), "a");
  EXPECT_TRUE(Json::parse("null").is_null());
}

TEST(JsonParse, KeepsMembersInFileOrder) {
  const Json json = Json::parse(R"({"z": 1, "a": 2, "m": 3})");
  std::string order;
  for (const auto& [key, value] : json.as_object()) order += key;
  EXPECT_EQ(order, "zam");
}

TEST(JsonParse, GivesTheLineAndColumnOfEveryValue) {
  const Json json = parse_config(
      "{\n"
      "  \"a\": 1,\n"
      "  // a comment, with \"quotes\": [1]\n"
      "  \"b\" : /* x\n */ [true,\n"
      "     -2.5e1, \"q\\\"]\", {\"c\":null}]\n"
      "}");
  EXPECT_EQ(json.line(), 1);
  EXPECT_EQ(json.column(), 1);
  EXPECT_EQ(json.at("a").line(), 2);
  EXPECT_EQ(json.at("a").column(), 8);
  const Json& b = json.at("b");
  EXPECT_EQ(b.line(), 5);
  EXPECT_EQ(b.column(), 5);
  EXPECT_EQ(b.as_array()[0].column(), 6);
  EXPECT_EQ(b.as_array()[1].line(), 6);
  EXPECT_EQ(b.as_array()[1].column(), 6);
  EXPECT_EQ(b.as_array()[2].column(), 14);
  EXPECT_EQ(b.as_array()[3].column(), 22);
  EXPECT_EQ(b.as_array()[3].at("c").column(), 27);
}

TEST(JsonParse, ColumnsCountCharactersAndLinesCountNewlines) {
  const Json json = Json::parse("{\"\xC3\xA4\xE2\x82\xAC\": \"\xF0\x9F\x98\x80\", \"b\":1,\r\n\"c\":2}");
  EXPECT_EQ(json.as_object()[0].second.column(), 8);
  EXPECT_EQ(json.at("b").column(), 17);
  EXPECT_EQ(json.at("c").line(), 2);
  EXPECT_EQ(json.at("c").column(), 5);
}

TEST(JsonParse, EscapesBecomeUtf8) {
  EXPECT_EQ(Json::parse(R"("\u00e4\n\/\ud83d\ude00")").as_string(), "\xC3\xA4\n/\xF0\x9F\x98\x80");
}

TEST(JsonParse, NamesFileLineColumnAndReasonOfSyntaxErrors) {
  Json::ParseOptions options;
  options.source = "config.json";
  EXPECT_THAT(parse_error("{\"a\": 1,\n \"b\" 2}", options), StartsWith("config.json:2:6: "));
  EXPECT_THAT(parse_error("{\"a\": 1,\n \"b\" 2}", options), HasSubstr("expected ':'"));
  EXPECT_THAT(parse_error("[1 2]"), StartsWith("<json>:1:4: "));
  EXPECT_THAT(parse_error("[1,,2]"), StartsWith("<json>:1:4: "));
  EXPECT_THAT(parse_error("[\n\n  tru]"), StartsWith("<json>:3:3: "));
  EXPECT_THAT(parse_error("[1,]"), StartsWith("<json>:1:4: "));
  EXPECT_THAT(parse_error("{\"a\": 1"), StartsWith("<json>:1:8: "));
  EXPECT_THAT(parse_error("[\"abc\ndef\"]"), StartsWith("<json>:1:6: "));
  EXPECT_EQ(parse_error("[1 2]").find("json.exception"), std::string::npos);
}

TEST(JsonParse, RejectsWhatIsNotOneDocument) {
  for (const char* text : {"",         " ",       "{",         "[",          "\"",          "{}{}",
                           "1 2",      "{} x",    "[1,]",      "{\"a\":1,}", "{a:1}",       "{'a':1}",
                           "{\"a\"}",  "{1:2}",   "01",        "1.",         ".5",          "+1",
                           "1e",       "0x10",    "-",         "NaN",        "Infinity",    "-Infinity",
                           "nul",      "True",    "\"\\x\"",   "\"\\u12\"",  "\"\\ud800\"", "\"\\udc00\"",
                           "\"a\tb\"", "// c\n1", "/* c */ 1", "1e400",      "-1e400",      "]",
                           ",",        ":"}) {
    EXPECT_FALSE(parse_error(text).empty()) << text;
  }
}

TEST(JsonParse, NulDoesNotEndTheDocument) {
  using namespace std::string_literals;
  EXPECT_THAT(parse_error("{}\0trailing"s), StartsWith("<json>:1:3: NUL"));
  EXPECT_FALSE(parse_error("\0"s).empty());
  EXPECT_FALSE(parse_error("\"a\0b\""s).empty());
  EXPECT_EQ(Json::parse("\"a\\u0000b\"").as_string(), "a\0b"s);
}

TEST(JsonParse, RejectsInvalidUtf8) {
  EXPECT_THAT(parse_error("{\"a\":\n\"b\xFF\"}"), StartsWith("<json>:2:3: byte 0xFF is not valid UTF-8"));
  for (const char* bytes : {"\x80", "\xC0\xAF", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                            "\xF5\x80\x80\x80", "\xE2\x82", "\xF0\x9F\x98"})
    EXPECT_THAT(parse_error(std::string("\"") + bytes + "\""), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of([] { (void)parse_config("// \xFF\n1"); }), HasSubstr("UTF-8"));
}

TEST(JsonParse, RejectsDuplicateKeysAtTheirPlace) {
  EXPECT_THAT(parse_error("{\"a\": 1,\n\"b\": 2,\n\"a\": 3}"), StartsWith("<json>:3:6: duplicate key \"a\""));
  EXPECT_FALSE(parse_error(R"({"x": {"k": 1, "\u006b": 1}})").empty());
  EXPECT_TRUE(parse_error(R"([{"a": 1}, {"a": {"a": 2}}])").empty());
}

TEST(JsonParse, IntegersAreExact) {
  EXPECT_EQ(Json::parse("9223372036854775807").as_int(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(Json::parse("-9223372036854775808").as_int(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(Json::parse("18446744073709551615").as_uint(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(Json::parse("9007199254740993").as_int(), 9007199254740993);
}

TEST(JsonParse, WhatOverflowsOrHasAFractionIsNoInteger) {
  for (const char* text : {"18446744073709551616", "-9223372036854775809", "1.0", "16.7", "1e3"}) {
    const Json json = Json::parse(text);
    EXPECT_TRUE(json.is_number()) << text;
    EXPECT_FALSE(json.is_integer()) << text;
    EXPECT_THROW((void)json.as_int(), Error) << text;
    EXPECT_THROW((void)json.as_uint(), Error) << text;
  }
  EXPECT_THROW((void)Json::parse("18446744073709551615").as_int(), Error);
  EXPECT_THROW((void)Json::parse("-1").as_uint(), Error);
}

TEST(JsonParse, CommentsOnlyWhereAllowed) {
  EXPECT_EQ(parse_config("/* a */ [1, // b\n 2] // c").as_array().size(), 2u);
  EXPECT_THROW((void)Json::parse("[1, // b\n 2]"), Error);
  EXPECT_THROW((void)parse_config("[1] /* open"), Error);
}

TEST(JsonParse, ByteOrderMarkOnlyInFilesThatPeopleWrite) {
  const Json json = parse_config("\xEF\xBB\xBF{\"a\": 1}");
  EXPECT_EQ(json.at("a").column(), 7);
  EXPECT_THAT(parse_error("\xEF\xBB\xBF{}"), HasSubstr("byte order mark"));
  EXPECT_THROW((void)parse_config("\xEF\xBB\xBF"), Error);
}

TEST(JsonParse, CapsDepthSizeAndValues) {
  Json::ParseOptions options;
  options.max_depth = 3;
  EXPECT_TRUE(parse_error("[[[1]]]", options).empty());
  EXPECT_THAT(parse_error("[[{\"a\":[1]}]]", options), StartsWith("<json>:1:8: nested deeper than 3"));
  options = {};
  options.max_values = 4;
  EXPECT_TRUE(parse_error("[1,2,3]", options).empty());
  EXPECT_THAT(parse_error("[1,2,3,4]", options), HasSubstr("more than 4 values"));
  options = {};
  options.max_bytes = 4;
  EXPECT_TRUE(parse_error("1234", options).empty());
  EXPECT_THAT(parse_error("12345", options), HasSubstr("5 bytes"));
  options = {};
  options.max_depth = Json::kMaxDepth + 1;
  EXPECT_THROW((void)Json::parse("1", options), Error);
}

TEST(JsonParse, BombsAreRefusedQuickly) {
  EXPECT_THAT(parse_error(std::string(10'000'000, '[')), HasSubstr("nested deeper"));
  std::string open;
  for (int i = 0; i < 1'000'000; ++i) open += "{\"a\":";
  EXPECT_THAT(parse_error(open), HasSubstr("nested deeper"));
  // Errors that would quote megabytes stay short.
  EXPECT_LT(parse_error("[\"" + std::string(1'000'000, 'x') + "\n\"]").size(), 600u);
  EXPECT_LT(parse_error("{\"" + std::string(1'000'000, 'k') + "\":1,\"" + std::string(1'000'000, 'k') + "\":1}").size(),
            600u);
}

TEST(JsonParse, ManyKeysAreCheckedForDuplicatesInLessThanQuadraticTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("\"key{}\":{},\n", i, i);
  EXPECT_EQ(Json::parse(text + "\"last\":0}").as_object().size(), 200'001u);
  EXPECT_THAT(parse_error(text + "\"key0\":0}"), StartsWith("<json>:200001:8: duplicate key"));
}

TEST(JsonParse, FilesAreNamedInErrors) {
  const testing::TempDir folder;
  testing::write_file(folder / "ok.json", "{\"a\": [1]}");
  EXPECT_EQ(Json::parse_file(folder / "ok.json").at("a").as_array()[0].as_int(), 1);
  testing::write_file(folder / "bad.json", "{\n");
  EXPECT_THAT(error_of([&] { (void)Json::parse_file(folder / "bad.json"); }),
              StartsWith((folder / "bad.json").string() + ":2:1: "));
  EXPECT_THAT(error_of([&] { (void)Json::parse_file(folder / "none.json"); }), HasSubstr("none.json"));
  EXPECT_THROW((void)Json::parse_file(folder.path()), Error);
  Json::ParseOptions options;
  options.max_bytes = 3;
  EXPECT_THAT(error_of([&] { (void)Json::parse_file(folder / "ok.json", options); }), HasSubstr("ok.json"));
}

TEST(JsonParse, DoesNotDependOnTheLocale) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  // Only meaningful where a locale with a decimal comma is installed; the values must be right in any case.
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"}) std::setlocale(LC_ALL, name);
  EXPECT_EQ(Json::parse("[1.5]").as_array()[0].as_double(), 1.5);
  EXPECT_EQ(Json(1234567.25).dump(), "1234567.25");
  std::setlocale(LC_ALL, before.c_str());
}

TEST(JsonAccess, WrongTypesNameExpectedActualAndPosition) {
  const Json json = Json::parse("{\"a\":\n  true, \"b\": 2.5}");
  EXPECT_THAT(error_of([&] { (void)json.at("a").as_int(); }), HasSubstr("line 2, column 3: expected integer"));
  EXPECT_THAT(error_of([&] { (void)json.at("a").as_int(); }), HasSubstr("got bool true"));
  EXPECT_THAT(error_of([&] { (void)json.at("b").as_uint(); }), HasSubstr("got number 2.5"));
  EXPECT_THAT(error_of([&] { (void)json.at("c"); }), HasSubstr("no key \"c\""));
  EXPECT_THROW((void)json.as_array(), Error);
  EXPECT_THROW((void)json.at("a").find("x"), Error);
  EXPECT_THROW((void)Json(1).as_bool(), Error);
  EXPECT_THROW((void)Json(1).as_string(), Error);
  EXPECT_THROW((void)Json("1").as_double(), Error);
  EXPECT_THROW((void)Json().as_object(), Error);
}

TEST(JsonAccess, EditsKeepOrder) {
  Json json = Json::object();
  json.set("a", 1);
  json.set("b", "two");
  json.set("c", Json::array());
  json.set("a", 4.5);
  json.find("c")->push_back(true);
  EXPECT_EQ(json.dump(), R"({"a":4.5,"b":"two","c":[true]})");
  EXPECT_TRUE(json.erase("b"));
  EXPECT_FALSE(json.erase("b"));
  EXPECT_EQ(json.dump(), R"({"a":4.5,"c":[true]})");
  EXPECT_EQ(json.find("b"), nullptr);
}

TEST(JsonAccess, UnsignedValuesAreStoredSignedWhereTheyFit) {
  EXPECT_EQ(Json(std::uint64_t{5}).as_int(), 5);
  EXPECT_EQ(Json(5u).as_int(), 5);
  EXPECT_EQ(Json(std::numeric_limits<std::uint64_t>::max()).as_uint(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(Json(1.5f).as_double(), 1.5);
}

TEST(JsonEquality, IgnoresOrderAndPositions) {
  EXPECT_EQ(Json::parse(R"({"a": 1, "b": [2, {"c": 3}]})"), Json::parse("{\"b\":[2,{\"c\":3}],\n\"a\":1}"));
  EXPECT_FALSE(Json::parse(R"({"a": 1})") == Json::parse(R"({"a": 2})"));
  EXPECT_FALSE(Json::parse(R"({"a": 1})") == Json::parse(R"({"a": 1, "b": 2})"));
  EXPECT_FALSE(Json::parse("[1, 2]") == Json::parse("[2, 1]"));
  EXPECT_FALSE(Json() == Json(false));
  EXPECT_FALSE(Json("1") == Json(1));
}

TEST(JsonEquality, NumbersCompareByExactValue) {
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_FALSE(Json(1) == Json(1.5));
  EXPECT_FALSE(Json(std::int64_t{9007199254740993}) == Json(9007199254740992.0));
  EXPECT_FALSE(Json(std::numeric_limits<std::int64_t>::max()) == Json(9223372036854775808.0));
  EXPECT_FALSE(Json(std::numeric_limits<std::uint64_t>::max()) == Json(18446744073709551616.0));
  EXPECT_EQ(Json(std::uint64_t{1} << 63), Json(9223372036854775808.0));
  EXPECT_FALSE(Json(std::nan("")) == Json(std::nan("")));
}

TEST(JsonDump, IsCompactOrIndented) {
  const Json json = Json::parse(R"({"a": [1, -2.5, []], "b": {}, "c": {"d": null}})");
  EXPECT_EQ(json.dump(), R"({"a":[1,-2.5,[]],"b":{},"c":{"d":null}})");
  EXPECT_EQ(json.dump(2),
            "{\n  \"a\": [\n    1,\n    -2.5,\n    []\n  ],\n  \"b\": {},\n  \"c\": {\n    \"d\": null\n  }\n}");
}

TEST(JsonDump, EscapesStrings) {
  EXPECT_EQ(Json("\"\\/\b\f\n\r\t\x01\x1F\x7F").dump(), "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7F\"");
  EXPECT_EQ(Json("\xC3\xA4\xF0\x9F\x98\x80").dump(), "\"\xC3\xA4\xF0\x9F\x98\x80\"");
  EXPECT_EQ(Json(std::string("a\0b", 3)).dump(), "\"a\\u0000b\"");
}

TEST(JsonDump, ReplacesInvalidUtf8) {
  EXPECT_EQ(Json("a\xFF\xC3").dump(), "\"a\\ufffd\\ufffd\"");
  Json json = Json::object();
  json.set("\xED\xA0\x80", 1);
  EXPECT_EQ(json.dump(), R"({"\ufffd\ufffd\ufffd":1})");
}

TEST(JsonDump, NonFiniteNumbersBecomeNull) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Json(Json::Array{Json(std::nan("")), Json(infinity), Json(-infinity)}).dump(), "[null,null,null]");
}

TEST(JsonDump, NumbersReadBackEqualAndOfTheSameKind) {
  for (const double value : {0.0, 1.0, -1.0, 0.1, 1.0 / 3, 1e20, 1e-7, 5e-324, std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::min(), 123456789012345680.0, 3e-4}) {
    const Json back = Json::parse(Json(value).dump());
    EXPECT_EQ(back.as_double(), value);
    EXPECT_FALSE(back.is_integer()) << Json(value).dump();
  }
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(3.0).dump(), "3.0");
  EXPECT_TRUE(std::signbit(Json::parse(Json(-0.0).dump()).as_double()));
  for (const char* text : {"0", "-1", "9223372036854775807", "-9223372036854775808", "18446744073709551615"})
    EXPECT_EQ(Json::parse(text).dump(), text);
}

TEST(JsonDump, DepthIsLimited) {
  Json json = Json::array();
  for (std::size_t i = 1; i < Json::kMaxDepth; ++i) {
    Json outer = Json::array();
    outer.push_back(std::move(json));
    json = std::move(outer);
  }
  Json::ParseOptions options;
  options.max_depth = Json::kMaxDepth;
  EXPECT_EQ(Json::parse(json.dump(), options), json);
  for (int i = 0; i < 2; ++i) {
    Json outer = Json::array();
    outer.push_back(std::move(json));
    json = std::move(outer);
  }
  EXPECT_THROW((void)json.dump(), Error);
}

}  // namespace
}  // namespace quench
