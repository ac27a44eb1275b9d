#pragma once
// Parts of a report's page, and checks of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/json/json.h"

namespace quench::testing {

inline std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

struct Page {
  std::string frame;  // without the data
  std::string data;
};

inline Page page_of(const std::string& html) {
  const std::string opening = "<script type=\"application/json\" id=\"data\">", closing = "</script>";
  const std::size_t begin = html.find(opening) + opening.size(), end = html.find(closing, begin);
  return {html.substr(0, begin) + html.substr(end), html.substr(begin, end - begin)};
}

// Nothing in the page may load or point outside, and the data are no markup.
inline void check_self_contained(const std::string& html) {
  const Page page = page_of(html);
  for (const char* forbidden : {"http:",          "https:",   "url(",      "@import",   "<img",
                                "<link",          "<iframe",  "<object",   " src=",     "javascript:",
                                " onload",        " onclick", "innerHTML", "outerHTML", "insertAdjacentHTML",
                                "document.write", "eval(",    "Function(", "fetch(",    "XMLHttpRequest",
                                "import(",        "@DATA@"})
    EXPECT_THAT(page.frame, ::testing::Not(::testing::HasSubstr(forbidden)));
  EXPECT_EQ(count_of(page.frame, "<script"), 2u);
  EXPECT_EQ(count_of(page.frame, "</script>"), 2u);
  EXPECT_EQ(count_of(page.frame, "href"), count_of(page.frame, "{href: `#${id}`}"));
  EXPECT_THAT(page.frame, ::testing::HasSubstr("default-src 'none'"));
  EXPECT_EQ(count_of(page.data, "<"), 0u);
  EXPECT_NO_THROW((void)Json::parse(page.data));
}

}  // namespace quench::testing
