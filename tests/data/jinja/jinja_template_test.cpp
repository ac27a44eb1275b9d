#include "data/jinja/jinja_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/system/check.h"
#include "tests/data/sampling/token_fixtures.h"
#include "tests/testing.h"

namespace quench::jinja {
namespace {

using ::quench::testing::expect_error;

std::string render(std::string_view source, const char* variables = "{}") {
  return Template(source, "t.jinja").render(Value::from_json(Json::parse(variables)).map()).text;
}

struct Case {
  const char* source;
  const char* text;
};

constexpr const char* kVariables = R"({"a": "x", "n": 3, "f": 2.5, "none": null, "yes": true, "list": [1, 2, 3],
  "map": {"k": "v", "items": 1}, "text": " Ab ", "users": [{"r": "u", "t": {"x": 1}}, {"r": "s", "t": {"x": 2}}]})";

// Reference: Jinja2 3.1 with Transformers' settings.
TEST(Jinja, ExpressionsAreJinja2s) {
  constexpr Case kCases[] = {
      {"{{ a }}{{ n }}{{ f }}{{ none }}{{ yes }}{{ missing }}", "x32.5NoneTrue"},
      {"{{ list }} {{ map }} {{ [1.0, 'a\\'b', none] }}", "[1, 2, 3] {'k': 'v', 'items': 1} [1.0, \"a'b\", None]"},
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ 'ab' * 2 }}",
       "3 -4 1 2 3.5 8 abab"},
      {"{{ 1 + 2 * 3 - 1 }} {{ 'a' ~ 1 ~ none }} {{ [1] + [2] }}", "6 a1None [1, 2]"},
      {"{{ 1 < 2 < 3 }} {{ 'a' in 'cat' }} {{ 4 not in list }} {{ 'k' in map }} {{ not a }}",
       "True True True True False"},
      {"{{ a if n > 2 else 'y' }}{{ 'z' if n > 5 }}", "x"},
      {"{{ list[0] }}{{ list[-1] }}{{ list[1:] }}{{ list[::-1] }}{{ text[1:3] }}{{ 'abc'[::-1] }}",
       "13[2, 3][3, 2, 1]Abcba"},
      {"{{ map.k }}{{ map['k'] }}{{ map['items'] }}{{ map.get('z', 'd') }}{% for k, v in map.items() %}{{ k }}={{ v "
       "}};{% endfor %}",
       "vv1dk=v;items=1;"},
      {"{{ text | trim }}|{{ text.strip() }}|{{ text.lstrip() }}|{{ 'xxaxx'.strip('x') }}", "Ab|Ab|Ab |a"},
      {"{{ 'a,b,c'.split(',') }}{{ 'a b'.split() }}{{ 'a,b,c'.split(',', 1)[-1] }}", "['a', 'b', 'c']['a', 'b']b,c"},
      {"{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'aXa' | replace('a', 'b') }}", "TrueTruebXb"},
      {"{{ 'hello wORLD' | title }} {{ 'hELLO' | capitalize }} {{ 'é' | upper }}", "Hello World Hello \u00c9"},
      {"{{ users | map(attribute='t.x') | join('-') }} {{ users | selectattr('r', 'equalto', 's') | list | length }}",
       "1-2 1"},
      {"{{ users | rejectattr('r', 'equalto', 's') | map(attribute='r') | first }} {{ list | last }}", "u 3"},
      {"{{ missing | default('d') }} {{ '' | default('d', true) }} {{ list | length }} {{ '5' | int + 1 }}", "d d 3 6"},
      {"{{ map | tojson }} {{ '<é\\n\"' | tojson }} {{ [1, [], {}] | tojson(indent=2) }}",
       "{\"k\": \"v\", \"items\": 1} \"<é\\n\\\"\" [\n  1,\n  [],\n  {}\n]"},
      {"{{ a is string }}{{ map is mapping }}{{ list is iterable }}{{ none is none }}{{ missing is defined }}{{ n is "
       "not odd }}",
       "TrueTrueTrueTrueFalseFalse"},
      {"{{ n is divisibleby 3 and yes is true }}{{ a is in ['x'] }}", "TrueTrue"},
      {"{{ 'a\nb' | indent(2) }}", "a\n  b"},
      {"{{ dict(x=1).x }}{{ range(2) | list }}{{ 'a' 'b' }}", "1[0, 1]ab"},
      {"{{ 'a/b c+' | urlencode }} {{ {'a b': 'c/d +'} | urlencode }}", "a/b%20c%2B a+b=c%2Fd+%2B"},
  };
  for (const Case& c : kCases) EXPECT_EQ(render(c.source, kVariables), c.text) << c.source;
}

// tests/data/jinja/make_snippets.py writes them; with --all to the file of this variable, all combinations.
TEST(Jinja, SnippetsRenderAsJinja2RendersThem) {
  const char* all = std::getenv("QUENCH_JINJA_SNIPPETS");
  const Json figures = Json::parse_file(
      all != nullptr ? std::filesystem::path(all) : quench::testing::source_dir() / "tests/data/jinja/snippets.json");
  const Value variables = Value::from_json(figures.at("variables"));
  for (const Json& snippet : figures.at("snippets").as_array()) {
    const std::string& source = snippet.as_array()[0].as_string();
    const Json& text = snippet.as_array()[1];
    const auto rendered = [&] { return Template(source, "t.jinja").render(variables.map()).text; };
    if (text.is_null()) {
      EXPECT_THROW((void)rendered(), Error) << source;
    } else {
      EXPECT_NO_THROW(EXPECT_EQ(rendered(), text.as_string()) << source) << source;
    }
  }
}

TEST(Jinja, StatementsAreJinja2s) {
  constexpr Case kCases[] = {
      {"{% for x in list %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ x }};{% else %}no{% endfor %}",
       "1TrueFalse1;2FalseFalse2;3FalseTrue3;"},
      {"{% for x in [] %}x{% else %}no{% endfor %}{% for x in missing %}x{% endfor %}", "no"},
      {"{% for x in list if x != 2 %}{{ loop.index0 }}{{ x }}{% endfor %}", "0113"},
      {"{% for x in list %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% if x == 3 %}{% break %}{% endif %}{% "
       "endfor %}",
       "13"},
      {"{% for x in list %}{{ loop.previtem }}<{{ loop.nextitem }},{% endfor %}", "<2,1<3,2<,"},
      {"{% set x = 1 %}{% for i in list %}{% set x = 9 %}{% endfor %}{{ x }}", "1"},
      {"{% set ns = namespace(x=1) %}{% for i in list %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "7"},
      {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% if a == 2 %}t{% elif b == 2 %}e{% else %}f{% endif %}", "12e"},
      {"{% set x %} y {% endset %}[{{ x }}]{% set z | trim %} y {% endset %}[{{ z }}]", "[ y ][y]"},
      {"{% macro m(p, q='d') %}{{ p }}{{ q }}{{ a }}{% endmacro %}{{ m(1) }}{{ m(p=2, q=3) }}", "1dx23x"},
      {"{% raw %}{{ x }}{% endraw %}{# no #}", "{{ x }}"},
      // White space: trim_blocks, lstrip_blocks, signs, the last newline.
      {"a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
      {"a  {%- if true -%}  b  {%- endif %}  c", "ab  c"},
      {"a\n  {{ 1 }}\n  {{- 2 -}}\n b", "a\n  12b"},
      {"a\n  {%+ if true +%}\nb{% endif %}", "a\n  \nb"},
      {"a\n  {# c #}\nb", "a\nb"},
  };
  for (const Case& c : kCases) EXPECT_EQ(render(c.source, kVariables), c.text) << c.source;
}

TEST(Jinja, MarksAndMessagesAreFound) {
  const Template marked("a{% generation %}b{{ 1 }}{% endgeneration %}c", "t");
  EXPECT_TRUE(marked.marks_generation());
  EXPECT_THAT(marked.render({}).generations, ::testing::ElementsAre(Range{1, 3}));

  Map first, second, variables;
  first.message = 0;
  second.message = 1;
  variables.members.emplace_back("messages", List{Value(first), Value(second)});
  const Rendered rendered =
      Template("^{% for m in messages %}{{ loop.index }}{% for i in [1, 2] %}x{% endfor %}{% endfor %}$", "t")
          .render(variables);
  EXPECT_EQ(rendered.text, "^1xx2xx$");
  ASSERT_EQ(rendered.messages.size(), 2U);
  EXPECT_EQ(rendered.messages[1].message, 1);
  EXPECT_EQ(rendered.messages[1].range, (Range{4, 7}));
}

TEST(Jinja, WhatIsNotSupportedIsNamedWithItsLine) {
  const auto refused = [](std::string_view source, const std::string& what, ErrorCode code = ErrorCode::unsupported) {
    expect_error(code, {what}, [&] { (void)render(source, kVariables); });
  };
  refused("\n{% include 'x' %}", "t.jinja:2: {% include %} is not supported");
  refused("{{ a | md5 }}", "t.jinja:1: the filter 'md5' is not supported");
  refused("a\n{{ a is prime }}", "t.jinja:2: the test 'prime' is not supported");
  refused("{{ a.encode() }}", "'encode'");
  refused("{{ open('x') }}", "the function 'open' is not supported");
  refused("{{ strftime_now('%d') }}", "data.chat_date");
  refused("{% if a %}", "ends without {% endif %}");
  refused("{{ a", "a tag without its end");
  refused("{{ 'a }}", "a string without its end");
  refused("{{ a b }}", "'b', expected '}}'");
  refused("{{ missing.x }}", "t.jinja:1: 'missing' is undefined", ErrorCode::invalid_argument);
  refused("{{ 'a' + none }}", "string + none", ErrorCode::invalid_argument);
  refused("\n\n{{ raise_exception('wrong roles') }}", "t.jinja:3: the template refuses the conversation: wrong roles",
          ErrorCode::invalid_argument);
}

TEST(Jinja, LimitsEndWhatWouldNot) {
  const auto refused = [](const std::string& source, const std::string& what) {
    EXPECT_THAT([&] { (void)render(source); }, ::testing::ThrowsMessage<Error>(::testing::HasSubstr(what))) << source;
  };
  refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "too many steps");
  refused(
      "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "too much text");
  refused("{{ 'a' * 99999999999 }}", "too much text");
  refused("{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
          "more than");
  refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply");
  refused("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}", "nested too deeply");
  refused("{{ range(1000000) }}", "a range of");
  std::string deep;
  for (int i = 0; i < 2000; ++i) deep += "{% if true %}";
  refused(deep, "nested too deeply");
  expect_error(ErrorCode::unsupported, {"at most 4"}, [] { Template("12345", "t", {.source_bytes = 4}); });
}

TEST(Jinja, StrftimeNowPrintsTheGivenDate) {
  Template dated("{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}none{% endif %}", "t");
  EXPECT_EQ(dated.render({}).text, "none");
  std::tm date{};
  date.tm_year = 124;
  date.tm_mon = 6;
  date.tm_mday = 26;
  dated.set_date(date);
  EXPECT_EQ(dated.render({}).text, "26 Jul 2024");
}

}  // namespace
}  // namespace quench::jinja
